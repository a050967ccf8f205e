// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/fd.hpp"
#include "base/loop.hpp"
#include "rpc/line_reader.hpp"

namespace stepccl::agent {

/// One attached console: lines in, lines and frames out, with the limits of PROTOCOL.md.
class Client : public std::enable_shared_from_this<Client> {
public:
	static constexpr std::size_t kMaxLineBytes = 1u << 20;
	static constexpr std::size_t kMaxQueuedBytes = 4u << 20;
	static constexpr int kMaxBadLines = 16;
	static constexpr int kMaxOpenRequests = 32;

	using LineHandler = std::function<void(const std::shared_ptr<Client> &, std::string_view line)>;
	using CloseHandler = std::function<void(std::uint64_t id)>;

	Client(EventLoop &loop, UniqueFd fd, std::uint64_t id, LineHandler on_line, CloseHandler on_close);
	Client(const Client &) = delete;
	Client &operator=(const Client &) = delete;
	~Client();

	void start();

	[[nodiscard]] std::uint64_t id() const noexcept { return id_; }
	[[nodiscard]] std::size_t queued_bytes() const noexcept { return out_.size() - out_at_; }
	[[nodiscard]] bool is_open() const noexcept { return fd_.valid() && !draining_; }

	/// Queues a line (its '\n' included) or a binary frame. A client that lets more than
	/// kMaxQueuedBytes wait is disconnected.
	void send_line(std::string line) { send({reinterpret_cast<const std::byte *>(line.data()), line.size()}); }
	void send(std::span<const std::byte> bytes);

	/// Counts lines in a row that were no request; at the sixteenth the connection is closed.
	void note_line(bool good);

	/// Sends what waits, then closes.
	void close_after_output();
	void close(std::string_view reason);

	/// A subscription that ends with the connection: `end` is called once at its close.
	std::uint64_t on_end(std::function<void()> end);
	void forget_end(std::uint64_t key);

	/// Requests that are not answered yet: beyond kMaxOpenRequests nothing more is read.
	void request_began() noexcept { open_requests_++; }
	void request_ended();

private:
	void on_event(std::uint32_t events);
	void read_some();
	void flush();
	void update_interest();
	void close_when_idle();

	EventLoop &loop_;
	UniqueFd fd_;
	std::uint64_t id_;
	LineHandler on_line_;
	CloseHandler on_close_;
	LineReader reader_{kMaxLineBytes};
	std::string out_;
	std::size_t out_at_ = 0;
	std::uint32_t interest_ = 0;
	int bad_lines_ = 0;
	int open_requests_ = 0;
	bool input_ended_ = false;
	bool draining_ = false;
	EventLoop::TimerId drain_timer_ = 0;
	std::unordered_map<std::uint64_t, std::function<void()>> ends_;
	std::uint64_t next_end_ = 1;
};

} // namespace stepccl::agent
