// SPDX-License-Identifier: Apache-2.0
// Requests, groups, fusion, paging, compression, priorities and communicators made from others.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>

#include "perf/data.hpp"
#include "ranks.hpp"

using namespace stepccl::testing;

namespace {

constexpr std::uint32_t kTcp = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP);
constexpr std::uint32_t kShm = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);

stepccl_request_info_t info_of(stepccl_request_t request) {
  stepccl_request_info_t info{};
  info.size = sizeof info;
  CHECK(stepccl_request_query(request, &info) == STEPCCL_SUCCESS);
  return info;
}

stepccl_comm_info_t info_of(stepccl_comm_t comm) {
  stepccl_comm_info_t info{};
  info.size = sizeof info;
  CHECK(stepccl_comm_query(comm, &info) == STEPCCL_SUCCESS);
  return info;
}

stepccl_result_t start_sum(stepccl_comm_t comm, std::vector<std::int32_t>& data, stepccl_request_t& request, stepccl_call_t call = STEPCCL_CALL_INIT) {
  call.request = &request;
  return stepccl_all_reduce(comm, data.data(), data.data(), data.size(), STEPCCL_INT32, STEPCCL_SUM, &call);
}

bool all_equal(const std::vector<std::int32_t>& data, std::int32_t value) {
  return std::all_of(data.begin(), data.end(), [&](std::int32_t x) { return x == value; });
}

}  // namespace

TEST_CASE("asynchronous operations end in order, mix with blocking ones, and are waited for from any thread") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    std::atomic<int> bad{0};
    run_ranks(3, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      std::vector<std::vector<std::int32_t>> data(40);
      std::vector<stepccl_request_t> requests(data.size());
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i].assign(1 + i * 997, static_cast<std::int32_t>(rank + i));
        bad += start_sum(comm, data[i], requests[i]) != STEPCCL_SUCCESS;
      }
      std::int32_t now = 1;
      bad += stepccl_all_reduce(comm, &now, &now, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS || now != 3;
      std::thread other([&] { bad += stepccl_request_wait(requests.back(), 0) != STEPCCL_SUCCESS; });
      for (std::size_t i = 0; i < data.size(); ++i) {
        bad += stepccl_request_wait(requests[i], 0) != STEPCCL_SUCCESS;
        bad += all_equal(data[i], static_cast<std::int32_t>(3 + 3 * i)) ? 0 : 1;
        bad += info_of(requests[i]).sequence == i + 1 ? 0 : 1;
      }
      other.join();
      for (const stepccl_request_t request : requests) bad += stepccl_request_free(request) != STEPCCL_SUCCESS;
    });
    CHECK(bad == 0);
  }
}

TEST_CASE("a wait that runs out of time says so, and the operation goes on") {
  std::atomic<int> bad{0};
  run_ranks(2, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<std::int32_t> data(100, 1);
    stepccl_request_t request = nullptr;
    int done = 1;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    bad += start_sum(comm, data, request) != STEPCCL_SUCCESS;
    if (rank == 0) {
      bad += stepccl_request_test(request, &done) != STEPCCL_SUCCESS || done != 0;
      bad += stepccl_request_wait(request, 20) != STEPCCL_ERROR_TIMEOUT;
      bad += last_error().phase != STEPCCL_PHASE_NONE;
      bad += stepccl_comm_destroy(comm) != STEPCCL_ERROR_INVALID_USAGE;  // not while it runs
    }
    bad += stepccl_request_wait(request, 0) != STEPCCL_SUCCESS;
    bad += stepccl_request_test(request, &done) != STEPCCL_SUCCESS || done != 1;
    bad += !all_equal(data, 2);
    stepccl_request_free(request);
  });
  CHECK(bad == 0);
}

