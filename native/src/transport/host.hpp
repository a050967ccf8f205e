// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stepccl::transport {

// Equal for processes that can share memory through /dev/shm and reach each other's local sockets: same boot, same
// /dev/shm mount, same network namespace, same user. 0 where one of these can't be read or /dev/shm can't be written:
// shares with nobody. Processes with different `distinct` never are.
[[nodiscard]] std::uint64_t host_identity(const std::string& distinct = {});

// How many CPUs this process may run on.
[[nodiscard]] std::size_t available_cpus() noexcept;

}  // namespace stepccl::transport
