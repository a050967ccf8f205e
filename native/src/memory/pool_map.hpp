// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of a pool: where buffers lie in a range of addresses, and which of the addresses have physical memory.
// Knows nothing of a device, so all of it runs in tests.
//
// Addresses are plentiful (the range is reserved, not backed), physical memory isn't. It comes in extents: what one
// handle of the driver backs, mapped and released as a whole. Buffers never move; a hole between buffers costs
// physical memory as long as its extent also backs a buffer. Compaction replaces such an extent by smaller ones that
// back exactly the granules in use, at the same addresses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace stepccl::memory {

struct Extent {
  std::uint64_t offset = 0;  // bytes, multiples of the granule
  std::uint64_t bytes = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// A part of the range with physical memory: one buffer's (buffer = where that begins) or nobody's.
struct BackedPart {
  Extent extent;
  std::optional<std::uint64_t> buffer;
};

struct Placement {
  std::uint64_t offset = 0;
  std::vector<Extent> grow;  // to be backed before the buffer is used
};

// What one epoch does: all of `drop` are released; `create` are backed anew with the contents kept.
struct Compaction {
  std::vector<Extent> drop;
  std::vector<Extent> create;
  std::uint64_t moved_bytes = 0;
  std::uint64_t released_bytes = 0;
  [[nodiscard]] bool empty() const noexcept { return drop.empty(); }
};

class PoolMap {
 public:
  static constexpr std::uint64_t kAlignment = 512;

  // granule: a power of two; the others multiples of it. capacity bounds the physical memory.
  PoolMap(std::uint64_t address_bytes, std::uint64_t capacity_bytes, std::uint64_t granule_bytes)
      : address_bytes_(address_bytes), capacity_bytes_(capacity_bytes), granule_(granule_bytes) {}

  // Finds a place that needs the least new physical memory, then the tightest. Nothing when the capacity or the range
  // is exhausted. The buffer counts as used at once; give it back with free() if backing it fails (and grow with
  // forget()).
  [[nodiscard]] std::optional<Placement> allocate(std::uint64_t bytes);
  // False where no buffer begins.
  bool free(std::uint64_t offset);
  // Bytes of the buffer that begins at `offset`, 0 where none does.
  [[nodiscard]] std::uint64_t buffer_bytes(std::uint64_t offset) const;
  // An extent whose backing failed, or that was released.
  void forget(const Extent& extent);

  // At most about `move_limit` bytes are copied; extents that back no buffer are always dropped.
  [[nodiscard]] Compaction plan_compaction(std::uint64_t move_limit) const;
  // The plan was carried out.
  void apply(const Compaction& plan);
  // Below what is held now it only keeps the pool from growing.
  void set_capacity(std::uint64_t capacity_bytes) noexcept { capacity_bytes_ = capacity_bytes; }

  [[nodiscard]] std::uint64_t granule() const noexcept { return granule_; }
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::uint64_t buffers() const noexcept { return used_.size(); }
  [[nodiscard]] std::uint32_t fragmentation_permille() const noexcept;
  [[nodiscard]] std::uint64_t largest_free_bytes() const;
  [[nodiscard]] std::vector<Extent> extents() const;
  // What lies where, in the order of the addresses.
  [[nodiscard]] std::vector<BackedPart> backed_parts() const;

 private:
  // Runs of granules inside [begin, end) that have (or lack) physical memory.
  [[nodiscard]] std::vector<Extent> runs(std::uint64_t begin, std::uint64_t end, bool backed) const;
  [[nodiscard]] std::vector<Extent> free_ranges() const;

  const std::uint64_t address_bytes_;
  std::uint64_t capacity_bytes_;
  const std::uint64_t granule_;
  std::map<std::uint64_t, std::uint64_t> used_;     // offset -> bytes
  std::map<std::uint64_t, std::uint64_t> extents_;  // offset -> bytes
  std::uint64_t held_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace stepccl::memory