TEST_CASE("messages cross in a group and asynchronously, also to oneself and of nothing") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    std::atomic<int> bad{0};
    run_ranks(3, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{700'001}}) {
        std::vector<std::int32_t> out(count, static_cast<std::int32_t>(rank));
        std::vector<std::vector<std::int32_t>> in(3, std::vector<std::int32_t>(count, -1));
        bad += stepccl_group_start() != STEPCCL_SUCCESS;
        for (std::uint32_t peer = 0; peer < 3; ++peer) {
          bad += stepccl_send(comm, out.data(), count, STEPCCL_INT32, peer, nullptr) != STEPCCL_SUCCESS;
          bad += stepccl_recv(comm, in[peer].data(), count, STEPCCL_INT32, peer, nullptr) != STEPCCL_SUCCESS;
        }
        bad += stepccl_group_end() != STEPCCL_SUCCESS;
        for (std::uint32_t peer = 0; peer < 3; ++peer) bad += !all_equal(in[peer], static_cast<std::int32_t>(peer));

        stepccl_request_t requests[2];
        stepccl_call_t call = STEPCCL_CALL_INIT;
        std::vector<std::int32_t> from(count, -1);
        call.request = &requests[0];
        bad += stepccl_send(comm, out.data(), count, STEPCCL_INT32, (rank + 1) % 3, &call) != STEPCCL_SUCCESS;
        call.request = &requests[1];
        bad += stepccl_recv(comm, from.data(), count, STEPCCL_INT32, (rank + 2) % 3, &call) != STEPCCL_SUCCESS;
        for (const stepccl_request_t request : requests) {
          bad += stepccl_request_wait(request, 0) != STEPCCL_SUCCESS;
          stepccl_request_free(request);
        }
        bad += !all_equal(from, static_cast<std::int32_t>((rank + 2) % 3));
      }
    });
    CHECK(bad == 0);
  }
}

TEST_CASE("a message of another length than its receive is named on both sides") {
  std::atomic<int> named{0};
  std::string texts[2];
  run_ranks(2, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<std::int32_t> data(100);
    stepccl_result_t result = rank == 0 ? stepccl_send(comm, data.data(), 7, STEPCCL_INT32, 1, nullptr) : stepccl_recv(comm, data.data(), 9, STEPCCL_INT32, 0, nullptr);
    if (result == STEPCCL_SUCCESS) result = stepccl_barrier(comm, nullptr);
    texts[rank] = last_error(comm).text;
    named += result == STEPCCL_ERROR_MISMATCH;
  });
  CHECK_MESSAGE(named.load() == 2, texts[0] << " | " << texts[1]);
  CHECK(texts[1].find("receive of 9 int32") != std::string::npos);
}

TEST_CASE("small sums of a group travel as one; groups nest, and may use several communicators") {
  const stepccl_unique_id_t ids[2] = {new_id(), new_id()};
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const stepccl_config_t config = config_for(kShm);
      stepccl_comm_t comms[2] = {};
      for (int c = 0; c < 2; ++c) bad += stepccl_comm_init_rank(&comms[c], 2, &ids[c], rank, &config) != STEPCCL_SUCCESS;
      std::vector<std::vector<std::int32_t>> data(30);
      stepccl_group_start();
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i].assign(i + 1, static_cast<std::int32_t>(rank + i));
        stepccl_group_start();
        bad += stepccl_all_reduce(comms[0], data[i].data(), data[i].data(), data[i].size(), STEPCCL_INT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS;
        bad += stepccl_group_end() != STEPCCL_SUCCESS;
        bad += data[i][0] == static_cast<std::int32_t>(rank + i) ? 0 : 1;  // not yet
      }
      bad += stepccl_group_end() != STEPCCL_SUCCESS;
      for (std::size_t i = 0; i < data.size(); ++i) bad += !all_equal(data[i], static_cast<std::int32_t>(1 + 2 * i));
      bad += info_of(comms[0]).fused_operations == data.size() ? 0 : 1;

      // The other way round on the other rank: a group may not depend on it.
      std::int32_t values[2] = {1, 10};
      stepccl_group_start();
      for (int i = 0; i < 2; ++i) {
        const std::size_t c = rank == 0 ? static_cast<std::size_t>(i) : static_cast<std::size_t>(1 - i);
        bad += stepccl_all_reduce(comms[c], &values[c], &values[c], 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS;
      }
      bad += stepccl_group_end() != STEPCCL_SUCCESS || values[0] != 2 || values[1] != 20;

      // A refused call spoils its group, and nothing of it has moved.
      std::int32_t kept = 5;
      stepccl_group_start();
      bad += stepccl_all_reduce(comms[0], &kept, &kept, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS;
      bad += stepccl_broadcast(comms[0], nullptr, nullptr, 3, STEPCCL_INT32, 9, nullptr) != STEPCCL_ERROR_INVALID_ARGUMENT;
      bad += stepccl_group_end() != STEPCCL_ERROR_INVALID_ARGUMENT || kept != 5;
      for (const stepccl_comm_t comm : comms) bad += stepccl_comm_destroy(comm) != STEPCCL_SUCCESS;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(bad == 0);
}

TEST_CASE("a burst of small asynchronous sums is fused where that is asked for") {
  stepccl_config_t config = config_for(kShm);
  config.fusion_bytes = 4096;
  std::atomic<int> bad{0};
  run_ranks(3, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<std::vector<std::int32_t>> data(50, std::vector<std::int32_t>(25, static_cast<std::int32_t>(rank)));
    std::vector<stepccl_request_t> requests(data.size());
    for (std::size_t i = 0; i < data.size(); ++i) bad += start_sum(comm, data[i], requests[i]) != STEPCCL_SUCCESS;
    for (std::size_t i = 0; i < data.size(); ++i) {
      bad += stepccl_request_wait(requests[i], 0) != STEPCCL_SUCCESS || !all_equal(data[i], 3);
      bad += info_of(requests[i]).fused < 5;
      stepccl_request_free(requests[i]);
    }
    bad += info_of(comm).fused_operations == data.size() ? 0 : 1;
  });
  CHECK(bad == 0);
}

