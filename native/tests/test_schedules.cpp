// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "in_process_executor.hpp"

using namespace stepccl;
using stepccl::testing::InProcessExecutor;

namespace {

const std::vector<std::uint32_t>& worlds() {
  static const std::vector<std::uint32_t> all = [] {
    std::vector<std::uint32_t> list;
    for (std::uint32_t n = 1; n <= 33; ++n) list.push_back(n);
    list.push_back(64);
    return list;
  }();
  return all;
}

// Rank r's element i; every (rank, element) differs, so that a misplaced or doubled part shows.
std::uint64_t part(std::uint32_t rank, std::uint64_t i) { return (rank + 1) * 1000003ull + i * 7919ull + ((rank * 31ull + i) << 40); }

void check_integer_sum(const schedule::AlgorithmRow& row, std::uint32_t world, std::uint64_t count, std::uint64_t chunk, std::uint32_t depth, bool in_place) {
  CAPTURE(world);
  CAPTURE(count);
  CAPTURE(chunk);
  CAPTURE(in_place);
  InProcessExecutor executor(row, world, count, chunk, depth, in_place, STEPCCL_UINT64, STEPCCL_SUM);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    auto& memory = executor.memory[rank];
    std::vector<std::uint64_t> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = part(rank, i);
    auto& input = in_place ? memory.output : memory.input;
    if (count != 0) std::memcpy(input.data(), values.data(), count * 8);
    if (!in_place) std::fill(memory.output.begin(), memory.output.end(), std::byte{0xa5});
    std::fill(memory.scratch.begin(), memory.scratch.end(), std::byte{0x5a});
  }
  REQUIRE(executor.run(world * 1009 + static_cast<std::uint32_t>(count)) == "");
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t expected = 0;
      for (std::uint32_t p = 0; p < world; ++p) expected += part(p, i);
      std::uint64_t got = 0;
      std::memcpy(&got, executor.memory[rank].output.data() + i * 8, 8);
      if (got != expected) FAIL("rank " << rank << " element " << i << ": " << got << " instead of " << expected);
    }
    if (!in_place) {  // the input is the caller's: untouched
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t kept = 0;
        std::memcpy(&kept, executor.memory[rank].input.data() + i * 8, 8);
        if (kept != part(rank, i)) FAIL("rank " << rank << " overwrote its input at " << i);
      }
    }
  }
}

}  // namespace

TEST_CASE("every schedule computes the sum for every world size, with odd, small and zero counts") {
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : worlds()) {
      for (const std::uint64_t count : {0ull, 1ull, 2ull, 3ull, 7ull, 64ull, 129ull}) {
        for (const bool in_place : {false, true}) check_integer_sum(row, world, count, 16, 3, in_place);
      }
    }
  }
}

TEST_CASE("chunks of any length and pipelines of any depth give the same sum") {
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 3u, 4u, 7u, 8u}) {
      for (const std::uint64_t chunk : {1ull, 5ull, 1000ull}) {
        for (const std::uint32_t depth : {1u, 2u, 9u}) check_integer_sum(row, world, 101, chunk, depth, true);
      }
    }
  }
}

TEST_CASE("floating sums have the same bits on every rank, in every run and in place or not") {
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 3u, 5u, 8u, 13u, 33u}) {
      CAPTURE(world);
      for (const stepccl_datatype_t datatype : {STEPCCL_FLOAT32, STEPCCL_BFLOAT16}) {
        constexpr std::uint64_t kCount = 97;
        std::vector<std::byte> first;
        for (std::uint32_t run = 0; run < 4; ++run) {
          const bool in_place = run % 2 == 1;
          InProcessExecutor executor(row, world, kCount, 10, 1 + run, in_place, datatype, STEPCCL_AVG);
          std::mt19937 random(17);  // the same data in every run
          for (auto& memory : executor.memory) {
            for (std::byte& byte : in_place ? memory.output : memory.input) byte = static_cast<std::byte>(random());
          }
          REQUIRE(executor.run(run * 7 + 1) == "");
          if (run == 0) first = executor.memory[0].output;
          for (const auto& memory : executor.memory) CHECK(memory.output == first);
        }
      }
    }
  }
}

TEST_CASE("the rounds and bytes of a schedule are what its cost formula counts") {
  constexpr std::uint64_t kCount = 5040;
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 4u, 8u}) {
      CAPTURE(world);
      const auto schedule = row.make({.rank = 1, .world = world, .count = kCount, .chunk_elements = kCount, .depth = 4, .in_place = false});
      std::uint64_t sent = 0;
      for (const auto& step : schedule.steps) sent += step.kind == schedule::StepKind::send ? step.count : 0;
      CHECK(static_cast<double>(sent) == doctest::Approx(row.cost(world, kCount, 0, 1, 0)));
    }
  }
}

TEST_CASE("segments cover everything once") {
  for (const std::uint64_t count : {0ull, 1ull, 10ull, 1000003ull}) {
    for (const std::uint32_t parts : {1u, 3u, 64u}) {
      std::uint64_t next = 0;
      for (std::uint32_t i = 0; i < parts; ++i) {
        const auto segment = schedule::segment_of(count, parts, i);
        CHECK(segment.offset == next);
        next += segment.count;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("the choice follows the cost and is the same for every rank") {
  CHECK(schedule::choose_algorithm(STEPCCL_ALL_REDUCE, 64, 8, 25, 8e-4, 1e-4).algorithm == STEPCCL_ALGORITHM_RECURSIVE_DOUBLING);
  CHECK(schedule::choose_algorithm(STEPCCL_ALL_REDUCE, 64, 1e9, 25, 8e-4, 1e-4).algorithm == STEPCCL_ALGORITHM_RING);
  CHECK(schedule::choose_algorithm(STEPCCL_ALL_REDUCE, 8, 8, 25, 8e-4, 1e-4).algorithm == STEPCCL_ALGORITHM_DIRECT_ONE_SHOT);
  CHECK(schedule::find_algorithm(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_BRUCK) == nullptr);
}
