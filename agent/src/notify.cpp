// SPDX-License-Identifier: Apache-2.0
#include "notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace stepccl::agent {

int notify_systemd(std::string_view state) noexcept
{
	const char *path = std::getenv("NOTIFY_SOCKET");
	if (!path || *path == '\0')
		return 0;
	sockaddr_un address{};
	address.sun_family = AF_UNIX;
	const std::size_t length = std::strlen(path);
	if (length >= sizeof address.sun_path)
		return ENAMETOOLONG;
	std::memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0'; // An abstract name.
	const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (!fd.valid())
		return errno;
	const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
	if (::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&address), size) < 0)
		return errno;
	return 0;
}

std::optional<std::chrono::milliseconds> watchdog_interval() noexcept
{
	const char *usec = std::getenv("WATCHDOG_USEC");
	const char *pid = std::getenv("WATCHDOG_PID");
	if (!usec)
		return std::nullopt;
	if (pid && parse_u64(pid) != static_cast<std::uint64_t>(::getpid()))
		return std::nullopt;
	const auto value = parse_u64(usec);
	if (!value || *value < 2000)
		return std::nullopt;
	return std::chrono::milliseconds(*value / 2000);
}

} // namespace stepccl::agent
