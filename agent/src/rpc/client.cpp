// SPDX-License-Identifier: Apache-2.0
#include "rpc/client.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/log.hpp"
#include "rpc/errors.hpp"
#include "rpc/request.hpp"

namespace stepccl::agent {

namespace {

constexpr auto kDrainTime = std::chrono::milliseconds(2000);
constexpr std::size_t kCompactAt = 256 * 1024;

} // namespace

Client::Client(EventLoop &loop, UniqueFd fd, std::uint64_t id, LineHandler on_line, CloseHandler on_close)
	: loop_(loop), fd_(std::move(fd)), id_(id), on_line_(std::move(on_line)), on_close_(std::move(on_close))
{
}

Client::~Client()
{
	if (fd_.valid())
		loop_.remove(fd_.get());
	loop_.cancel(drain_timer_);
}

void Client::start()
{
	interest_ = EPOLLIN | EPOLLRDHUP;
	loop_.add(fd_.get(), interest_, [this](std::uint32_t events) { on_event(events); });
}

void Client::on_event(std::uint32_t events)
{
	const auto keep = shared_from_this();
	if (events & EPOLLOUT)
		flush();
	if (fd_.valid() && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
		read_some();
	if (fd_.valid() && (events & (EPOLLHUP | EPOLLERR)))
		close("hangup");
}

void Client::read_some()
{
	std::array<char, 64 * 1024> buffer;
	const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
	if (got < 0) {
		if (errno != EAGAIN && errno != EINTR)
			close("read_failed");
		return;
	}
	if (got == 0) {
		if (!input_ended_ && !draining_)
			reader_.finish([this](LineReader::Kind, std::string_view line) {
				on_line_(shared_from_this(), line);
				return true;
			});
		input_ended_ = true;
		update_interest();
		close_when_idle();
		return;
	}
	if (draining_)
		return;
	reader_.feed({buffer.data(), static_cast<std::size_t>(got)},
		     [this](LineReader::Kind kind, std::string_view line) {
			     if (kind == LineReader::Kind::kCut) {
				     send_line(error_line(nullptr, message_too_long(kMaxLineBytes)));
				     close_after_output();
				     return false;
			     }
			     on_line_(shared_from_this(), line);
			     return is_open();
		     });
	if (fd_.valid())
		update_interest();
}

void Client::send(std::span<const std::byte> bytes)
{
	if (!is_open())
		return;
	if (queued_bytes() + bytes.size() > kMaxQueuedBytes) {
		close("client_does_not_read");
		return;
	}
	out_.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
	flush();
}

void Client::flush()
{
	while (fd_.valid() && queued_bytes() > 0) {
		const ssize_t put =
			::send(fd_.get(), out_.data() + out_at_, queued_bytes(), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0) {
			if (errno != EAGAIN)
				close("write_failed");
			break;
		}
		out_at_ += static_cast<std::size_t>(put);
	}
	if (!fd_.valid())
		return;
	if (queued_bytes() == 0) {
		std::string().swap(out_);
		out_at_ = 0;
		if (draining_)
			(void)::shutdown(fd_.get(), SHUT_WR);
		close_when_idle();
	} else if (out_at_ > kCompactAt) {
		out_.erase(0, out_at_);
		out_at_ = 0;
	}
	if (fd_.valid())
		update_interest();
}

void Client::update_interest()
{
	std::uint32_t wanted = 0;
	if (!input_ended_ && (draining_ || open_requests_ < kMaxOpenRequests))
		wanted |= EPOLLIN | EPOLLRDHUP;
	if (queued_bytes() > 0)
		wanted |= EPOLLOUT;
	if (wanted != interest_) {
		interest_ = wanted;
		loop_.modify(fd_.get(), wanted);
	}
}

void Client::note_line(bool good)
{
	bad_lines_ = good ? 0 : bad_lines_ + 1;
	if (bad_lines_ >= kMaxBadLines) {
		log_warn({{"event", "client_closed"}, {"client", id_}, {"reason", "too_many_bad_lines"}});
		close_after_output();
	}
}

void Client::request_ended()
{
	open_requests_--;
	if (!fd_.valid())
		return;
	update_interest();
	close_when_idle();
}

void Client::close_when_idle()
{
	const bool done = queued_bytes() == 0 && open_requests_ == 0;
	if (input_ended_ && done && (draining_ || ends_.empty()))
		close("end_of_input");
}

void Client::close_after_output()
{
	if (!fd_.valid() || draining_)
		return;
	draining_ = true;
	// The peer gets this long to read the answer; its own further bytes are read and dropped.
	drain_timer_ = loop_.after(kDrainTime, [this] { close("drained"); });
	if (queued_bytes() == 0)
		(void)::shutdown(fd_.get(), SHUT_WR);
	update_interest();
}

std::uint64_t Client::on_end(std::function<void()> end)
{
	const std::uint64_t key = next_end_++;
	ends_.emplace(key, std::move(end));
	return key;
}

void Client::forget_end(std::uint64_t key)
{
	ends_.erase(key);
	if (fd_.valid())
		close_when_idle();
}

void Client::close(std::string_view reason)
{
	if (!fd_.valid())
		return;
	const auto keep = shared_from_this();
	loop_.remove(fd_.get());
	fd_.reset();
	loop_.cancel(drain_timer_);
	drain_timer_ = 0;
	std::string().swap(out_);
	out_at_ = 0;
	std::unordered_map<std::uint64_t, std::function<void()>> ends;
	ends.swap(ends_);
	for (auto &[key, end] : ends)
		end();
	log_info({{"event", "client_detached"}, {"client", id_}, {"reason", reason}});
	loop_.defer([this, keep] { on_close_(id_); });
}

} // namespace stepccl::agent
