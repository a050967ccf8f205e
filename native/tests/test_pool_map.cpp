// SPDX-License-Identifier: Apache-2.0
// The pool's bookkeeping, over a memory of pages that stands in for a GPU's.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "memory/pool_map.hpp"

using namespace stepccl::memory;

namespace {

constexpr std::uint64_t kGranule = 4096;

// Physical memory by granule of address. Reading or writing an address without memory is an error.
class FakeMemory {
 public:
  void back(const Extent& extent) {
    for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += kGranule) {
      CHECK(pages_.emplace(at, std::vector<std::uint8_t>(kGranule, 0)).second);
    }
  }
  void release(const Extent& extent) {
    for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += kGranule) CHECK(pages_.erase(at) == 1);
  }
  std::uint8_t& at(std::uint64_t address) { return pages_.at(address / kGranule * kGranule)[address % kGranule]; }
  [[nodiscard]] std::uint64_t bytes() const { return pages_.size() * kGranule; }

  // As the GPU does it: copies into new memory, releases the old, maps the new at the same addresses.
  void compact(const Compaction& plan) {
    std::map<std::uint64_t, std::vector<std::uint8_t>> fresh;
    for (const Extent& extent : plan.create) {
      for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += kGranule) fresh[at] = pages_.at(at);
    }
    for (const Extent& extent : plan.drop) release(extent);
    for (auto& [at, page] : fresh) CHECK(pages_.emplace(at, std::move(page)).second);
  }

 private:
  std::map<std::uint64_t, std::vector<std::uint8_t>> pages_;
};

struct Pool {
  PoolMap map{1u << 24, 1u << 22, kGranule};
  FakeMemory memory;

  std::uint64_t take(std::uint64_t bytes) {
    auto placement = map.allocate(bytes);
    REQUIRE(placement.has_value());
    for (const Extent& extent : placement->grow) memory.back(extent);
    return placement->offset;
  }
  Compaction compact(std::uint64_t limit = UINT64_MAX) {
    Compaction plan = map.plan_compaction(limit);
    memory.compact(plan);
    map.apply(plan);
    return plan;
  }
};

}  // namespace

TEST_CASE("a pool grows by what is missing and no more") {
  Pool pool;
  const auto a = pool.take(100);
  CHECK(pool.map.held_bytes() == kGranule);
  const auto b = pool.take(1000);
  CHECK(pool.map.held_bytes() == kGranule);
  CHECK(b % PoolMap::kAlignment == 0);
  CHECK(a != b);
  const auto c = pool.take(3 * kGranule);
  CHECK(c % kGranule == 0);
  CHECK(pool.map.held_bytes() == 4 * kGranule);
  CHECK(pool.map.buffer_bytes(c) == 3 * kGranule);
  CHECK(pool.map.free(c));
  CHECK_FALSE(pool.map.free(c));
  CHECK_FALSE(pool.map.free(b + 1));
  CHECK(pool.take(2 * kGranule) == c);
  CHECK(pool.map.held_bytes() == 4 * kGranule);
}

TEST_CASE("the capacity bounds physical memory, not addresses") {
  PoolMap map(1u << 24, 4 * kGranule, kGranule);
  REQUIRE(map.allocate(4 * kGranule));
  CHECK_FALSE(map.allocate(1));
  CHECK_FALSE(map.allocate(0));
  CHECK_FALSE(map.allocate(1ull << 40));
  CHECK(map.used_bytes() == 4 * kGranule);
}

TEST_CASE("a failed growth can be taken back") {
  PoolMap map(1u << 24, 1u << 22, kGranule);
  auto placement = map.allocate(8 * kGranule);
  REQUIRE(placement);
  for (const Extent& extent : placement->grow) map.forget(extent);
  CHECK(map.free(placement->offset));
  CHECK(map.held_bytes() == 0);
  CHECK(map.used_bytes() == 0);
  CHECK(map.extents().empty());
}

