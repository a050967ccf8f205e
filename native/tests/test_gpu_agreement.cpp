// SPDX-License-Identifier: Apache-2.0
// What the ranks of a GPU engine agree upon without a GPU: which buffers serve as windows, which settings hold from which
// call on.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cuda/live_settings.hpp"
#include "cuda/meeting.hpp"

using namespace stepccl;
using namespace stepccl::cuda;

TEST_CASE("a meeting: all say yes alike, or nobody does, however late a rank is") {
  constexpr std::uint32_t kRanks = 3;
  constexpr int kCalls = 600;
  auto memory = Meeting::create();
  REQUIRE(memory.ok());
  std::vector<std::vector<int>> answers(kRanks);
  std::vector<std::thread> threads;
  std::atomic<int> mismatched{0};
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      auto meeting = Meeting::open(memory.value(), rank, kRanks);
      std::uint64_t state = rank + 1;
      for (int call = 1; call <= kCalls; ++call) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        // Now and then a rank is later than the others wait, one has no buffer to share, one can't open a peer's.
        if (state >> 60 == 0) std::this_thread::sleep_for(std::chrono::microseconds(1500));
        Post mine;
        mine.usable = call % 50 != 7 || rank != 1;
        mine.fresh = call % 20 == 3;
        mine.signature = static_cast<std::uint64_t>(call) * 10;
        mine.recv_at[rank] = static_cast<std::uint64_t>(call) * 100 + rank;
        const auto posts = meeting.value().meet(
            mine, 400'000,
            [](const std::vector<Post>& all) {
              for (const Post& post : all) {
                if (post.usable == 0) return false;
              }
              return true;
            },
            [&](const std::vector<Post>&) { return call % 40 != 3 || rank != 2; });
        answers[rank].push_back(posts ? 1 : 0);
        if (!posts) continue;
        for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
          const Post& post = (*posts)[peer];
          if (post.signature != static_cast<std::uint64_t>(call) * 10 || post.recv_at[peer] != static_cast<std::uint64_t>(call) * 100 + peer) ++mismatched;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(answers[0] == answers[1]);
  CHECK(answers[0] == answers[2]);
  CHECK(mismatched == 0);
  int yes = 0;
  for (int call = 1; call <= kCalls; ++call) {
    yes += answers[0][static_cast<std::size_t>(call - 1)];
    if (call % 50 == 7 || call % 40 == 3) CHECK(answers[0][static_cast<std::size_t>(call - 1)] == 0);
  }
  CHECK(yes > 0);
}

TEST_CASE("a meeting's segments: offered, opened, withdrawn, their places used again") {
  auto memory = Meeting::create();
  REQUIRE(memory.ok());
  auto owner = Meeting::open(memory.value(), 0, 3);
  auto first = Meeting::open(memory.value(), 1, 3);
  auto second = Meeting::open(memory.value(), 2, 3);
  Segment segment;
  segment.bytes = 77;
  segment.handle[63] = 9;
  const auto index = owner.value().offer(segment);
  REQUIRE(index);
  const Segment seen = first.value().segment(0, *index);
  CHECK(seen.bytes == 77);
  CHECK(seen.handle[63] == 9);
  CHECK(seen.generation != 0);
  CHECK_FALSE(owner.value().opened_by_all(*index));
  first.value().opened(0, *index);
  CHECK_FALSE(owner.value().opened_by_all(*index));
  second.value().opened(0, *index);
  CHECK(owner.value().opened_by_all(*index));
  owner.value().withdraw(*index);
  CHECK(first.value().segment(0, *index).generation == 0);
  const auto again = owner.value().offer(segment);
  REQUIRE(again);
  CHECK(*again == *index);
  CHECK(first.value().segment(0, *again).generation > seen.generation);
  CHECK_FALSE(owner.value().opened_by_all(*again));
  for (std::uint32_t i = 1; i < Meeting::kSegments; ++i) CHECK(owner.value().offer(segment));
  CHECK_FALSE(owner.value().offer(segment));
}

