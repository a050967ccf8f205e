// SPDX-License-Identifier: Apache-2.0
#include "proxy.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace stepccl::agent {

namespace {

int complain(const std::string &what, int error)
{
	std::fprintf(stderr, "stepccld proxy: %s: %s\n", what.c_str(), errno_text(error).c_str());
	return 1;
}

/// One direction's bytes on their way.
struct Flow {
	std::array<char, 64 * 1024> buffer;
	std::size_t begin = 0;
	std::size_t end = 0;
	bool input_over = false;
	bool closed = false; ///< the end has been passed on

	[[nodiscard]] bool empty() const noexcept { return begin == end; }
	[[nodiscard]] bool wants_input() const noexcept { return !input_over && empty(); }
};

/// Returns errno, 0 when there is nothing to complain of.
int fill(Flow &flow, int fd)
{
	const ssize_t got = ::read(fd, flow.buffer.data(), flow.buffer.size());
	if (got < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : errno;
	flow.input_over = got == 0;
	flow.begin = 0;
	flow.end = static_cast<std::size_t>(got);
	return 0;
}

int drain(Flow &flow, int fd)
{
	const ssize_t put = ::write(fd, flow.buffer.data() + flow.begin, flow.end - flow.begin);
	if (put < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : errno;
	flow.begin += static_cast<std::size_t>(put);
	return 0;
}

} // namespace

int run_proxy(const std::string &socket_path, int in, int out)
{
	sockaddr_un address{};
	address.sun_family = AF_UNIX;
	if (socket_path.size() >= sizeof address.sun_path)
		return complain(socket_path, ENAMETOOLONG);
	std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
	const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (!socket.valid())
		return complain("no socket", errno);
	if (::connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
		return complain(socket_path, errno);

	Flow up, down;
	while (!(down.input_over && down.empty())) {
		pollfd fds[4] = {
			{up.wants_input() ? in : -1, POLLIN, 0},
			{!up.empty() ? socket.get() : -1, POLLOUT, 0},
			{down.wants_input() ? socket.get() : -1, POLLIN, 0},
			{!down.empty() ? out : -1, POLLOUT, 0},
		};
		if (::poll(fds, 4, -1) < 0) {
			if (errno == EINTR)
				continue;
			return complain("poll", errno);
		}
		if (fds[0].revents != 0) {
			if (const int error = fill(up, in))
				return complain("standard input", error);
		}
		// The daemon's end of the socket may be closed: what it said before is still to be read.
		if (fds[1].revents != 0 && drain(up, socket.get()) != 0) {
			up.begin = up.end = 0;
			up.input_over = true;
		}
		if (fds[2].revents != 0) {
			const int error = fill(down, socket.get());
			if (error == ECONNRESET)
				down.input_over = true;
			else if (error != 0)
				return complain(socket_path, error);
		}
		if (fds[3].revents != 0) {
			if (const int error = drain(down, out))
				return complain("standard output", error);
		}
		if (up.input_over && up.empty() && !up.closed) {
			up.closed = true;
			(void)::shutdown(socket.get(), SHUT_WR);
		}
	}
	return 0;
}

} // namespace stepccl::agent
