// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace stepccl::agent {

/// One request to the daemon from the command line: prints its result as JSON. Returns an exit status: 0, 1 with a
/// sentence on standard error when the daemon can't be reached or answers with an error, 2 when `params` is no JSON object.
int run_call(const std::string &socket_path, const std::string &method, const std::string &params);

} // namespace stepccl::agent