TEST_CASE("live settings: the daemon's wishes over the process's own, what can't be is refused with its reason") {
  LiveValues own{};
  own[STEPCCL_GPU_PIPELINE_DEPTH] = 4;
  own[STEPCCL_GPU_BUFFER_BYTES] = 1000;
  own[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] = 100;
  LiveLimits limits;
  limits.pool_bytes = 500'000;
  limits.device_bytes = 1'000'000;
  stepccl_control page{};
  CHECK(plan_live(own, wishes_of(page), limits).values == own);
  page.pipeline_depth = 65;
  page.sm_budget = 8;
  page.hbm_cache_ratio_permille = 250;
  page.hbm_defrag_interval_ms = 20;
  page.page_bytes = 3u << 20;
  LivePlan plan = plan_live(own, wishes_of(page), limits);
  CHECK(plan.refused[STEPCCL_GPU_PIPELINE_DEPTH] == STEPCCL_GPU_REASON_OUT_OF_RANGE);
  CHECK(plan.values[STEPCCL_GPU_PIPELINE_DEPTH] == 4);
  CHECK(plan.values[STEPCCL_GPU_SM_BUDGET] == 8);
  CHECK(plan.values[STEPCCL_GPU_BUFFER_BYTES] == 0);  // the ratio counts now
  CHECK(plan.refused[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] == STEPCCL_GPU_REASON_NONE);
  CHECK(plan.refused[STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS] == STEPCCL_GPU_REASON_NEEDS_OTHER);
  CHECK(plan.refused[STEPCCL_GPU_PAGE_BYTES] == STEPCCL_GPU_REASON_OUT_OF_RANGE);  // no multiple of 2 MiB
  page.hbm_defrag = 2;
  page.paging = 2;
  page.page_bytes = 4u << 20;
  page.buffer_bytes = 4096;
  plan = plan_live(own, wishes_of(page), limits);
  CHECK(plan.refused[STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS] == STEPCCL_GPU_REASON_NONE);
  CHECK(plan.refused[STEPCCL_GPU_PAGE_BYTES] == STEPCCL_GPU_REASON_NONE);
  CHECK(plan.refused[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] == STEPCCL_GPU_REASON_OVERRIDDEN);
  page.hbm_cache_ratio_permille = 600;  // beyond the address space of the pool
  CHECK(plan_live(own, wishes_of(page), limits).refused[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] == STEPCCL_GPU_REASON_OUT_OF_RANGE);

  stepccl_gpu_setting_row rows[STEPCCL_GPU_SETTING_COUNT];
  fill_rows(rows, wishes_of(page), plan.values, plan, STEPCCL_GPU_REASON_NONE);
  CHECK(rows[STEPCCL_GPU_SM_BUDGET].state == STEPCCL_GPU_SETTING_APPLIED);
  CHECK(rows[STEPCCL_GPU_DMA_CONCURRENCY].state == STEPCCL_GPU_SETTING_OWN);
  CHECK(rows[STEPCCL_GPU_PIPELINE_DEPTH].state == STEPCCL_GPU_SETTING_REFUSED);
  fill_rows(rows, wishes_of(page), own, LivePlan(), STEPCCL_GPU_REASON_NEXT_CALL);
  CHECK(rows[STEPCCL_GPU_SM_BUDGET].state == STEPCCL_GPU_SETTING_PENDING);
  CHECK(rows[STEPCCL_GPU_SM_BUDGET].reason == STEPCCL_GPU_REASON_NEXT_CALL);
}

TEST_CASE("the moment of a change: now where no rank is ahead, else after the call that any has made last") {
  Progress ranks[3];
  for (Progress& rank : ranks) rank.ready = rank.idle = 1, rank.calls = 5;
  CHECK(moment_for(ranks, 3).now);
  CHECK(moment_for(ranks, 3).idle);
  ranks[2].idle = 0;
  CHECK(moment_for(ranks, 3).now);
  CHECK_FALSE(moment_for(ranks, 3).idle);
  ranks[1].calls = 7;
  CHECK(moment_for(ranks, 3).possible);
  CHECK_FALSE(moment_for(ranks, 3).now);
  CHECK(moment_for(ranks, 3).after_call == 7);
  ranks[1].calls = 5;
  ranks[0].with_peer[2] = 1;  // a message that the other has not asked for yet
  CHECK_FALSE(moment_for(ranks, 3).now);
  ranks[2].with_peer[0] = 1;
  CHECK(moment_for(ranks, 3).now);
  ranks[0].ready = 0;
  CHECK_FALSE(moment_for(ranks, 3).possible);
}