TEST_CASE("compaction releases the memory under holes and keeps contents and addresses") {
  Pool pool;
  const auto large = pool.take(16 * kGranule);
  CHECK(pool.map.free(large));
  std::vector<std::uint64_t> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(pool.take(2 * kGranule));
  CHECK(pool.map.held_bytes() == 16 * kGranule);
  for (const std::size_t i : {1u, 3u, 5u, 7u}) CHECK(pool.map.free(buffers[i]));
  for (const std::size_t i : {0u, 2u, 4u, 6u}) pool.memory.at(buffers[i] + 17) = static_cast<std::uint8_t>(i + 1);
  CHECK(pool.map.fragmentation_permille() == 500);
  CHECK(pool.map.largest_free_bytes() == 2 * kGranule);
  const Compaction plan = pool.compact();
  CHECK(plan.moved_bytes == 8 * kGranule);
  CHECK(plan.released_bytes == 8 * kGranule);
  CHECK(pool.map.fragmentation_permille() == 0);
  CHECK(pool.memory.bytes() == pool.map.held_bytes());
  for (const std::size_t i : {0u, 2u, 4u, 6u}) CHECK(pool.memory.at(buffers[i] + 17) == i + 1);
  CHECK(pool.compact().empty());
  // The addresses of the holes serve again, with new memory.
  const auto again = pool.take(2 * kGranule);
  CHECK(pool.memory.at(again) == 0);
  CHECK(pool.memory.bytes() == pool.map.held_bytes());
}

TEST_CASE("what needs no copy is released whatever the limit, the rest up to it") {
  Pool pool;
  const auto a = pool.take(4 * kGranule);
  const auto b = pool.take(4 * kGranule);
  CHECK(pool.map.free(a));
  const auto c = pool.take(kGranule);  // in a's memory
  CHECK(pool.map.free(b));
  const Compaction none = pool.map.plan_compaction(0);
  CHECK(none.released_bytes == 4 * kGranule);
  CHECK(none.create.empty());
  const Compaction all = pool.map.plan_compaction(kGranule);
  CHECK(all.released_bytes == 7 * kGranule);
  CHECK(all.create.size() == 1);
  CHECK(all.create[0] == Extent{c, kGranule});
}

TEST_CASE("random use: buffers never overlap, memory is where it must be, contents survive") {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    Pool pool;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint8_t>> live;  // offset -> bytes, mark
    for (int step = 0; step < 300; ++step) {
      const unsigned choice = random() % 10;
      if (choice < 5) {
        const std::uint64_t bytes = 1 + random() % (6 * kGranule);
        auto placement = pool.map.allocate(bytes);
        if (!placement) continue;
        for (const Extent& extent : placement->grow) pool.memory.back(extent);
        const auto next = live.lower_bound(placement->offset);
        if (next != live.end()) CHECK(placement->offset + bytes <= next->first);
        if (next != live.begin()) CHECK(std::prev(next)->first + std::prev(next)->second.first <= placement->offset);
        const auto mark = static_cast<std::uint8_t>(random());
        live[placement->offset] = {bytes, mark};
        pool.memory.at(placement->offset) = mark;
        pool.memory.at(placement->offset + bytes - 1) = mark;
      } else if (choice < 9 && !live.empty()) {
        auto victim = live.begin();
        std::advance(victim, random() % live.size());
        CHECK(pool.map.free(victim->first));
        live.erase(victim);
      } else {
        pool.compact(random() % 2 == 0 ? UINT64_MAX : random() % (8 * kGranule));
      }
      CHECK(pool.memory.bytes() == pool.map.held_bytes());
      CHECK(pool.map.held_bytes() <= pool.map.capacity_bytes());
      CHECK(pool.map.buffers() == live.size());
    }
    for (const auto& [offset, buffer] : live) {
      CHECK(pool.memory.at(offset) == buffer.second);
      CHECK(pool.memory.at(offset + buffer.first - 1) == buffer.second);
    }
  }
}
