// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "in_process_executor.hpp"

using namespace stepccl;
using schedule::AlgorithmRow;
using schedule::CostModel;
using schedule::Problem;
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

bool is_rooted(stepccl_collective_t c) { return c == STEPCCL_BROADCAST || c == STEPCCL_REDUCE || c == STEPCCL_SCATTER || c == STEPCCL_GATHER; }
bool is_reducing(stepccl_collective_t c) { return c == STEPCCL_ALL_REDUCE || c == STEPCCL_REDUCE || c == STEPCCL_REDUCE_SCATTER; }

// Rank r's element i; every (rank, element) differs, so that a misplaced or doubled part shows.
std::uint64_t part(std::uint32_t rank, std::uint64_t i) { return (rank + 1) * 1000003ull + i * 7919ull + ((rank * 31ull + i) << 40); }

// What element i of rank r's output has to be; the gaps between blocks keep what they had.
std::uint64_t expected(stepccl_collective_t collective, const Problem& p, std::uint64_t i, std::uint64_t before) {
  const std::uint64_t stride = p.stride != 0 ? p.stride : p.count;
  const auto block = static_cast<std::uint32_t>(stride == 0 ? 0 : i / stride);
  const std::uint64_t inside = stride == 0 ? 0 : i % stride;
  const auto sum = [&](std::uint64_t element) {
    std::uint64_t total = 0;
    for (std::uint32_t r = 0; r < p.world; ++r) total += part(r, element);
    return total;
  };
  switch (collective) {
    case STEPCCL_ALL_GATHER:
    case STEPCCL_GATHER: return inside < p.count ? part(block, inside) : before;
    case STEPCCL_REDUCE_SCATTER: return sum(p.block_at(p.rank) + i);
    case STEPCCL_BROADCAST: return part(p.root, i);
    case STEPCCL_SCATTER: return part(p.root, p.block_at(p.rank) + i);
    case STEPCCL_ALL_TO_ALL: return inside < p.count ? part(block, p.block_at(p.rank) + inside) : before;
    default: return sum(i);
  }
}

std::uint64_t load(const std::byte* at, std::uint64_t i) {
  std::uint64_t value = 0;
  std::memcpy(&value, at + i * 8, 8);
  return value;
}

void check_integers(const AlgorithmRow& row, const Problem& problem) {
  CAPTURE(problem.world);
  CAPTURE(problem.count);
  CAPTURE(problem.chunk_elements);
  CAPTURE(problem.in_place);
  CAPTURE(problem.root);
  CAPTURE(problem.stride);
  InProcessExecutor executor(row, problem, STEPCCL_UINT64, STEPCCL_SUM);
  std::vector<std::vector<std::byte>> before;
  for (std::uint32_t rank = 0; rank < problem.world; ++rank) {
    for (std::uint64_t i = 0; i < executor.shapes[rank].input; ++i) {
      const std::uint64_t value = part(rank, i);
      std::memcpy(executor.input(rank) + i * 8, &value, 8);
    }
    before.push_back(executor.result(rank));
  }
  REQUIRE(executor.run(problem.world * 1009 + static_cast<std::uint32_t>(problem.count)) == "");
  for (std::uint32_t rank = 0; rank < problem.world; ++rank) {
    const Problem& own = executor.problems[rank];
    for (std::uint64_t i = 0; i < executor.shapes[rank].output; ++i) {
      const std::uint64_t wanted = expected(row.collective, own, i, load(before[rank].data(), i));
      const std::uint64_t got = load(executor.output(rank), i);
      if (got != wanted) FAIL("rank " << rank << " element " << i << ": " << got << " instead of " << wanted);
    }
    if (own.in_place) continue;  // otherwise the input is the caller's: untouched
    for (std::uint64_t i = 0; i < executor.shapes[rank].input; ++i) {
      if (load(executor.input(rank), i) != part(rank, i)) FAIL("rank " << rank << " overwrote its input at " << i);
    }
  }
}

// Which ranks share a node: nobody's affair but the hierarchical algorithms'.
std::vector<std::vector<std::uint32_t>> placements(const AlgorithmRow& row, std::uint32_t world) {
  if (row.algorithm != STEPCCL_ALGORITHM_HIERARCHICAL) return {{}};
  std::vector<std::vector<std::uint32_t>> list{{}};
  const auto add = [&](auto&& node_of) {
    std::vector<std::uint32_t> nodes(world);
    for (std::uint32_t r = 0; r < world; ++r) nodes[r] = node_of(r);
    list.push_back(nodes);
  };
  add([](std::uint32_t r) { return r / 2; });              // pairs, the last one alone in an odd world
  add([&](std::uint32_t r) { return r % (world / 3 + 1); });  // dealt out, uneven
  if (world % 4 == 0) add([&](std::uint32_t r) { return r % (world / 4); });  // four on each, dealt out
  return list;
}

