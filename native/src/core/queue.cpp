// SPDX-License-Identifier: Apache-2.0
#include "core/queue.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace stepccl {
namespace {

constexpr std::size_t kMostParts = 256;

Error usage_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

std::uint64_t bytes_of(const Task& task) { return task.call.count * task.element_bytes; }

// The one task of a blocking call.
class OneTask final : public TaskSource {
 public:
  explicit OneTask(Task& task) : task_(&task) {}
  Task* next() override { return task_; }
  void pop() override { task_ = nullptr; }

 private:
  Task* task_;
};

class Tasks final : public TaskSource {
 public:
  explicit Tasks(const std::vector<std::shared_ptr<Task>>& tasks) : tasks_(tasks) {}
  Task* next() override { return next_ == tasks_.size() ? nullptr : tasks_[next_].get(); }
  void pop() override { ++next_; }

 private:
  const std::vector<std::shared_ptr<Task>>& tasks_;
  std::size_t next_ = 0;
};

}  // namespace

bool can_fuse(const Task& task, std::uint64_t most_bytes) noexcept {
  return task.kind == TaskKind::collective && task.collective() == STEPCCL_ALL_REDUCE && task.parts.empty() && bytes_of(task) <= most_bytes;
}

bool fit_together(const Task& one, const Task& two) noexcept {
  return one.call.datatype == two.call.datatype && one.call.redop == two.call.redop && one.compression == two.compression && one.allowed == two.allowed &&
         one.timeout_ms == two.timeout_ms;
}

std::shared_ptr<Task> fuse(std::vector<std::shared_ptr<Task>> parts) {
  if (parts.size() == 1) return parts.front();
  auto task = std::make_shared<Task>();
  const Task& first = *parts.front();
  task->call = first.call;
  task->call.count = 0;
  task->compression = first.compression;
  task->timeout_ms = first.timeout_ms;
  task->allowed = first.allowed;
  task->element_bytes = first.element_bytes;
  task->background = first.background;
  task->sequence = parts.back()->sequence;
  for (const auto& part : parts) {
    task->call.count += part->call.count;
    part->fused = static_cast<std::uint32_t>(parts.size());
  }
  task->parts = std::move(parts);
  return task;
}

Queue::~Queue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Queue::number(Task& task) noexcept {
  if (task.message()) return;
  for (const auto& part : task.parts) part->sequence = collectives_.fetch_add(1, std::memory_order_relaxed) + 1;
  task.sequence = task.parts.empty() ? collectives_.fetch_add(1, std::memory_order_relaxed) + 1 : task.parts.back()->sequence;
}

void Queue::finish(Task& task, const std::optional<Error>& error) {
  log_.ended(task, monotonic_ns(), error);
  task.end(error);
}

void Queue::done_already(Task& task) {
  log_.queued(task);
  finish(task, std::nullopt);
}

template <class F>
Expected<bool> Queue::drive(TaskSource& source, F&& accept) {
  while (outstanding_.load(std::memory_order_acquire) == 0) {
    int expected = kFree;
    if (busy_.compare_exchange_strong(expected, kCaller, std::memory_order_acquire)) {
      const bool mine = outstanding_.load(std::memory_order_acquire) == 0;
      if (mine) {
        accept();
        std::optional<Error> error;
        if (control_.failed()) {
          error = control_.failure();
        } else if (Status status = engine_.run(source); !status.ok()) {
          error = status.take_error();
        }
        // After an error the engine leaves what it has not begun.
        for (Task* task = source.next(); task != nullptr; task = source.next()) {
          source.pop();
          finish(*task, error);
        }
      }
      busy_.store(kFree, std::memory_order_release);
      return mine;
    }
    if (expected == kCaller) return usage_error("another operation runs, or the communicator is being destroyed");
    std::this_thread::yield();
  }
  return false;
}

Status Queue::run(Task& task) {
  OneTask source(task);
  auto driven = drive(source, [&] { number(task); });  // recorded when it begins, which is now
  if (!driven.ok()) return driven.take_error();
  if (driven.value()) return task.error ? Status(*task.error) : Status();
  auto own = std::make_shared<Task>();
  own->take_call(task);
  if (Status status = submit(std::span(&own, 1), false); !status.ok()) return status;
  wait_for_task(*own, 0, [&] { return own->done.load(std::memory_order_acquire); });
  task.call = own->call;
  return own->error ? Status(*own->error) : Status();
}

std::optional<Status> Queue::run_short(const Request& request) {
  if (outstanding_.load(std::memory_order_acquire) != 0 || !engine_.is_short(request)) return std::nullopt;
  int expected = kFree;
  if (!busy_.compare_exchange_strong(expected, kCaller, std::memory_order_acquire)) return std::nullopt;
  std::optional<Status> ended;
  if (outstanding_.load(std::memory_order_acquire) == 0) ended = control_.failed() ? Status(control_.failure()) : engine_.run_short(request, collectives_);
  busy_.store(kFree, std::memory_order_release);
  return ended;
}

