// SPDX-License-Identifier: Apache-2.0
#include "facts/gpu_helper.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace stepccl::agent {

namespace {

constexpr auto kTimeLimit = std::chrono::milliseconds(10'000);
constexpr std::size_t kMaxOutputBytes = 512 * 1024;
constexpr std::uint64_t kKeepNs = 2'000'000'000;

} // namespace

struct GpuHelper::Running {
	Process process;
	std::string output;
	EventLoop::TimerId timer = 0;
	bool too_long = false;
	bool late = false;
};

GpuHelper::GpuHelper(EventLoop &loop, ProcessReaper &reaper, std::string path)
	: loop_(loop), reaper_(reaper), path_(std::move(path))
{
}

GpuHelper::~GpuHelper()
{
	if (!running_)
		return;
	loop_.remove(running_->process.stdout_pipe.get());
	loop_.cancel(running_->timer);
	reaper_.forget(running_->process.pid);
	(void)::kill(-running_->process.pid, SIGKILL);
}

void GpuHelper::ask(Callback callback)
{
	if (!running_ && monotonic_ns() < kept_until_ns_) {
		callback(kept_);
		return;
	}
	waiting_.push_back(std::move(callback));
	if (!running_)
		start();
}

void GpuHelper::start()
{
	ProcessSpec spec;
	spec.path = path_;
	spec.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"};
	Process process = start_process(spec);
	if (process.error != 0) {
		finish({{}, process.error, path_ + " could not be started: " + errno_text(process.error)});
		return;
	}
	running_ = std::make_unique<Running>();
	running_->process = std::move(process);
	loop_.add(running_->process.stdout_pipe.get(), EPOLLIN, [this](std::uint32_t) { read_output(); });
	running_->timer = loop_.after(kTimeLimit, [this] {
		running_->timer = 0;
		running_->late = true;
		(void)::kill(-running_->process.pid, SIGKILL);
	});
	reaper_.watch(running_->process.pid, [this](ExitStatus status) {
		read_output();
		GpuAnswer answer;
		if (running_->late) {
			answer.error = ETIMEDOUT;
			answer.message = "stepccl-gpuinfo did not end within 10 s and was stopped";
		} else if (running_->too_long) {
			answer.error = EFBIG;
			answer.message = "stepccl-gpuinfo printed more than 512 KiB";
		} else if (status.signal != 0 || status.code != 0) {
			answer.error = EIO;
			answer.message = "stepccl-gpuinfo ended with " +
					 (status.signal != 0 ? signal_name(status.signal)
							     : "status " + std::to_string(status.code));
		} else {
			try {
				answer.facts = gpu_facts_from_helper(running_->output);
			} catch (const std::runtime_error &error) {
				answer.error = EPROTO;
				answer.message = std::string("stepccl-gpuinfo: ") + error.what();
			}
		}
		finish(std::move(answer));
	});
}

void GpuHelper::read_output()
{
	const int fd = running_->process.stdout_pipe.get();
	if (fd < 0)
		return;
	std::array<char, 16 * 1024> buffer;
	for (;;) {
		const ssize_t got = ::read(fd, buffer.data(), buffer.size());
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return;
		if (got == 0) {
			loop_.remove(fd);
			running_->process.stdout_pipe.reset();
			return;
		}
		if (running_->output.size() + static_cast<std::size_t>(got) > kMaxOutputBytes) {
			running_->too_long = true;
			(void)::kill(-running_->process.pid, SIGKILL);
			loop_.remove(fd);
			running_->process.stdout_pipe.reset();
			return;
		}
		running_->output.append(buffer.data(), static_cast<std::size_t>(got));
	}
}

void GpuHelper::finish(GpuAnswer answer)
{
	if (running_) {
		if (running_->process.stdout_pipe.valid())
			loop_.remove(running_->process.stdout_pipe.get());
		loop_.cancel(running_->timer);
		running_.reset();
	}
	if (answer.error != 0 && answer.error != ENOENT)
		log_warn({{"event", "gpu_helper_failed"}, {"reason", answer.message}});
	kept_ = std::move(answer);
	kept_until_ns_ = monotonic_ns() + kKeepNs;
	std::vector<Callback> waiting;
	waiting.swap(waiting_);
	for (const Callback &callback : waiting)
		callback(kept_);
}

} // namespace stepccl::agent