void check_row(const AlgorithmRow& row, Problem problem) {
  for (const auto& nodes : placements(row, problem.world)) {
    problem.nodes = nodes.empty() ? nullptr : &nodes;
    CAPTURE(nodes.size());
    for (const bool in_place : {false, true}) {
      problem.in_place = in_place;
      check_integers(row, problem);
    }
  }
}

}  // namespace

TEST_CASE("every schedule gives the right result for every world size, with odd, small and zero counts and any root") {
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_collective_name(row.collective));
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : worlds()) {
      const std::vector<std::uint64_t> counts = row.collective == STEPCCL_BARRIER ? std::vector<std::uint64_t>{1}
                                                : world <= 8                      ? std::vector<std::uint64_t>{0, 1, 2, 3, 7, 64, 129}
                                                                                  : std::vector<std::uint64_t>{0, 5, 67};
      for (const std::uint64_t count : counts) {
        Problem problem{.rank = 0, .world = world, .count = count, .chunk_elements = 16, .depth = 3};
        check_row(row, problem);
        if (!is_rooted(row.collective) || world == 1) continue;
        problem.root = world - 1;
        check_row(row, problem);
        if (count != 67) continue;
        problem.root = world / 2;
        check_row(row, problem);
      }
    }
  }
}

TEST_CASE("chunks of any length, pipelines of any depth and blocks with gaps between them give the same result") {
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_collective_name(row.collective));
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 3u, 4u, 7u, 8u}) {
      for (const std::uint64_t chunk : {1ull, 5ull, 1000ull}) {
        for (const std::uint32_t depth : {1u, 2u, 9u}) {
          check_integers(row, {.rank = 0, .world = world, .count = 101, .chunk_elements = chunk, .depth = depth, .in_place = true, .root = 1});
        }
      }
      if (!schedule::is_blocked(row.collective)) continue;
      Problem gaps{.rank = 0, .world = world, .count = 50, .chunk_elements = 16, .depth = 2, .root = 1, .stride = 70};
      check_row(row, gaps);
    }
  }
}

TEST_CASE("floating sums have the same bits on every rank, in every run, in place or not and at any depth") {
  for (const auto& row : schedule::algorithms()) {
    if (!is_reducing(row.collective)) continue;
    CAPTURE(stepccl_collective_name(row.collective));
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 3u, 5u, 8u, 13u, 33u}) {
      CAPTURE(world);
      for (const stepccl_datatype_t datatype : {STEPCCL_FLOAT32, STEPCCL_BFLOAT16}) {
        std::vector<std::vector<std::byte>> first;
        for (std::uint32_t run = 0; run < 4; ++run) {
          InProcessExecutor executor(row, {.rank = 0, .world = world, .count = 97, .chunk_elements = 10, .depth = 1 + run, .in_place = run % 2 == 1},
                                     datatype, STEPCCL_AVG);
          std::mt19937 random(17);  // the same data in every run
          for (std::uint32_t rank = 0; rank < world; ++rank) {
            for (std::size_t i = 0; i < executor.shapes[rank].input * stepccl_datatype_bytes(datatype); ++i) executor.input(rank)[i] = static_cast<std::byte>(random());
          }
          REQUIRE(executor.run(run * 7 + 1) == "");
          for (std::uint32_t rank = 0; rank < world; ++rank) {
            if (run == 0) first.push_back(executor.result(rank));
            CHECK(executor.result(rank) == first[rank]);
            if (row.collective == STEPCCL_ALL_REDUCE) CHECK(executor.result(rank) == first[0]);
          }
        }
      }
    }
  }
}