TEST_CASE("a paged operation gives the whole result, and each page when it is complete") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    std::atomic<int> bad{0};
    run_ranks(3, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      constexpr std::size_t kCount = 100'003;
      bad += stepccl_comm_enable_paging(comm, 100, 2) != STEPCCL_ERROR_INVALID_ARGUMENT;
      bad += stepccl_comm_enable_paging(comm, 64 << 10, 3) != STEPCCL_SUCCESS;
      std::vector<std::int32_t> data(kCount, static_cast<std::int32_t>(rank));
      stepccl_request_t request = nullptr;
      bad += start_sum(comm, data, request) != STEPCCL_SUCCESS;
      const std::uint64_t pages = info_of(request).pages;
      bad += pages == (kCount * 4 + 65535) / 65536 ? 0 : 1;
      for (std::uint64_t page = 0; page < pages; ++page) {
        bad += stepccl_request_wait_page(request, page, 0) != STEPCCL_SUCCESS;
        const std::size_t begin = page * info_of(request).page_elements;
        bad += data[begin] == 3 && data[std::min(begin + info_of(request).page_elements, kCount) - 1] == 3 ? 0 : 1;
      }
      bad += stepccl_request_wait_page(request, pages, 0) != STEPCCL_ERROR_INVALID_ARGUMENT;
      bad += stepccl_request_wait(request, 0) != STEPCCL_SUCCESS || info_of(request).pages_done != pages || !all_equal(data, 3);
      stepccl_request_free(request);

      // Blocks with the rest of the array between their pages.
      std::vector<std::int32_t> all(3 * kCount, -1);
      for (std::size_t i = 0; i < kCount; ++i) all[rank * kCount + i] = static_cast<std::int32_t>(rank * kCount + i);
      bad += stepccl_all_gather(comm, all.data() + rank * kCount, all.data(), kCount, STEPCCL_INT32, nullptr) != STEPCCL_SUCCESS;
      for (std::size_t i = 0; i < all.size(); ++i) bad += all[i] == static_cast<std::int32_t>(i) ? 0 : 1;
      std::vector<std::int32_t> mine(kCount);
      bad += stepccl_reduce_scatter(comm, all.data(), mine.data(), kCount, STEPCCL_INT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS;
      for (std::size_t i = 0; i < kCount; ++i) bad += mine[i] == static_cast<std::int32_t>(3 * (rank * kCount + i)) ? 0 : 1;
      std::vector<std::int32_t> back(3 * kCount);
      bad += stepccl_all_to_all(comm, all.data(), back.data(), kCount, STEPCCL_INT32, nullptr) != STEPCCL_SUCCESS;
      for (std::size_t i = 0; i < back.size(); ++i) bad += back[i] == static_cast<std::int32_t>(rank * kCount + i % kCount) ? 0 : 1;
      bad += stepccl_comm_enable_paging(comm, 0, 0) != STEPCCL_SUCCESS || info_of(comm).page_bytes != 0;
    });
    CHECK(bad == 0);
  }
}

