// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.hpp"
#include "base/loop.hpp"

namespace stepccl::agent {

struct ProcessSpec {
	std::string path;
	std::vector<std::string> arguments;   ///< without argv[0]
	std::vector<std::string> environment; ///< NAME=value, the whole of it
	bool with_stdin = false;              ///< a pipe; /dev/null where false
	bool with_stderr = false;             ///< a pipe; /dev/null where false
};

/// A child in its own process group, with the daemon's ends of its pipes (non-blocking).
struct Process {
	pid_t pid = -1;
	UniqueFd stdin_pipe;
	UniqueFd stdout_pipe;
	UniqueFd stderr_pipe;
	int error = 0; ///< errno of what kept it from starting; pid is then -1
};

/// Starts an executable. The child gets SIGKILL when the daemon dies, default signal handling, none of
/// the daemon's descriptors, and of its ambient capabilities CAP_IPC_LOCK only. When this returns without
/// an error, the executable has been loaded.
Process start_process(const ProcessSpec &spec);

/// How a child ended.
struct ExitStatus {
	int code = 0;   ///< valid where signal is 0
	int signal = 0; ///< what killed it
};

/// "SIGSEGV" and the like.
std::string signal_name(int signal);

/// Waits for children through SIGCHLD (which must be blocked in the process). When one ends, what is left
/// of its process group is killed before its id can be used again.
class ProcessReaper {
public:
	explicit ProcessReaper(EventLoop &loop);
	ProcessReaper(const ProcessReaper &) = delete;
	ProcessReaper &operator=(const ProcessReaper &) = delete;
	~ProcessReaper();

	void watch(pid_t pid, std::function<void(ExitStatus)> ended);
	void forget(pid_t pid) { children_[pid] = nullptr; }

private:
	void on_signal();

	EventLoop &loop_;
	UniqueFd signals_;
	std::unordered_map<pid_t, std::function<void(ExitStatus)>> children_;
};

} // namespace stepccl::agent
