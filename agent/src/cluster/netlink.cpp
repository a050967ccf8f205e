// SPDX-License-Identifier: Apache-2.0
#include "cluster/netlink.hpp"

#include <arpa/inet.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace stepccl::agent {

namespace {

struct BinaryAddress {
	int family = AF_UNSPEC;
	std::size_t bytes = 0;
	std::array<unsigned char, 16> data{};
};

BinaryAddress to_binary(const std::string &text)
{
	BinaryAddress out;
	if (::inet_pton(AF_INET, text.c_str(), out.data.data()) == 1) {
		out.family = AF_INET;
		out.bytes = 4;
	} else if (::inet_pton(AF_INET6, text.c_str(), out.data.data()) == 1) {
		out.family = AF_INET6;
		out.bytes = 16;
	}
	return out;
}

std::optional<std::string> to_text(int family, std::span<const std::byte> data)
{
	if (data.size() != (family == AF_INET ? 4u : 16u))
		return std::nullopt;
	char text[INET6_ADDRSTRLEN];
	if (!::inet_ntop(family, data.data(), text, sizeof text))
		return std::nullopt;
	return std::string(text);
}

std::string interface_name(int index)
{
	char name[IF_NAMESIZE];
	return ::if_indextoname(static_cast<unsigned>(index), name) ? name : "";
}

/// Calls take(type, payload) for each attribute behind a message's fixed part.
template <typename Fixed, typename Take>
void for_each_attribute(const nlmsghdr &message, Take &&take)
{
	const auto *begin = reinterpret_cast<const std::byte *>(&message);
	std::size_t at = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(Fixed)));
	while (at + sizeof(rtattr) <= message.nlmsg_len) {
		rtattr attribute;
		std::memcpy(&attribute, begin + at, sizeof attribute);
		if (attribute.rta_len < sizeof(rtattr) || at + attribute.rta_len > message.nlmsg_len)
			return;
		take(attribute.rta_type & NLA_TYPE_MASK,
		     std::span<const std::byte>(begin + at + RTA_LENGTH(0), attribute.rta_len - RTA_LENGTH(0)));
		at += RTA_ALIGN(attribute.rta_len);
	}
}

template <typename Fixed>
const Fixed *fixed_part(const nlmsghdr &message)
{
	return message.nlmsg_len >= NLMSG_LENGTH(sizeof(Fixed))
		       ? reinterpret_cast<const Fixed *>(reinterpret_cast<const std::byte *>(&message) + NLMSG_HDRLEN)
		       : nullptr;
}

int as_int(std::span<const std::byte> data)
{
	int value = 0;
	if (data.size() == sizeof value)
		std::memcpy(&value, data.data(), sizeof value);
	return value;
}

template <typename Fixed>
struct AddressRequest {
	nlmsghdr header{};
	Fixed fixed{};
	std::array<std::byte, 64> room{};

	void add(unsigned short type, std::span<const unsigned char> data)
	{
		const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(data.size())), type};
		auto *at = reinterpret_cast<std::byte *>(&header) + NLMSG_ALIGN(header.nlmsg_len);
		std::memcpy(at, &attribute, sizeof attribute);
		std::memcpy(at + RTA_LENGTH(0), data.data(), data.size());
		header.nlmsg_len = NLMSG_ALIGN(header.nlmsg_len) + RTA_ALIGN(attribute.rta_len);
	}
};

} // namespace