TEST_CASE("AVG divides every element of the result once") {
  for (const auto& row : schedule::algorithms()) {
    if (!is_reducing(row.collective)) continue;
    CAPTURE(stepccl_collective_name(row.collective));
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 3u, 4u, 6u, 8u, 12u}) {
      CAPTURE(world);
      for (const auto& nodes : placements(row, world)) {
        InProcessExecutor executor(row, {.rank = 0, .world = world, .count = 40, .chunk_elements = 7, .depth = 2, .nodes = nodes.empty() ? nullptr : &nodes},
                                   STEPCCL_INT32, STEPCCL_AVG);
        for (std::uint32_t rank = 0; rank < world; ++rank) {
          for (std::uint64_t i = 0; i < executor.shapes[rank].input; ++i) {
            const auto value = static_cast<std::int32_t>(rank * 100 + 12);
            std::memcpy(executor.input(rank) + i * 4, &value, 4);
          }
        }
        REQUIRE(executor.run(3) == "");
        for (std::uint32_t rank = 0; rank < world; ++rank) {
          for (std::uint64_t i = 0; i < executor.shapes[rank].output; ++i) {
            std::int32_t got = 0;
            std::memcpy(&got, executor.output(rank) + i * 4, 4);
            if (got != static_cast<std::int32_t>((world * (world - 1) / 2 * 100 + world * 12) / world)) FAIL("rank " << rank << " element " << i << ": " << got);
          }
        }
      }
    }
  }
}

TEST_CASE("no rank sends more than its cost formula counts") {
  constexpr std::uint64_t kCount = 5040;
  for (const auto& row : schedule::algorithms()) {
    if (row.algorithm == STEPCCL_ALGORITHM_HIERARCHICAL || row.collective == STEPCCL_BARRIER) continue;
    CAPTURE(stepccl_collective_name(row.collective));
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 4u, 8u}) {
      CAPTURE(world);
      const std::uint64_t count = schedule::is_blocked(row.collective) ? kCount / world : kCount;
      std::uint64_t most = 0;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const auto schedule = row.make({.rank = rank, .world = world, .count = count, .chunk_elements = kCount, .depth = 4});
        std::uint64_t sent = 0;
        for (const auto& step : schedule.steps) sent += step.kind == schedule::StepKind::send ? step.count : 0;
        most = std::max(most, sent);
      }
      CHECK(static_cast<double>(most) <= row.cost(world, kCount, {.beta = 1}) * 1.001 + 0.5);
      CHECK(most > 0);
    }
  }
}

TEST_CASE("uneven exchanges, in place and with nothing for some") {
  for (const std::uint32_t world : {1u, 2u, 3u, 5u, 8u}) {
    for (const bool in_place : {false, true}) {
      CAPTURE(world);
      CAPTURE(in_place);
      const auto count = [](std::uint32_t from, std::uint32_t to) -> std::size_t { return (from * 7 + to * 3) % 5 == 0 ? 0 : (from * 5 + to) % 23; };
      std::vector<std::vector<std::size_t>> arrays(world * 4, std::vector<std::size_t>(world));
      std::vector<schedule::Schedule> schedules;
      std::vector<std::vector<std::uint64_t>> input(world);
      std::vector<std::vector<std::uint64_t>> output(world);
      for (std::uint32_t r = 0; r < world; ++r) {
        std::size_t out = 0;
        std::size_t in = 0;
        for (std::uint32_t p = 0; p < world; ++p) {
          arrays[4 * r][p] = count(r, p);
          arrays[4 * r + 1][p] = out;
          arrays[4 * r + 2][p] = count(p, r);
          arrays[4 * r + 3][p] = in + p;  // with a gap
          out += count(r, p);
          in += count(p, r);
        }
        input[r].resize(std::max(out, in + world));
        output[r].resize(in + world, 77);
        for (std::size_t i = 0; i < out; ++i) input[r][i] = part(r, i);
        schedules.push_back(schedule::vector_all_to_all({.rank = r, .world = world, .chunk_elements = 4, .depth = 2, .in_place = in_place},
                                                        {arrays[4 * r].data(), arrays[4 * r + 1].data(), arrays[4 * r + 2].data(), arrays[4 * r + 3].data()}));
      }
      // One step after another over all ranks, receives matched by lane.
      std::vector<schedule::Tracker> trackers(schedules.begin(), schedules.end());
      std::vector<std::vector<std::uint64_t>> scratch(world);
      for (std::uint32_t r = 0; r < world; ++r) scratch[r].resize(schedules[r].scratch_elements);
      std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::deque<std::uint32_t>, std::deque<std::uint32_t>>> wires;
      const auto at = [&](std::uint32_t r, schedule::Place place) {
        auto& buffer = place.buffer == schedule::Buffer::scratch ? scratch[r] : place.buffer == schedule::Buffer::output && !in_place ? output[r] : input[r];
        return buffer.data() + place.offset;
      };
      bool moved = true;
      while (moved) {
        moved = false;
        for (std::uint32_t r = 0; r < world; ++r) {
          while (const auto step = trackers[r].next_local()) {
            const auto& s = schedules[r].steps[*step];
            std::copy_n(at(r, s.left), s.count, at(r, s.target));
            trackers[r].complete(*step);
            moved = true;
          }
          for (std::size_t lane = 0; lane < schedules[r].lanes.size(); ++lane) {
            const auto& line = schedules[r].lanes[lane];
            while (const auto step = trackers[r].next_posted(lane)) {
              auto& wire = wires[line.send ? std::make_pair(r, line.peer) : std::make_pair(line.peer, r)];
              (line.send ? wire.first : wire.second).push_back(*step);
            }
          }
        }
        for (auto& [ends, wire] : wires) {
          if (wire.first.empty() || wire.second.empty()) continue;
          const auto& send = schedules[ends.first].steps[wire.first.front()];
          const auto& receive = schedules[ends.second].steps[wire.second.front()];
          REQUIRE(send.count == receive.count);
          std::copy_n(at(ends.first, send.left), send.count, at(ends.second, receive.target));
          trackers[ends.first].complete(wire.first.front());
          trackers[ends.second].complete(wire.second.front());
          wire.first.pop_front();
          wire.second.pop_front();
          moved = true;
        }
      }
      for (std::uint32_t r = 0; r < world; ++r) {
        REQUIRE(trackers[r].done());
        for (std::uint32_t p = 0; p < world; ++p) {
          for (std::size_t i = 0; i < count(p, r); ++i) {
            CHECK((in_place ? input : output)[r][arrays[4 * r + 3][p] + i] == part(p, arrays[4 * p + 1][r] + i));
          }
        }
      }
    }
  }
}

