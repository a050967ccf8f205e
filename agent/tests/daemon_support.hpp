// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <span>

#include "base/fd.hpp"
#include "run_support.hpp"
#include "stepccl/telemetry_frame.hpp"

namespace stepccl::agent::testing {

/// A console's end of a connection to a real daemon; blocking, with a time limit.
class Console {
public:
	explicit Console(const std::string &socket_path)
	{
		fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
		sockaddr_un address{};
		address.sun_family = AF_UNIX;
		socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
		REQUIRE(::connect(fd_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
		const timeval limit{10, 0};
		::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	}

	void send(const std::string &text) { REQUIRE(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())); }

	/// Calls a method and returns the whole answer; notifications that come meanwhile are kept.
	json call(const std::string &method, const json &params = json::object())
	{
		const int id = next_id_++;
		send(json{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}}.dump() + "\n");
		for (;;) {
			json message = next();
			if (message.is_null() || message.value("id", json()) == id)
				return message;
			notifications.push_back(std::move(message));
		}
	}
	json result(const std::string &method, const json &params = json::object())
	{
		json answer = call(method, params);
		INFO(answer.dump());
		REQUIRE(answer.contains("result"));
		return answer["result"];
	}
	std::string code(const std::string &method, const json &params = json::object())
	{
		const json answer = call(method, params);
		return answer.contains("error") ? answer["error"]["data"]["code"].get<std::string>() : "none";
	}

	/// The next JSON message; frames on the way are kept. Null where the connection is over.
	json next()
	{
		for (;;) {
			if (buffer_.starts_with('S')) {
				std::size_t total = 0;
				const auto bytes = std::as_bytes(std::span(buffer_));
				if (telemetry::peek_frame_bytes(bytes, total) == telemetry::FrameError::none && buffer_.size() >= total) {
					telemetry::Frame frame;
					REQUIRE(telemetry::decode_frame(bytes.first(total), frame) == telemetry::FrameError::none);
					frames.push_back(std::move(frame));
					buffer_.erase(0, total);
					continue;
				}
			} else if (const auto end = buffer_.find('\n'); end != std::string::npos) {
				json message = json::parse(buffer_.substr(0, end));
				buffer_.erase(0, end + 1);
				return message;
			}
			if (!more())
				return nullptr;
		}
	}
	bool more()
	{
		char bytes[65536];
		const ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
		if (got > 0)
			buffer_.append(bytes, static_cast<std::size_t>(got));
		return got > 0;
	}

	/// Reads events of a run until it ends.
	std::vector<json> events_until_end()
	{
		std::vector<json> events;
		std::vector<json> kept;
		kept.swap(notifications);
		for (json &message : kept)
			events.push_back(message["params"]);
		while (events.empty() || events.back()["event"]["event"] != "run_end") {
			const json message = next();
			REQUIRE_FALSE(message.is_null());
			if (message.contains("method"))
				events.push_back(message["params"]);
		}
		return events;
	}

	std::vector<json> notifications;
	std::vector<telemetry::Frame> frames;

private:
	UniqueFd fd_;
	std::string buffer_;
	int next_id_ = 1;
};

/// The real executable in a temporary folder.
class RealDaemon {
public:
	explicit RealDaemon(const std::string &worker_body = kFakeWorkerStart + kFakeWorkerEnd)
	{
		worker = script(dir, "stepccl-perf", worker_body);
		start();
	}
	RealDaemon(const RealDaemon &) = delete;
	RealDaemon &operator=(const RealDaemon &) = delete;
	~RealDaemon()
	{
		if (pid > 0)
			end(SIGKILL);
	}

	[[nodiscard]] std::string socket() const { return dir / "run/agent.sock"; }
	[[nodiscard]] std::vector<std::string> arguments() const
	{
		return {STEPCCLD_PATH, "--foreground", "--run-dir", dir / "run", "--state-dir", dir / "state", "--perf", worker};
	}

	void start()
	{
		const auto args = arguments();
		pid = spawn(args);
		for (int i = 0; i < 1000 && !fs::exists(socket()); i++)
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		REQUIRE(fs::exists(socket()));
	}

	pid_t spawn(const std::vector<std::string> &args) const
	{
		const pid_t child = ::fork();
		if (child == 0) {
			::prctl(PR_SET_PDEATHSIG, SIGKILL); // A test that crashes leaves no daemon behind.
			std::vector<char *> argv;
			for (const std::string &arg : args)
				argv.push_back(const_cast<char *>(arg.c_str()));
			argv.push_back(nullptr);
			const int log = ::open((dir / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
			::dup2(log, 2);
			::execv(argv[0], argv.data());
			::_exit(127);
		}
		return child;
	}

	/// Sends a signal and returns the wait status.
	int end(int signal)
	{
		::kill(pid, signal);
		int status = 0;
		REQUIRE(::waitpid(pid, &status, 0) == pid);
		pid = -1;
		return status;
	}

	TempDir dir;
	std::string worker;
	pid_t pid = -1;
};

inline bool is_gone(pid_t pid)
{
	const std::string status = take("/proc/" + std::to_string(pid) + "/status");
	return status.empty() || status.find("State:\tZ") != std::string::npos;
}

inline bool wait_until(const std::function<bool()> &condition, std::chrono::milliseconds limit = std::chrono::seconds(10))
{
	const auto end = std::chrono::steady_clock::now() + limit;
	while (!condition()) {
		if (std::chrono::steady_clock::now() > end)
			return false;
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	}
	return true;
}

} // namespace stepccl::agent::testing
