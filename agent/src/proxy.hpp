// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace stepccl::agent {

/// Copies between two descriptors and a stream socket until the socket's side is over; the end of `in` becomes
/// a half-close. Returns an exit status: 0, or 1 with a sentence on standard error.
int run_proxy(const std::string &socket_path, int in, int out);

} // namespace stepccl::agent
