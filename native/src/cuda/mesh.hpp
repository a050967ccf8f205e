// SPDX-License-Identifier: Apache-2.0
// Local sockets between all ranks of one host: small exchanges of bytes and file descriptors beside the communicator.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/fd.hpp"

namespace stepccl::cuda {

struct Contribution {
  std::vector<std::byte> bytes;
  std::vector<Fd> descriptors;
};

class Mesh {
 public:
  // Shares `mine` (at most 4 KiB) with every rank; used once, to tell each other where the sockets are.
  using AllGather = std::function<Expected<std::vector<std::vector<std::byte>>>(std::span<const std::byte> mine)>;

  [[nodiscard]] static Expected<Mesh> connect(std::uint32_t rank, std::uint32_t world, std::uint32_t timeout_ms, const AllGather& all_gather);

  // Over sockets that are connected already, by rank; the own place holds none.
  [[nodiscard]] static Mesh over(std::uint32_t rank, std::vector<Fd> sockets);

  // Gives to every rank what every rank gave. `keep_waiting` is asked every 20 ms; an error ends the wait.
  [[nodiscard]] Expected<std::vector<Contribution>> exchange(std::span<const std::byte> bytes, std::span<const int> descriptors, std::uint32_t timeout_ms,
                                                             const std::function<Status()>& keep_waiting) const;

  // Whether `peer` has sent something, or closed, within `timeout_ms`.
  [[nodiscard]] bool wait_readable(std::uint32_t peer, std::uint32_t timeout_ms) const noexcept;

 private:
  std::uint32_t rank_ = 0;
  std::vector<Fd> sockets_;  // by rank; own: none
};

}  // namespace stepccl::cuda