TEST_CASE("compression rounds on the wire, gives the same bits everywhere and says what it cost") {
  for (const stepccl_compression_t compression : {STEPCCL_COMPRESSION_BFLOAT16, STEPCCL_COMPRESSION_FLOAT16}) {
    constexpr std::size_t kCount = 30'011;
    std::mutex mutex;
    std::vector<std::vector<float>> results;
    std::atomic<int> bad{0};
    run_ranks(4, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
      std::vector<float> send(kCount);
      std::vector<float> recv(kCount);
      perf::fill(send.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, rank, 3);
      stepccl_call_t call = STEPCCL_CALL_INIT;
      call.compression = compression;
      bad += stepccl_all_reduce(comm, send.data(), recv.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, &call) != STEPCCL_SUCCESS;
      const double unit = compression == STEPCCL_COMPRESSION_BFLOAT16 ? 0x1p-8 : 0x1p-11;
      const double error = info_of(comm).last_compression_error;
      bad += error > 0 && error <= unit ? 0 : 1;  // of values below 1
      // Every reducing collective, paged too.
      std::vector<float> whole(4 * kCount, 0.25f);
      call.page_bytes = 16 << 10;
      bad += stepccl_reduce_scatter(comm, whole.data(), recv.data(), kCount, STEPCCL_FLOAT32, STEPCCL_AVG, &call) != STEPCCL_SUCCESS;
      for (const float x : recv) bad += x == 0.25f ? 0 : 1;
      call.page_bytes = 0;
      bad += stepccl_all_reduce(comm, send.data(), recv.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, &call) != STEPCCL_SUCCESS;
      const std::lock_guard lock(mutex);
      results.push_back(recv);
    });
    CHECK(bad == 0);
    std::vector<double> exact(kCount, 0);
    std::vector<float> part(kCount);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      perf::fill(part.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, rank, 3);
      for (std::size_t i = 0; i < kCount; ++i) exact[i] += part[i];
    }
    const double unit = compression == STEPCCL_COMPRESSION_BFLOAT16 ? 0x1p-8 : 0x1p-11;
    double worst = 0;
    for (std::size_t i = 0; i < kCount; ++i) worst = std::max(worst, std::fabs(results[0][i] - exact[i]));
    CHECK(worst > 0);
    CHECK(worst < 4 * 8 * unit);  // 4 values below 1, each rounded, and sums below 4
    for (const auto& result : results) CHECK(std::memcmp(result.data(), results[0].data(), kCount * sizeof(float)) == 0);
  }
}

TEST_CASE("an urgent operation does not wait for the ones before it") {
  stepccl_config_t config = config_for(kShm);
  config.priority_levels = 3;
  std::atomic<int> bad{0};
  std::atomic<int> first{0};
  run_ranks(2, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
    stepccl_call_t low = STEPCCL_CALL_INIT;
    low.priority = STEPCCL_PRIORITY_LOW;
    std::vector<std::int32_t> slow(1000, 1);
    stepccl_request_t request = nullptr;
    // Rank 1 has not started the other one yet: in one queue the urgent one would be stuck behind it.
    if (rank == 0) bad += start_sum(comm, slow, request, low) != STEPCCL_SUCCESS;
    stepccl_call_t high = STEPCCL_CALL_INIT;
    high.priority = STEPCCL_PRIORITY_HIGH;
    std::int32_t urgent = 1;
    bad += stepccl_all_reduce(comm, &urgent, &urgent, 1, STEPCCL_INT32, STEPCCL_SUM, &high) != STEPCCL_SUCCESS || urgent != 2;
    int done = 1;
    if (rank == 0) first += stepccl_request_test(request, &done) == STEPCCL_SUCCESS && done == 0;
    bad += stepccl_barrier(comm, nullptr) != STEPCCL_SUCCESS;
    if (rank == 1) bad += start_sum(comm, slow, request, low) != STEPCCL_SUCCESS;
    bad += stepccl_request_wait(request, 0) != STEPCCL_SUCCESS || !all_equal(slow, 2);
    stepccl_request_free(request);
  });
  CHECK(bad == 0);
  CHECK(first == 1);
}

