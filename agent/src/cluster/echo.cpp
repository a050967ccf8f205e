// SPDX-License-Identifier: Apache-2.0
#include "cluster/echo.hpp"

#include <arpa/inet.h>
#include <linux/icmp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "base/clock.hpp"

namespace stepccl::agent {

namespace {

constexpr auto kEchoGap = std::chrono::milliseconds(30);
constexpr auto kTimeLimit = std::chrono::milliseconds(1000);

/// The internet checksum, RFC 1071.
std::uint16_t checksum(std::span<const std::byte> bytes) noexcept
{
	std::uint32_t sum = 0;
	for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
		std::uint16_t word;
		std::memcpy(&word, bytes.data() + i, 2);
		sum += word;
	}
	while (sum >> 16)
		sum = (sum & 0xffffu) + (sum >> 16);
	return static_cast<std::uint16_t>(~sum);
}

} // namespace

// Type, code, checksum, identifier, sequence are the same eight bytes in ICMP and ICMPv6.
struct EchoProber::Payload {
	std::uint8_t type;
	std::uint8_t code;
	std::uint16_t sum;
	std::uint16_t identifier;
	std::uint16_t sequence;
	std::uint64_t nonce; ///< tells our echoes from others' on a raw socket
	std::uint64_t sent_realtime_ns;
	std::uint32_t target;
	std::uint32_t reserved;
};

EchoProber::Socket &EchoProber::socket_for(bool ipv6)
{
	Socket &socket = sockets_[ipv6 ? 1 : 0];
	if (socket.fd.valid() || socket.error != 0)
		return socket;
	const int family = ipv6 ? AF_INET6 : AF_INET;
	const int protocol = ipv6 ? static_cast<int>(IPPROTO_ICMPV6) : static_cast<int>(IPPROTO_ICMP);
	constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
	// An unprivileged echo socket where net.ipv4.ping_group_range allows it, else a raw one (CAP_NET_RAW).
	socket.fd.reset(::socket(family, SOCK_DGRAM | kFlags, protocol));
	socket.raw = false;
	if (!socket.fd.valid()) {
		socket.fd.reset(::socket(family, SOCK_RAW | kFlags, protocol));
		socket.raw = true;
	}
	if (!socket.fd.valid()) {
		socket.error = errno;
		return socket;
	}
	const int on = 1;
	(void)::setsockopt(socket.fd.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
	if (socket.raw && !ipv6) {
		const icmp_filter filter{~(1u << ICMP_ECHOREPLY)};
		(void)::setsockopt(socket.fd.get(), SOL_RAW, ICMP_FILTER, &filter, sizeof filter);
	} else if (socket.raw) {
		icmp6_filter filter;
		ICMP6_FILTER_SETBLOCKALL(&filter);
		ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &filter);
		(void)::setsockopt(socket.fd.get(), IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter);
	}
	loop_.add(socket.fd.get(), EPOLLIN, [this, ipv6](std::uint32_t) { receive(ipv6); });
	return socket;
}

void EchoProber::probe(const std::vector<std::string> &addresses, Callback done)
{
	addresses_ = addresses;
	results_.clear();
	callback_ = std::move(done);
	sent_rounds_ = 0;
	answers_ = 0;
	if (::getrandom(&nonce_, sizeof nonce_, 0) != static_cast<ssize_t>(sizeof nonce_))
		nonce_ = monotonic_ns();
	for (const std::string &address : addresses_)
		results_[address] = {};
	end_timer_ = loop_.after(kTimeLimit, [this] {
		end_timer_ = 0;
		finish();
	});
	send_round();
}

