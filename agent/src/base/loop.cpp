// SPDX-License-Identifier: Apache-2.0
#include "base/loop.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/clock.hpp"

namespace stepccl::agent {

namespace {

// A descriptor's number may be used again within one batch of events: the generation tells the two apart.
std::uint64_t tag(int fd, std::uint32_t generation) noexcept
{
	return (static_cast<std::uint64_t>(generation) << 32) | static_cast<std::uint32_t>(fd);
}

[[noreturn]] void fail(const char *what)
{
	throw std::system_error(errno, std::generic_category(), what);
}

} // namespace

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC))
{
	if (!epoll_.valid())
		fail("epoll_create1");
}

void EventLoop::add(int fd, std::uint32_t events, FdHandler handler)
{
	auto watch = std::make_shared<Watch>(Watch{next_generation_++, std::move(handler)});
	epoll_event event{};
	event.events = events;
	event.data.u64 = tag(fd, watch->generation);
	if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
		fail("epoll_ctl add");
	watches_[fd] = std::move(watch);
}

void EventLoop::modify(int fd, std::uint32_t events)
{
	const auto found = watches_.find(fd);
	if (found == watches_.end())
		return;
	epoll_event event{};
	event.events = events;
	event.data.u64 = tag(fd, found->second->generation);
	if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
		fail("epoll_ctl modify");
}

void EventLoop::remove(int fd) noexcept
{
	if (watches_.erase(fd) > 0)
		(void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::add_timer(std::uint64_t delay_ns, std::uint64_t interval_ns, Task task)
{
	const TimerId id = next_timer_++;
	const std::uint64_t due = monotonic_ns() + delay_ns;
	timers_.emplace(id, Timer{due, interval_ns, std::move(task)});
	due_.emplace(due, id);
	return id;
}

EventLoop::TimerId EventLoop::after(std::chrono::milliseconds delay, Task task)
{
	return add_timer(static_cast<std::uint64_t>(delay.count()) * 1'000'000u, 0, std::move(task));
}

EventLoop::TimerId EventLoop::every(std::chrono::milliseconds interval, Task task)
{
	const auto ns = static_cast<std::uint64_t>(interval.count()) * 1'000'000u;
	return add_timer(ns, ns, std::move(task));
}

void EventLoop::cancel(TimerId id) noexcept
{
	const auto timer = timers_.find(id);
	if (timer == timers_.end())
		return;
	const auto [first, last] = due_.equal_range(timer->second.due_ns);
	const auto entry = std::find_if(first, last, [&](const auto &pair) { return pair.second == id; });
	if (entry != last)
		due_.erase(entry);
	timers_.erase(timer);
}

void EventLoop::run_due_timers()
{
	const std::uint64_t now = monotonic_ns();
	while (!due_.empty() && due_.begin()->first <= now) {
		const TimerId id = due_.begin()->second;
		due_.erase(due_.begin());
		Timer &timer = timers_.at(id);
		Task task;
		if (timer.interval_ns == 0) {
			task = std::move(timer.task);
			timers_.erase(id);
		} else {
			task = timer.task;
			timer.due_ns = std::max(timer.due_ns + timer.interval_ns, now + 1);
			due_.emplace(timer.due_ns, id);
		}
		task();
		run_deferred();
	}
}

void EventLoop::run_deferred()
{
	while (!deferred_.empty()) {
		std::vector<Task> tasks;
		tasks.swap(deferred_);
		for (Task &task : tasks)
			task();
	}
}

void EventLoop::run_once(std::chrono::milliseconds max_wait)
{
	run_deferred();
	std::int64_t wait_ms = max_wait.count();
	if (!due_.empty()) {
		const std::uint64_t now = monotonic_ns();
		const std::uint64_t due = due_.begin()->first;
		const std::int64_t until =
			due <= now ? 0 : static_cast<std::int64_t>((due - now + 999'999u) / 1'000'000u);
		wait_ms = wait_ms < 0 ? until : std::min(wait_ms, until);
	}
	std::array<epoll_event, 64> events{};
	const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
				       static_cast<int>(std::min<std::int64_t>(wait_ms, 3'600'000)));
	if (count < 0 && errno != EINTR)
		fail("epoll_wait");
	for (int i = 0; i < count; i++) {
		const auto &event = events[static_cast<std::size_t>(i)];
		const int fd = static_cast<int>(event.data.u64 & 0xffffffffu);
		const auto found = watches_.find(fd);
		if (found == watches_.end() || tag(fd, found->second->generation) != event.data.u64)
			continue;
		const std::shared_ptr<Watch> keep = found->second;
		keep->handler(event.events);
		run_deferred();
	}
	run_due_timers();
}

void EventLoop::run()
{
	stopping_ = false;
	while (!stopping_)
		run_once(std::chrono::milliseconds(-1));
}

} // namespace stepccl::agent
