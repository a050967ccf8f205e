// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace stepccl::agent {

/// Tells systemd a state ("READY=1") over NOTIFY_SOCKET, as sd_notify(3) describes its protocol. Does nothing
/// where there is no such socket. Returns errno, 0 when sent or not wanted.
int notify_systemd(std::string_view state) noexcept;

/// How often the service manager wants WATCHDOG=1, halved; nothing where it doesn't watch this process.
std::optional<std::chrono::milliseconds> watchdog_interval() noexcept;

} // namespace stepccl::agent