void EchoProber::send_round()
{
	send_timer_ = 0;
	bool any_sent = false;
	for (std::size_t i = 0; i < addresses_.size(); i++) {
		EchoResult &result = results_[addresses_[i]];
		sockaddr_in6 target6{};
		sockaddr_in target4{};
		const bool ipv6 = ::inet_pton(AF_INET6, addresses_[i].c_str(), &target6.sin6_addr) == 1;
		target6.sin6_family = AF_INET6;
		if (!ipv6 && ::inet_pton(AF_INET, addresses_[i].c_str(), &target4.sin_addr) != 1) {
			result.error = EINVAL;
			continue;
		}
		target4.sin_family = AF_INET;
		const Socket &socket = socket_for(ipv6);
		if (!socket.fd.valid()) {
			result.error = socket.error;
			continue;
		}
		Payload payload{};
		payload.type = ipv6 ? static_cast<std::uint8_t>(ICMP6_ECHO_REQUEST) : static_cast<std::uint8_t>(ICMP_ECHO);
		payload.identifier = static_cast<std::uint16_t>(nonce_);
		payload.sequence = htons(static_cast<std::uint16_t>(sent_rounds_ + 1));
		payload.nonce = nonce_;
		payload.target = static_cast<std::uint32_t>(i);
		payload.sent_realtime_ns = realtime_ns();
		payload.sum = ipv6 ? std::uint16_t{0} : checksum(std::as_bytes(std::span(&payload, 1)));
		const sockaddr *to = ipv6 ? reinterpret_cast<const sockaddr *>(&target6) : reinterpret_cast<const sockaddr *>(&target4);
		const socklen_t to_length = ipv6 ? sizeof target6 : sizeof target4;
		if (::sendto(socket.fd.get(), &payload, sizeof payload, 0, to, to_length) < 0)
			result.error = errno;
		else
			any_sent = true;
	}
	sent_rounds_++;
	if (!any_sent) {
		// Nothing can come back; the caller still gets its answer from the loop, never from within.
		loop_.cancel(end_timer_);
		end_timer_ = loop_.after(std::chrono::milliseconds(0), [this] {
			end_timer_ = 0;
			finish();
		});
	} else if (sent_rounds_ < kEchoes) {
		send_timer_ = loop_.after(kEchoGap, [this] { send_round(); });
	}
}

void EchoProber::receive(bool ipv6)
{
	const Socket &socket = sockets_[ipv6 ? 1 : 0];
	for (;;) {
		std::array<std::byte, 2048> buffer;
		alignas(cmsghdr) std::array<std::byte, 256> control;
		iovec vector{buffer.data(), buffer.size()};
		msghdr message{};
		message.msg_iov = &vector;
		message.msg_iovlen = 1;
		message.msg_control = control.data();
		message.msg_controllen = control.size();
		const ssize_t got = ::recvmsg(socket.fd.get(), &message, MSG_DONTWAIT);
		if (got < 0)
			return; // Empty, or an asynchronous error of an earlier send, which the time limit covers.
		std::uint64_t received = realtime_ns();
		for (cmsghdr *item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
			if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS) {
				timespec stamp;
				std::memcpy(&stamp, CMSG_DATA(item), sizeof stamp);
				received = static_cast<std::uint64_t>(stamp.tv_sec) * 1'000'000'000u +
					   static_cast<std::uint64_t>(stamp.tv_nsec);
			}
		}
		take_reply({buffer.data(), static_cast<std::size_t>(got)}, ipv6, socket.raw, received);
		if (!callback_)
			return; // The last answer ended the round and closed the socket.
	}
}

void EchoProber::take_reply(std::span<const std::byte> packet, bool ipv6, bool raw, std::uint64_t received_ns)
{
	if (raw && !ipv6) {
		if (packet.empty())
			return;
		const std::size_t header = (std::to_integer<std::size_t>(packet[0]) & 0x0fu) * 4;
		if (packet.size() < header)
			return;
		packet = packet.subspan(header);
	}
	Payload payload;
	if (packet.size() < sizeof payload)
		return;
	std::memcpy(&payload, packet.data(), sizeof payload);
	const auto reply = ipv6 ? static_cast<std::uint8_t>(ICMP6_ECHO_REPLY) : static_cast<std::uint8_t>(ICMP_ECHOREPLY);
	if (payload.type != reply || payload.nonce != nonce_ || payload.target >= addresses_.size())
		return;
	EchoResult &result = results_[addresses_[payload.target]];
	if (received_ns >= payload.sent_realtime_ns) {
		const double rtt = static_cast<double>(received_ns - payload.sent_realtime_ns) / 1000.0;
		if (!result.rtt_us || rtt < *result.rtt_us)
			result.rtt_us = rtt;
	}
	answers_++;
	if (callback_ && answers_ == addresses_.size() * kEchoes)
		finish();
}

void EchoProber::finish()
{
	loop_.cancel(send_timer_);
	loop_.cancel(end_timer_);
	send_timer_ = end_timer_ = 0;
	close_sockets();
	const Callback callback = std::exchange(callback_, nullptr);
	if (callback)
		callback(results_);
}

void EchoProber::close_sockets() noexcept
{
	for (Socket &socket : sockets_) {
		if (socket.fd.valid())
			loop_.remove(socket.fd.get());
		socket = Socket{};
	}
}

} // namespace stepccl::agent
