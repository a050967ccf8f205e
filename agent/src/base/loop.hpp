// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.hpp"

namespace stepccl::agent {

/// One thread's epoll loop with timers. Handlers may add and remove anything, themselves included.
class EventLoop {
public:
	using FdHandler = std::function<void(std::uint32_t events)>;
	using Task = std::function<void()>;
	using TimerId = std::uint64_t; ///< 0 is no timer

	EventLoop();

	/// Watches a descriptor (which stays the caller's). Throws std::system_error where epoll refuses.
	void add(int fd, std::uint32_t events, FdHandler handler);
	void modify(int fd, std::uint32_t events);
	void remove(int fd) noexcept;

	TimerId after(std::chrono::milliseconds delay, Task task);
	/// Calls again and again; a call that comes late is not made up for.
	TimerId every(std::chrono::milliseconds interval, Task task);
	void cancel(TimerId id) noexcept;

	/// Runs the task when the handler that is running now has returned.
	void defer(Task task) { deferred_.push_back(std::move(task)); }

	void run();
	void stop() noexcept { stopping_ = true; }

	/// One turn: waits at most `max_wait` for something to do and does it.
	void run_once(std::chrono::milliseconds max_wait);

private:
	struct Watch {
		std::uint32_t generation;
		FdHandler handler;
	};
	struct Timer {
		std::uint64_t due_ns;
		std::uint64_t interval_ns; ///< 0: once
		Task task;
	};

	TimerId add_timer(std::uint64_t delay_ns, std::uint64_t interval_ns, Task task);
	void run_due_timers();
	void run_deferred();

	UniqueFd epoll_;
	std::unordered_map<int, std::shared_ptr<Watch>> watches_;
	std::uint32_t next_generation_ = 1;
	std::unordered_map<TimerId, Timer> timers_;
	std::multimap<std::uint64_t, TimerId> due_;
	TimerId next_timer_ = 1;
	std::vector<Task> deferred_;
	bool stopping_ = false;
};

} // namespace stepccl::agent