TEST_CASE("nobody leaves a barrier before everyone has come") {
  for (const auto& row : schedule::algorithms()) {
    if (row.collective != STEPCCL_BARRIER) continue;
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 3u, 5u, 8u, 12u}) {
      for (const auto& nodes : placements(row, world)) {
        for (std::uint32_t absent = 0; absent < world; ++absent) {
          InProcessExecutor executor(row, {.rank = 0, .world = world, .count = 1, .chunk_elements = 1, .depth = 1, .nodes = nodes.empty() ? nullptr : &nodes}, STEPCCL_UINT8, STEPCCL_SUM);
          CHECK(executor.run(absent, absent) == "deadlock");
          CHECK(executor.ended == 0);
        }
      }
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

TEST_CASE("the choice follows the cost, keeps to what is allowed and considers what suits") {
  const CostModel tcp{.alpha = 25, .beta = 8e-4, .gamma = 1e-4, .overhead = 5, .chunk = 262144, .local_alpha = 25, .local_beta = 8e-4};
  const auto choice = [&](std::uint32_t world, double bytes, std::uint32_t allowed = ~0u, CostModel model = {}) {
    const auto* row = schedule::choose_algorithm(STEPCCL_ALL_REDUCE, world, bytes, model.alpha == 0 ? tcp : model, allowed);
    return row == nullptr ? STEPCCL_ALGORITHM_AUTO : row->algorithm;
  };
  CHECK(choice(64, 8) == STEPCCL_ALGORITHM_RECURSIVE_DOUBLING);
  CHECK(choice(2, 8) != STEPCCL_ALGORITHM_RING);
  CHECK(choice(8, 1e9) != STEPCCL_ALGORITHM_RECURSIVE_DOUBLING);
  CHECK(choice(8, 8, 1u << STEPCCL_ALGORITHM_RING) == STEPCCL_ALGORITHM_RING);
  CHECK(choice(64, 8, 1u << STEPCCL_ALGORITHM_DIRECT_ONE_SHOT) == STEPCCL_ALGORITHM_DIRECT_ONE_SHOT);  // asked for by name
  CHECK(choice(8, 8, 1u << STEPCCL_ALGORITHM_BRUCK) == STEPCCL_ALGORITHM_AUTO);
  // Fast inside, slow across: the slow links carry a share only.
  CostModel nodes = tcp;
  nodes.local_alpha = 1;
  nodes.local_beta = 1e-4;
  nodes.nodes = 4;
  nodes.per_node = 8;
  CHECK(choice(32, 1e8, ~0u, nodes) == STEPCCL_ALGORITHM_HIERARCHICAL);
  CHECK(choice(32, 1e8) != STEPCCL_ALGORITHM_HIERARCHICAL);
  CHECK(schedule::find_algorithm(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_BRUCK) == nullptr);
  for (int c = 0; c < STEPCCL_COLLECTIVE_COUNT; ++c) {
    const auto collective = static_cast<stepccl_collective_t>(c);
    if (collective == STEPCCL_SEND_RECV) continue;
    CHECK(schedule::choose_algorithm(collective, 5, 1000, tcp) != nullptr);
  }
}
