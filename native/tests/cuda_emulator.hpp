// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs of the emulated driver.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace emulator {

inline void wait_until(const std::function<bool()>& there) {
  while (!there()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

// Work of one stream, in order, on a thread of its own.
class Capture;

class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  Capture* capture = nullptr;  // what is queued becomes nodes of a graph

  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty() && !busy_; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
      if (work_.empty()) return;
      auto work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;
};

using Flag = std::shared_ptr<std::atomic<bool>>;

class Event {
 public:
  // Of the last record: the streams may reach an earlier one later.
  [[nodiscard]] Flag last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  [[nodiscard]] Flag again() {
    const std::lock_guard lock(mutex_);
    return last_ = std::make_shared<std::atomic<bool>>(false);
  }
  [[nodiscard]] bool passed() const { return last()->load(); }

  std::uint64_t capture = 0;  // recorded last by a stream of this capture, after node `node`
  std::size_t node = 0;

 private:
  mutable std::mutex mutex_;
  Flag last_ = std::make_shared<std::atomic<bool>>(true);
};

// Queues on a stream, or adds to the graph that it captures. cuda_emulator_graphs.cpp.
void add(Stream& stream, std::function<void()> work);
void record(Event& event, Stream& stream);
void wait(Stream& stream, Event& event);

// A launch of one of the engine's kernels with these arguments, which are copied; nothing where it is not known.
// cuda_emulator_kernels.cpp.
void forget_messages();  // that ranks of a job that failed have left
[[nodiscard]] std::function<void()> kernel(const std::string& name, const void* arguments);

}  // namespace emulator