TEST_CASE("communicators are split by color and key, and live apart") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    std::atomic<int> bad{0};
    run_ranks(5, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      stepccl_comm_t part = nullptr;
      const std::int32_t color = rank == 4 ? -1 : static_cast<std::int32_t>(rank % 2);
      bad += stepccl_comm_split(comm, color, -static_cast<std::int32_t>(rank), nullptr, &part) != STEPCCL_SUCCESS;
      bad += (part == nullptr) == (rank == 4) ? 0 : 1;
      if (part != nullptr) {
        bad += info_of(part).world_size == 2 && info_of(part).rank == (rank < 2 ? 1u : 0u) ? 0 : 1;  // the higher rank has the lower key
        std::int32_t sum = static_cast<std::int32_t>(rank);
        bad += stepccl_all_reduce(part, &sum, &sum, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS || sum != (rank % 2 == 0 ? 2 : 4);
        stepccl_comm_t again = nullptr;
        bad += stepccl_comm_split(part, 0, 0, nullptr, &again) != STEPCCL_SUCCESS || again == nullptr;
        bad += stepccl_comm_destroy(part) != STEPCCL_SUCCESS;  // the child of the child lives on
        if (again != nullptr) bad += stepccl_barrier(again, nullptr) != STEPCCL_SUCCESS || stepccl_comm_destroy(again) != STEPCCL_SUCCESS;
      }
      bad += stepccl_barrier(comm, nullptr) != STEPCCL_SUCCESS;
    });
    CHECK(bad == 0);
  }
}

TEST_CASE("the pipeline's depth is set, measured and explained") {
  std::atomic<int> bad{0};
  run_ranks(2, config_for(kShm), [&](std::uint32_t, stepccl_comm_t comm) {
    bad += stepccl_comm_set_pipeline_depth(comm, 300) != STEPCCL_ERROR_INVALID_ARGUMENT;
    bad += stepccl_comm_set_pipeline_depth(comm, 9) != STEPCCL_SUCCESS || info_of(comm).pipeline_depth != 9;
    std::uint32_t depth = 0;
    double latency = 0;
    bad += stepccl_comm_tune_pipeline_depth(comm, &depth, &latency) != STEPCCL_SUCCESS;
    bad += latency > 0 && depth >= 4 && depth <= 8 && info_of(comm).pipeline_depth == depth && (latency >= 5 || depth == 4) && (latency <= 20 || depth == 8) ? 0 : 1;
    char text[2048];
    stepccl_algorithm_t chosen{};
    bad += stepccl_comm_explain(comm, STEPCCL_ALL_REDUCE, 1 << 20, nullptr, &chosen, text, sizeof text) != STEPCCL_SUCCESS;
    bad += std::strstr(text, stepccl_algorithm_name(chosen)) != nullptr && std::strstr(text, "chosen") != nullptr && std::strstr(text, "hierarchical") != nullptr ? 0 : 1;
    bad += stepccl_comm_explain(comm, STEPCCL_ALL_REDUCE, 8, nullptr, nullptr, text, 10) != STEPCCL_SUCCESS || std::strlen(text) != 9;
  });
  CHECK(bad == 0);
}

TEST_CASE("abort ends what is asynchronous too, and a new communicator of the same ranks works") {
  std::atomic<int> bad{0};
  for (int round = 0; round < 2; ++round) {
    run_ranks(2, config_for(kTcp), [&](std::uint32_t rank, stepccl_comm_t comm) {
      std::vector<std::int32_t> data(100, 1);
      std::vector<stepccl_request_t> requests(3);
      if (rank == 0) {
        for (auto& request : requests) bad += start_sum(comm, data, request) != STEPCCL_SUCCESS;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        stepccl_comm_abort(comm);
        for (const stepccl_request_t request : requests) {
          bad += stepccl_request_wait(request, 5000) != STEPCCL_ERROR_ABORTED;
          stepccl_request_free(request);
        }
      } else {
        while (info_of(comm).state == STEPCCL_SUCCESS) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        bad += stepccl_barrier(comm, nullptr) != STEPCCL_ERROR_PEER_FAILED;
      }
    });
  }
  CHECK(bad == 0);
}
