// SPDX-License-Identifier: Apache-2.0
#include "rpc/server.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/file.hpp"
#include "base/log.hpp"
#include "rpc/errors.hpp"
#include "rpc/request.hpp"

namespace stepccl::agent {

namespace {

[[noreturn]] void refuse(const std::string &what, int error)
{
	throw std::runtime_error(what + " (" + errno_text(error) + ")");
}

} // namespace

Server::Server(EventLoop &loop, std::string socket_path, Client::LineHandler on_line)
	: loop_(loop), path_(std::move(socket_path)), on_line_(std::move(on_line))
{
}

Server::~Server()
{
	if (!listener_.valid())
		return;
	loop_.remove(listener_.get());
	(void)::unlink(path_.c_str());
}

void Server::listen()
{
	// The socket gets its name when it already listens: whoever sees it can connect, and one that a killed
	// daemon left is replaced without a gap.
	const std::string fresh = path_ + ".new";
	sockaddr_un address{};
	address.sun_family = AF_UNIX;
	if (fresh.size() >= sizeof address.sun_path)
		throw std::runtime_error("the socket's path is longer than " +
					 std::to_string(sizeof address.sun_path - 5) + " bytes: " + path_);
	std::memcpy(address.sun_path, fresh.c_str(), fresh.size() + 1);

	const std::string lock_path = path_ + ".lock";
	lock_.reset(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (!lock_.valid())
		refuse("the lock " + lock_path + " could not be opened", errno);
	if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
		if (errno == EWOULDBLOCK)
			throw std::runtime_error("another stepccld already serves " + path_);
		refuse("the lock " + lock_path + " could not be taken", errno);
	}

	struct stat info{};
	const bool exists = ::lstat(path_.c_str(), &info) == 0;
	if (exists && !S_ISSOCK(info.st_mode))
		throw std::runtime_error(path_ + " exists and is not a socket");
	if (::unlink(fresh.c_str()) != 0 && errno != ENOENT)
		refuse("the socket " + fresh + " could not be removed", errno);
	UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (!fd.valid())
		refuse("no socket could be made", errno);
	const mode_t old_mask = ::umask(0117);
	const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address);
	const int bind_error = errno;
	(void)::umask(old_mask);
	if (bound != 0)
		refuse("the socket " + fresh + " could not be made", bind_error);
	if (::geteuid() == 0) {
		const auto group = group_id("stepccl");
		if (group && ::lchown(fresh.c_str(), static_cast<uid_t>(-1), *group) != 0)
			log_warn({{"event", "socket_group_not_set"}, {"error", errno_text(errno)}});
	}
	if (::listen(fd.get(), 64) != 0)
		refuse("the socket " + fresh + " can't be listened on", errno);
	if (::rename(fresh.c_str(), path_.c_str()) != 0)
		refuse("the socket " + path_ + " could not be put in place", errno);
	if (exists)
		log_info({{"event", "stale_socket_replaced"}, {"socket", path_}});
	listener_ = std::move(fd);
	loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); });
}

void Server::accept_some()
{
	UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (!fd.valid()) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			// The connection stays in the queue: wait instead of spinning on it.
			log_warn({{"event", "accept_failed"}, {"error", errno_text(errno)}});
			loop_.modify(listener_.get(), 0);
			loop_.after(std::chrono::milliseconds(500), [this] {
				if (listener_.valid())
					loop_.modify(listener_.get(), EPOLLIN);
			});
		}
		return;
	}
	ucred peer{};
	socklen_t length = sizeof peer;
	(void)::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
	const std::uint64_t id = next_id_++;
	auto client = std::make_shared<Client>(loop_, std::move(fd), id, on_line_,
					       [this](std::uint64_t closed) { client_closed(closed); });
	const bool full = clients_.size() >= kMaxClients;
	clients_.emplace(id, client);
	client->start();
	log_info({{"event", "client_attached"}, {"client", id}, {"uid", peer.uid}, {"pid", peer.pid}});
	if (full) {
		client->send_line(error_line(
			nullptr, RpcError(kServerError, "A105",
					  "Already " + std::to_string(kMaxClients) + " consoles are attached to this node.",
					  "Close one of them and connect again.")));
		client->close_after_output();
	}
}

void Server::client_closed(std::uint64_t id)
{
	clients_.erase(id);
	// A console's buffers are most of what the daemon ever holds: give them back to the system.
	(void)::malloc_trim(0);
}

void Server::shut_down()
{
	if (listener_.valid()) {
		loop_.remove(listener_.get());
		listener_.reset();
		(void)::unlink(path_.c_str());
	}
	const auto clients = clients_;
	for (const auto &[id, client] : clients)
		client->close_after_output();
}

} // namespace stepccl::agent
