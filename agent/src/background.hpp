// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/fd.hpp"

namespace stepccl::agent {

/// Takes the daemon to the background where no service manager holds it: the command returns when the daemon
/// serves, or with its error.
class Background {
public:
	enum class Side { kParent, kChild };

	/// Forks. The child leads a session of its own and keeps standard error until it is ready.
	Side enter();

	/// In the parent: waits for the child's word and returns the command's exit status.
	int wait_until_ready();

	/// In the child: lets the parent go and sends standard error to the log file. Does nothing in the foreground.
	void ready(const std::string &log_file);

private:
	UniqueFd word_;
};

} // namespace stepccl::agent
