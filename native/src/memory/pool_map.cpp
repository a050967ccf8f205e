// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_map.hpp"

#include <algorithm>

namespace stepccl::memory {
namespace {

constexpr std::uint64_t down(std::uint64_t value, std::uint64_t unit) noexcept { return value / unit * unit; }
constexpr std::uint64_t up(std::uint64_t value, std::uint64_t unit) noexcept { return down(value + unit - 1, unit); }

}  // namespace

std::vector<Extent> PoolMap::free_ranges() const {
  std::vector<Extent> ranges;
  std::uint64_t at = 0;
  for (const auto& [offset, bytes] : used_) {
    if (offset > at) ranges.push_back({at, offset - at});
    at = offset + bytes;
  }
  if (at < address_bytes_) ranges.push_back({at, address_bytes_ - at});
  return ranges;
}

std::vector<Extent> PoolMap::runs(std::uint64_t begin, std::uint64_t end, bool backed) const {
  std::vector<Extent> found;
  std::uint64_t at = begin;
  auto next = extents_.upper_bound(begin);
  if (next != extents_.begin() && std::prev(next)->first + std::prev(next)->second > begin) --next;
  while (at < end) {
    const bool inside = next != extents_.end() && next->first <= at;
    const std::uint64_t stop = std::min(end, inside ? next->first + next->second : next != extents_.end() ? next->first : end);
    if (inside == backed && stop > at) {
      if (!found.empty() && found.back().offset + found.back().bytes == at) found.back().bytes += stop - at;
      else found.push_back({at, stop - at});
    }
    at = stop;
    if (inside) ++next;
  }
  return found;
}

std::optional<Placement> PoolMap::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > address_bytes_) return std::nullopt;
  bytes = up(bytes, kAlignment);
  const std::uint64_t alignment = bytes >= granule_ ? granule_ : kAlignment;
  std::optional<Placement> best;
  std::uint64_t best_new = 0;
  std::uint64_t best_range = 0;
  for (const Extent& range : free_ranges()) {
    // The start of the range, and where physical memory begins inside it.
    std::vector<std::uint64_t> starts{up(range.offset, alignment)};
    for (const Extent& run : runs(down(range.offset, granule_), up(range.offset + range.bytes, granule_), true)) {
      if (run.offset > range.offset) starts.push_back(run.offset);
    }
    for (const std::uint64_t start : starts) {
      if (start + bytes > range.offset + range.bytes) continue;
      auto missing = runs(down(start, granule_), up(start + bytes, granule_), false);
      std::uint64_t fresh = 0;
      for (const Extent& run : missing) fresh += run.bytes;
      if (held_bytes_ + fresh > capacity_bytes_) continue;
      if (best && (fresh > best_new || (fresh == best_new && range.bytes >= best_range))) continue;
      best = Placement{start, std::move(missing)};
      best_new = fresh;
      best_range = range.bytes;
    }
  }
  if (!best) return std::nullopt;
  used_.emplace(best->offset, bytes);
  used_bytes_ += bytes;
  for (const Extent& extent : best->grow) {
    extents_.emplace(extent.offset, extent.bytes);
    held_bytes_ += extent.bytes;
  }
  return best;
}

bool PoolMap::free(std::uint64_t offset) {
  const auto found = used_.find(offset);
  if (found == used_.end()) return false;
  used_bytes_ -= found->second;
  used_.erase(found);
  return true;
}

std::uint64_t PoolMap::buffer_bytes(std::uint64_t offset) const {
  const auto found = used_.find(offset);
  return found == used_.end() ? 0 : found->second;
}

void PoolMap::forget(const Extent& extent) {
  const auto found = extents_.find(extent.offset);
  if (found == extents_.end() || found->second != extent.bytes) return;
  held_bytes_ -= found->second;
  extents_.erase(found);
}

Compaction PoolMap::plan_compaction(std::uint64_t move_limit) const {
  Compaction plan;
  for (const auto& [offset, bytes] : extents_) {
    std::vector<Extent> kept;  // granules of this extent that a buffer touches
    std::uint64_t kept_bytes = 0;
    auto buffer = used_.upper_bound(offset);
    if (buffer != used_.begin() && std::prev(buffer)->first + std::prev(buffer)->second > offset) --buffer;
    for (; buffer != used_.end() && buffer->first < offset + bytes; ++buffer) {
      std::uint64_t begin = std::max(offset, down(buffer->first, granule_));
      const std::uint64_t end = std::min(offset + bytes, up(buffer->first + buffer->second, granule_));
      if (!kept.empty()) begin = std::max(begin, kept.back().offset + kept.back().bytes);
      if (begin >= end) continue;
      kept_bytes += end - begin;
      if (!kept.empty() && kept.back().offset + kept.back().bytes == begin) kept.back().bytes += end - begin;
      else kept.push_back({begin, end - begin});
    }
    if (kept_bytes == bytes) continue;
    if (kept_bytes != 0 && plan.moved_bytes + kept_bytes > move_limit) continue;
    plan.drop.push_back({offset, bytes});
    plan.create.insert(plan.create.end(), kept.begin(), kept.end());
    plan.moved_bytes += kept_bytes;
    plan.released_bytes += bytes - kept_bytes;
  }
  return plan;
}

void PoolMap::apply(const Compaction& plan) {
  for (const Extent& extent : plan.drop) forget(extent);
  for (const Extent& extent : plan.create) {
    extents_.emplace(extent.offset, extent.bytes);
    held_bytes_ += extent.bytes;
  }
}

std::uint32_t PoolMap::fragmentation_permille() const noexcept {
  return held_bytes_ == 0 ? 0 : static_cast<std::uint32_t>((held_bytes_ - used_bytes_) * 1000 / held_bytes_);
}

std::uint64_t PoolMap::largest_free_bytes() const {
  std::uint64_t largest = 0;
  for (const Extent& range : free_ranges()) {
    for (const Extent& run : runs(down(range.offset, granule_), up(range.offset + range.bytes, granule_), true)) {
      const std::uint64_t begin = std::max(run.offset, range.offset);
      const std::uint64_t end = std::min(run.offset + run.bytes, range.offset + range.bytes);
      if (end > begin) largest = std::max(largest, end - begin);
    }
  }
  return largest;
}

std::vector<BackedPart> PoolMap::backed_parts() const {
  std::vector<BackedPart> parts;
  for (const auto& [offset, bytes] : used_) parts.push_back({{offset, bytes}, offset});
  for (const Extent& range : free_ranges()) {
    for (const Extent& run : runs(down(range.offset, granule_), up(range.offset + range.bytes, granule_), true)) {
      const std::uint64_t begin = std::max(run.offset, range.offset);
      const std::uint64_t end = std::min(run.offset + run.bytes, range.offset + range.bytes);
      if (end > begin) parts.push_back({{begin, end - begin}, std::nullopt});
    }
  }
  std::sort(parts.begin(), parts.end(), [](const BackedPart& a, const BackedPart& b) { return a.extent.offset < b.extent.offset; });
  return parts;
}

std::vector<Extent> PoolMap::extents() const {
  std::vector<Extent> all;
  for (const auto& [offset, bytes] : extents_) all.push_back({offset, bytes});
  return all;
}

}  // namespace stepccl::memory
