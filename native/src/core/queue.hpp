// SPDX-License-Identifier: Apache-2.0
// Who drives the engine: the caller of a blocking operation, or a thread for what was started asynchronously.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "core/engine.hpp"

namespace stepccl {

// Several small all_reduces as one.
[[nodiscard]] bool can_fuse(const Task& task, std::uint64_t most_bytes) noexcept;
[[nodiscard]] bool fit_together(const Task& one, const Task& two) noexcept;
[[nodiscard]] std::shared_ptr<Task> fuse(std::vector<std::shared_ptr<Task>> parts);

class Queue final : private TaskSource {
 public:
  // fusion_bytes: see stepccl_config_t; 0 = none.
  Queue(Engine& engine, bootstrap::ControlPlane& control, OperationLog& log, std::uint64_t fusion_bytes)
      : engine_(engine), control_(control), log_(log), fusion_bytes_(fusion_bytes) {}
  ~Queue() override;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Runs one task and waits for it: in this thread where nothing else runs, behind the others where asynchronous ones do.
  // INVALID_USAGE while another thread is in here.
  [[nodiscard]] Status run(Task& task);
  // The same for a collective that is short enough to be run at once (Engine::run_short) while nothing else runs; nullopt, and
  // nothing has happened, for any other.
  [[nodiscard]] std::optional<Status> run_short(const Request& request);
  // As run() for several; each has its own result.
  [[nodiscard]] Status run_all(const std::vector<std::shared_ptr<Task>>& tasks);
  // Starts tasks in this order; what the source of fusion may hold back with `may_wait`.
  [[nodiscard]] Status submit(std::span<const std::shared_ptr<Task>> tasks, bool may_wait);
  // A task that the caller has done without the engine.
  void done_already(Task& task);
  // What was held back leaves.
  void flush();
  // Whether nothing is left to end; waits the moment that the thread needs to come to rest.
  [[nodiscard]] bool settled();
  // From now on nobody may start anything. False, and nothing changes, while something runs.
  [[nodiscard]] bool hold();
  [[nodiscard]] std::uint64_t fused() const noexcept { return fused_.load(std::memory_order_relaxed); }

 private:
  enum : int { kFree = 0, kCaller = 1, kThread = 2 };

  // Runs the source here if nobody else drives the engine: true. False: the thread is at it. `accept` numbers its tasks.
  template <class F>
  [[nodiscard]] Expected<bool> drive(TaskSource& source, F&& accept);
  // Gives a collective its number: ranks count alike, since they call alike.
  void number(Task& task) noexcept;
  // Ends a task that the engine has not begun.
  void finish(Task& task, const std::optional<Error>& error);
  [[nodiscard]] Task* next() override;
  void pop() override;
  void serve();
  void flush_held();  // under the mutex
  void append(std::shared_ptr<Task> task);
  [[nodiscard]] Status ensure_thread();

  Engine& engine_;
  bootstrap::ControlPlane& control_;
  OperationLog& log_;
  const std::uint64_t fusion_bytes_;
  std::atomic<std::uint64_t> collectives_{0};  // called so far
  std::atomic<int> busy_{kFree};
  std::atomic<std::uint32_t> outstanding_{0};  // submitted since the thread was last idle
  std::atomic<std::uint32_t> count_{0};        // waiting_'s size
  std::atomic<std::uint64_t> fused_{0};
  std::atomic<bool> holds_{false};             // held_ is not empty

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;
  std::vector<std::shared_ptr<Task>> running_;
  std::vector<std::shared_ptr<Task>> held_;
  std::uint64_t held_bytes_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

// Waits until `ready` holds, at most timeout_ms (0 = without a limit of its own). False: the time has passed.
bool wait_for_task(Task& task, std::uint32_t timeout_ms, const std::function<bool()>& ready);

}  // namespace stepccl
