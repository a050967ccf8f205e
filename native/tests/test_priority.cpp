// SPDX-License-Identifier: Apache-2.0
// Who yields to whom, and how much still moves while something more urgent runs.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>

#include "core/priority.hpp"
#include "ranks.hpp"
#include "stepccl/telemetry.h"

using namespace stepccl;
using namespace stepccl::testing;
namespace fs = std::filesystem;

namespace {

// An operation of this priority runs, as far as the others of the process can tell.
struct Running {
  std::uint32_t priority;
  explicit Running(std::uint32_t p) : priority(p) { PriorityGate::enter(priority); }
  ~Running() { PriorityGate::leave(priority); }
};

// What all ranks have sent so far, as their rings tell.
std::uint64_t bytes_sent(const fs::path& folder) {
  std::uint64_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".ring") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    stepccl_ring_header header{};
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    for (std::uint32_t i = 0; file && i < header.flow_count; ++i) {
      stepccl_flow flow{};
      file.read(reinterpret_cast<char*>(&flow), sizeof flow);
      total += flow.tx_bytes;
    }
  }
  return total;
}

}  // namespace

TEST_CASE("an operation yields to what is more urgent, and to nothing else") {
  struct Case {
    std::uint32_t running;
    std::uint32_t asks;
    bool yields;
  };
  for (const Case& one : {Case{STEPCCL_PRIORITY_HIGH, STEPCCL_PRIORITY_HIGH, false}, Case{STEPCCL_PRIORITY_HIGH, STEPCCL_PRIORITY_NORMAL, true},
                          Case{STEPCCL_PRIORITY_HIGH, STEPCCL_PRIORITY_LOW, true}, Case{STEPCCL_PRIORITY_NORMAL, STEPCCL_PRIORITY_HIGH, false},
                          Case{STEPCCL_PRIORITY_NORMAL, STEPCCL_PRIORITY_NORMAL, false}, Case{STEPCCL_PRIORITY_NORMAL, STEPCCL_PRIORITY_LOW, true},
                          Case{STEPCCL_PRIORITY_LOW, STEPCCL_PRIORITY_HIGH, false}, Case{STEPCCL_PRIORITY_LOW, STEPCCL_PRIORITY_NORMAL, false},
                          Case{STEPCCL_PRIORITY_LOW, STEPCCL_PRIORITY_LOW, false}}) {
    CAPTURE(one.running);
    CAPTURE(one.asks);
    {
      const Running running(one.running);
      CHECK(PriorityGate::must_yield(one.asks) == one.yields);
    }
    CHECK_FALSE(PriorityGate::must_yield(one.asks));
  }
}

TEST_CASE("a budget lets through what its rate earns, by a clock of its own") {
  for (const std::uint32_t rate : {1u, 100u, 12'500u}) {
    CAPTURE(rate);
    Budget budget;
    budget.set_rate(rate);
    std::mt19937 random(7);
    constexpr std::uint64_t kMessage = 4096;
    std::uint64_t now_ns = 5'000'000;
    const std::uint64_t begin_ns = now_ns;
    std::uint64_t total = 0;
    while (now_ns < begin_ns + 500'000'000) {
      if (budget.take(kMessage, now_ns)) total += kMessage;
      now_ns += 1 + random() % 300;  // asked far more often than a message is earned
    }
    const double earned = static_cast<double>(now_ns - begin_ns) * 1e-3 * rate;
    CHECK(static_cast<double>(total) <= earned + 1000.0 * rate + kMessage);
    CHECK(static_cast<double>(total) >= earned - kMessage);
    // Idle time is worth a millisecond's burst, no more.
    now_ns += 3'600'000'000'000;
    std::uint64_t burst = 0;
    while (budget.take(kMessage, now_ns)) burst += kMessage;
    CHECK(static_cast<double>(burst) <= 1000.0 * rate + kMessage);
  }
  Budget none;
  none.set_rate(0);
  CHECK_FALSE(none.limited());
}

TEST_CASE("while something urgent runs, others stay within the budget and end nevertheless") {
  char name[] = "/tmp/stepccl-test-XXXXXX";
  const fs::path folder = mkdtemp(name);
  constexpr std::size_t kCount = 1u << 20;
  constexpr std::uint32_t kChunk = 32u << 10;
  constexpr std::uint32_t kMBps = 1;
  stepccl_config_t config = config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP));
  config.priority_levels = 3;
  config.bandwidth_MBps = kMBps;
  config.chunk_bytes = kChunk;
  config.telemetry_dir = folder.c_str();
  using Clock = std::chrono::steady_clock;
  run_ranks(2, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<std::uint8_t> low(2 * kCount, 0);
    std::vector<std::uint8_t> high(64u << 10, 1);
    stepccl_request_t request = nullptr;
    std::uint64_t before = 0;
    Clock::time_point begin;
    {
      const Running urgent(STEPCCL_PRIORITY_HIGH);  // until the end of this block
      CHECK(stepccl_barrier(comm, nullptr) == STEPCCL_SUCCESS);
      before = bytes_sent(folder);
      begin = Clock::now();
      std::memset(low.data() + rank * kCount, static_cast<int>(rank + 1), kCount);
      stepccl_call_t call = STEPCCL_CALL_INIT;
      call.priority = STEPCCL_PRIORITY_LOW;
      call.request = &request;
      CHECK(stepccl_all_gather(comm, low.data() + rank * kCount, low.data(), kCount, STEPCCL_UINT8, &call) == STEPCCL_SUCCESS);
      // The urgent one passes, whatever the budget.
      call = STEPCCL_CALL_INIT;
      call.priority = STEPCCL_PRIORITY_HIGH;
      CHECK(stepccl_all_reduce(comm, high.data(), high.data(), high.size(), STEPCCL_UINT8, STEPCCL_SUM, &call) == STEPCCL_SUCCESS);
      CHECK(high.back() == 2);
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const std::uint64_t sent = bytes_sent(folder) - before;
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
      int done = 1;
      CHECK(stepccl_request_test(request, &done) == STEPCCL_SUCCESS);
      // Both ranks' share, the burst, a message that overdraws, and the urgent operation itself.
      CHECK(static_cast<double>(sent) <= 2 * (us * kMBps + 1000.0 * kMBps + 2.0 * kChunk) + 4.0 * static_cast<double>(high.size()));
      if (us < 0.7 * kCount) CHECK(done == 0);
    }
    CHECK(stepccl_request_wait(request, 0) == STEPCCL_SUCCESS);
    CHECK(stepccl_request_free(request) == STEPCCL_SUCCESS);
    for (std::uint32_t r = 0; r < 2; ++r) CHECK(std::count(low.begin() + r * kCount, low.begin() + (r + 1) * kCount, r + 1) == static_cast<std::ptrdiff_t>(kCount));
    CHECK(stepccl_barrier(comm, nullptr) == STEPCCL_SUCCESS);
  });
  fs::remove_all(folder);
}