int Netlink::ask(void *request, std::size_t bytes, const std::function<void(const nlmsghdr &)> &take)
{
	const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
	if (!fd.valid())
		return errno;
	const timeval limit{1, 0};
	(void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	sockaddr_nl kernel{};
	kernel.nl_family = AF_NETLINK;
	if (::sendto(fd.get(), request, bytes, 0, reinterpret_cast<const sockaddr *>(&kernel), sizeof kernel) < 0)
		return errno;
	const bool dump = (static_cast<const nlmsghdr *>(request)->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
	alignas(nlmsghdr) std::array<std::byte, 32 * 1024> buffer;
	for (;;) {
		sockaddr_nl from{};
		socklen_t from_length = sizeof from;
		const ssize_t got = ::recvfrom(fd.get(), buffer.data(), buffer.size(), 0,
					       reinterpret_cast<sockaddr *>(&from), &from_length);
		if (got < 0) {
			if (errno == EINTR)
				continue;
			return errno == EAGAIN ? ETIMEDOUT : errno;
		}
		if (from.nl_pid != 0)
			continue; // Not from the kernel.
		auto left = static_cast<std::size_t>(got);
		for (std::size_t at = 0; left - at >= sizeof(nlmsghdr);) {
			const auto &message = *reinterpret_cast<const nlmsghdr *>(buffer.data() + at);
			if (message.nlmsg_len < sizeof(nlmsghdr) || message.nlmsg_len > left - at)
				return EPROTO;
			if (message.nlmsg_type == NLMSG_DONE)
				return 0;
			if (message.nlmsg_type == NLMSG_ERROR) {
				const auto *error = fixed_part<nlmsgerr>(message);
				return error ? -error->error : EPROTO;
			}
			take(message);
			if (!dump)
				return 0;
			at += NLMSG_ALIGN(message.nlmsg_len);
			if (at >= left)
				break;
		}
	}
}

std::vector<InterfaceAddress> Netlink::addresses() const
{
	AddressRequest<ifaddrmsg> request;
	request.header.nlmsg_len = NLMSG_LENGTH(sizeof(ifaddrmsg));
	request.header.nlmsg_type = RTM_GETADDR;
	request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	std::vector<InterfaceAddress> out;
	(void)ask(&request, request.header.nlmsg_len, [&](const nlmsghdr &message) {
		const auto *info = fixed_part<ifaddrmsg>(message);
		if (!info || message.nlmsg_type != RTM_NEWADDR || (info->ifa_family != AF_INET && info->ifa_family != AF_INET6))
			return;
		InterfaceAddress address;
		address.ifindex = static_cast<int>(info->ifa_index);
		address.family = info->ifa_family == AF_INET ? 4 : 6;
		address.prefix = info->ifa_prefixlen;
		for_each_attribute<ifaddrmsg>(message, [&](int type, std::span<const std::byte> data) {
			// On a point-to-point link IFA_ADDRESS is the other end.
			if (type == IFA_LOCAL || (type == IFA_ADDRESS && address.address.empty()))
				address.address = to_text(info->ifa_family, data).value_or("");
		});
		address.netdev = interface_name(address.ifindex);
		if (!address.address.empty() && !address.netdev.empty())
			out.push_back(std::move(address));
	});
	return out;
}

RouteLookup Netlink::route_to(const std::string &address) const
{
	RouteLookup out;
	const BinaryAddress target = to_binary(address);
	if (target.family == AF_UNSPEC) {
		out.error = EINVAL;
		return out;
	}
	AddressRequest<rtmsg> request;
	request.header.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg));
	request.header.nlmsg_type = RTM_GETROUTE;
	request.header.nlmsg_flags = NLM_F_REQUEST;
	request.fixed.rtm_family = static_cast<unsigned char>(target.family);
	request.fixed.rtm_dst_len = static_cast<unsigned char>(target.bytes * 8);
	request.add(RTA_DST, {target.data.data(), target.bytes});
	unsigned char kind = RTN_UNSPEC;
	out.error = ask(&request, request.header.nlmsg_len, [&](const nlmsghdr &message) {
		const auto *info = fixed_part<rtmsg>(message);
		if (!info || message.nlmsg_type != RTM_NEWROUTE)
			return;
		kind = info->rtm_type;
		for_each_attribute<rtmsg>(message, [&](int type, std::span<const std::byte> data) {
			if (type == RTA_OIF)
				out.ifindex = as_int(data);
			else if (type == RTA_PREFSRC)
				out.local_address = to_text(target.family, data);
		});
	});
	if (out.error != 0)
		return out;
	if (kind == RTN_LOCAL)
		out.to_itself = true;
	else if (kind != RTN_UNICAST || out.ifindex == 0)
		out.error = ENETUNREACH;
	out.netdev = interface_name(out.ifindex);
	return out;
}

NeighbourState Netlink::neighbour(int ifindex, const std::string &address) const
{
	const BinaryAddress target = to_binary(address);
	if (target.family == AF_UNSPEC)
		return NeighbourState::kUnknown;
	AddressRequest<ndmsg> request;
	request.header.nlmsg_len = NLMSG_LENGTH(sizeof(ndmsg));
	request.header.nlmsg_type = RTM_GETNEIGH;
	request.header.nlmsg_flags = NLM_F_REQUEST;
	request.fixed.ndm_family = static_cast<unsigned char>(target.family);
	request.fixed.ndm_ifindex = ifindex;
	request.add(NDA_DST, {target.data.data(), target.bytes});
	NeighbourState state = NeighbourState::kUnknown;
	(void)ask(&request, request.header.nlmsg_len, [&](const nlmsghdr &message) {
		const auto *info = fixed_part<ndmsg>(message);
		if (!info || message.nlmsg_type != RTM_NEWNEIGH)
			return;
		if (info->ndm_state & (NUD_FAILED | NUD_INCOMPLETE))
			state = NeighbourState::kFailed;
		else if (info->ndm_state & (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT))
			state = NeighbourState::kAnswers;
	});
	return state;
}

} // namespace stepccl::agent
