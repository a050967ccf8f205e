// SPDX-License-Identifier: Apache-2.0
// The pool's memory on every GPU: own extents, and those of the peers mapped beside them at addresses that never change.
#pragma once

#include <map>
#include <vector>

#include "core/fd.hpp"
#include "cuda/driver.hpp"
#include "memory/pool_map.hpp"

namespace stepccl::cuda {

class Arena {
 public:
  Arena(const Driver& driver, int device, std::uint32_t rank, std::uint32_t world) : driver_(driver), device_(device), rank_(rank), ranks_(world) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Reserves address ranges of `address_bytes` for every rank's part.
  [[nodiscard]] Status reserve(std::uint64_t address_bytes);

  // Backs an extent of the own part and maps it. The descriptor is for the peers.
  [[nodiscard]] Expected<Fd> create(const memory::Extent& extent);
  // Maps a peer's extent.
  [[nodiscard]] Status import(std::uint32_t peer, const memory::Extent& extent, const Fd& descriptor);
  // Unmaps and lets go. Whoever else has it mapped keeps the memory alive.
  void drop(std::uint32_t rank, const memory::Extent& extent);

  // Own part, for compaction: backs `extent` at a place of its own, so that its contents can be copied before it is put
  // to its address. The extents that are there now must be dropped between the two.
  struct Fresh {
    memory::Extent extent;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr scratch = 0;  // where it is mapped meanwhile
    Fd descriptor;
  };
  [[nodiscard]] Expected<Fresh> create_aside(const memory::Extent& extent);
  [[nodiscard]] Status put_in_place(Fresh& fresh);
  void discard(Fresh& fresh);

  [[nodiscard]] CUdeviceptr base(std::uint32_t rank) const noexcept { return ranks_[rank].base; }
  [[nodiscard]] std::uint64_t granule() const noexcept { return granule_; }
  [[nodiscard]] std::uint64_t address_bytes() const noexcept { return address_bytes_; }

  // What this kind of memory needs of the device; 0 where VMM memory can't be shared by descriptor.
  [[nodiscard]] static Expected<std::uint64_t> granule_of(const Driver& driver, int device);

 private:
  struct Part {
    CUdeviceptr base = 0;
    std::map<std::uint64_t, std::pair<std::uint64_t, CUmemGenericAllocationHandle>> mapped;  // offset -> bytes, handle
  };
  [[nodiscard]] Status map(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle);

  const Driver& driver_;
  const int device_;
  const std::uint32_t rank_;
  std::vector<Part> ranks_;
  std::uint64_t address_bytes_ = 0;
  std::uint64_t granule_ = 0;
};

}  // namespace stepccl::cuda
