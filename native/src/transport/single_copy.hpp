// SPDX-License-Identifier: Apache-2.0
// One copy between the memories of two processes of a node, without a buffer in between.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace stepccl::transport {

// A piece of a process's memory as its peers name it.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint64_t key = 0;  // of a registration; 0 where the way needs none
};

class SingleCopy {
 public:
  virtual ~SingleCopy() = default;
  // Makes own memory readable for the peers.
  [[nodiscard]] virtual Expected<RemoteMemory> expose(std::span<const std::byte> memory) = 0;
  // Copies `into.size()` bytes at `offset` of a peer's memory. PEER_CLOSED where its process has ended.
  [[nodiscard]] virtual Status read(std::uint32_t peer, const RemoteMemory& memory, std::size_t offset, std::span<std::byte> into) = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

// Linux's cross-memory attach (process_vm_readv): allowed between processes of one user where no ptrace restriction
// stands against it. `pids` by rank.
[[nodiscard]] std::unique_ptr<SingleCopy> make_cross_memory_attach(std::vector<pid_t> pids);

}  // namespace stepccl::transport