Status Queue::run_all(const std::vector<std::shared_ptr<Task>>& tasks) {
  Tasks source(tasks);
  auto driven = drive(source, [&] {
    for (const auto& task : tasks) {
      number(*task);
      log_.queued(*task);
    }
  });
  if (!driven.ok()) return driven.take_error();
  if (!driven.value()) return submit(tasks, false);
  for (const auto& task : tasks) fused_.fetch_add(task->parts.size(), std::memory_order_relaxed);
  return {};
}

Status Queue::submit(std::span<const std::shared_ptr<Task>> tasks, bool may_wait) {
  for (const auto& task : tasks) {
    task->background = true;
    for (const auto& part : task->parts) part->background = true;
  }
  {
    const std::lock_guard lock(mutex_);
    if (Status status = ensure_thread(); !status.ok()) return status;
    outstanding_.fetch_add(1, std::memory_order_release);
    for (const auto& task : tasks) {
      number(*task);
      log_.queued(*task);
      if (may_wait && fusion_bytes_ != 0 && can_fuse(*task, fusion_bytes_ / 2)) {
        if (!held_.empty() && (!fit_together(*held_.front(), *task) || held_bytes_ + bytes_of(*task) > fusion_bytes_)) flush_held();
        held_.push_back(task);
        holds_.store(true, std::memory_order_release);
        held_bytes_ += bytes_of(*task);
        if (held_bytes_ == fusion_bytes_ || held_.size() == kMostParts) flush_held();
        continue;
      }
      flush_held();
      append(task);
    }
  }
  changed_.notify_all();
  engine_.wake();
  return {};
}

void Queue::flush() {
  if (!holds_.load(std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(mutex_);
    if (held_.empty()) return;
    flush_held();
  }
  changed_.notify_all();
  engine_.wake();
}

void Queue::flush_held() {
  if (held_.empty()) return;
  append(fuse(std::exchange(held_, {})));
  held_bytes_ = 0;
  holds_.store(false, std::memory_order_release);
}

void Queue::append(std::shared_ptr<Task> task) {
  if (!task->parts.empty()) fused_.fetch_add(task->parts.size(), std::memory_order_relaxed);
  waiting_.push_back(std::move(task));
  count_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_release);
}

bool Queue::settled() {
  while (outstanding_.load(std::memory_order_acquire) != 0) {
    {
      const std::lock_guard lock(mutex_);
      const auto open = [](const auto& task) { return !task->done.load(std::memory_order_acquire); };
      if (!waiting_.empty() || !held_.empty() || std::any_of(running_.begin(), running_.end(), open)) return false;
    }
    std::this_thread::yield();
  }
  return true;
}

bool Queue::hold() {
  if (!settled()) return false;
  int expected = kFree;
  return busy_.compare_exchange_strong(expected, kCaller, std::memory_order_acquire);
}

Task* Queue::next() {
  if (count_.load(std::memory_order_acquire) == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  return waiting_.empty() ? nullptr : waiting_.front().get();
}

void Queue::pop() {
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [](const auto& task) { return task->done.load(std::memory_order_acquire); });
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  count_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_release);
}

Status Queue::ensure_thread() {
  if (thread_.joinable()) return {};
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& problem) {
    return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_ARGUMENTS, std::string("no thread for asynchronous operations: ") + problem.what());
  }
  return {};
}

void Queue::serve() {
  pthread_setname_np(pthread_self(), "stepccl-engine");
  // Signals are the application's: none may land here.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    if (waiting_.empty() && held_.empty()) {
      running_.clear();
      outstanding_.store(0, std::memory_order_release);
    }
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;  // stopped
    lock.unlock();
    int expected = kFree;
    while (!busy_.compare_exchange_weak(expected, kThread, std::memory_order_acquire)) {
      expected = kFree;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    std::optional<Error> error;
    if (control_.failed()) {
      error = control_.failure();
    } else if (Status status = engine_.run(*this); !status.ok()) {
      error = status.take_error();
    }
    busy_.store(kFree, std::memory_order_release);
    lock.lock();
    if (!error) continue;
    std::deque<std::shared_ptr<Task>> lost = std::exchange(waiting_, {});
    count_.store(0, std::memory_order_release);
    lock.unlock();
    for (const auto& task : lost) finish(*task, error);
    lock.lock();
  }
}

bool wait_for_task(Task& task, std::uint32_t timeout_ms, const std::function<bool()>& ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  std::unique_lock lock(task.mutex);
  if (timeout_ms == 0) {
    task.changed.wait(lock, ready);
    return true;
  }
  return task.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready);
}

}  // namespace stepccl
