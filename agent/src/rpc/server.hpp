// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/fd.hpp"
#include "base/loop.hpp"
#include "rpc/client.hpp"

namespace stepccl::agent {

/// The Unix socket that consoles attach to.
class Server {
public:
	static constexpr std::size_t kMaxClients = 64;

	Server(EventLoop &loop, std::string socket_path, Client::LineHandler on_line);
	Server(const Server &) = delete;
	Server &operator=(const Server &) = delete;
	~Server();

	/// Takes the socket's lock, replaces a stale socket and listens (0660, group stepccl where the
	/// daemon may set it). Throws std::runtime_error with a sentence: another daemon lives, or the path
	/// can't be used.
	void listen();

	/// Closes every connection after its output and stops listening.
	void shut_down();

	[[nodiscard]] std::size_t client_count() const noexcept { return clients_.size(); }

private:
	void accept_some();
	void client_closed(std::uint64_t id);

	EventLoop &loop_;
	std::string path_;
	Client::LineHandler on_line_;
	UniqueFd lock_;
	UniqueFd listener_;
	std::unordered_map<std::uint64_t, std::shared_ptr<Client>> clients_;
	std::uint64_t next_id_ = 1;
};

} // namespace stepccl::agent
