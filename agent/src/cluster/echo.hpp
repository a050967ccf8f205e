// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/loop.hpp"

namespace stepccl::agent {

/// The outcome of an ICMP echo.
struct EchoResult {
	std::optional<double> rtt_us; ///< the shortest of the round's echoes
	int error = 0;                ///< errno of what kept it from being sent; 0 and no rtt: no answer came
};

/// Sends ICMP echoes to addresses and measures their round trips. One round at a time.
class EchoProber {
public:
	using Results = std::map<std::string, EchoResult>;
	using Callback = std::function<void(const Results &)>;

	explicit EchoProber(EventLoop &loop) : loop_(loop) {}
	~EchoProber() { close_sockets(); loop_.cancel(send_timer_); loop_.cancel(end_timer_); }
	EchoProber(const EchoProber &) = delete;
	EchoProber &operator=(const EchoProber &) = delete;

	[[nodiscard]] bool busy() const noexcept { return static_cast<bool>(callback_); }

	/// Starts a round; `done` is called once, a second later at most. Must not be busy.
	void probe(const std::vector<std::string> &addresses, Callback done);

private:
	static constexpr int kEchoes = 3;

	struct Socket {
		UniqueFd fd;
		bool raw = false;
		int error = 0;
	};
	struct Payload;

	Socket &socket_for(bool ipv6);
	void send_round();
	void receive(bool ipv6);
	void take_reply(std::span<const std::byte> packet, bool ipv6, bool raw, std::uint64_t received_ns);
	void finish();
	void close_sockets() noexcept;

	EventLoop &loop_;
	std::array<Socket, 2> sockets_; ///< IPv4, IPv6
	std::vector<std::string> addresses_;
	Results results_;
	Callback callback_;
	std::uint64_t nonce_ = 0;
	int sent_rounds_ = 0;
	std::size_t answers_ = 0;
	EventLoop::TimerId send_timer_ = 0;
	EventLoop::TimerId end_timer_ = 0;
};

} // namespace stepccl::agent
