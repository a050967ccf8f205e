// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <dirent.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>

#include "perf/data.hpp"
#include "ranks.hpp"

using namespace stepccl::testing;

namespace {

constexpr std::uint32_t kTcp = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP);
constexpr std::uint32_t kShm = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);

// Names in /dev/shm of these communicators alone: others of this host have theirs while they start.
std::set<std::string> shared_memory_files(const std::set<std::uint64_t>& comm_ids) {
  std::set<std::string> names;
  if (DIR* directory = opendir("/dev/shm")) {
    while (const dirent* entry = readdir(directory)) {
      for (const std::uint64_t id : comm_ids) {
        char text[17];
        std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(id));
        if (std::strstr(entry->d_name, text) != nullptr) names.insert(entry->d_name);
      }
    }
    closedir(directory);
  }
  return names;
}

}  // namespace

TEST_CASE("every datatype and reduction over tcp and shared memory, in place and not") {
  std::mutex mutex;
  std::set<std::uint64_t> comm_ids;
  for (const std::uint32_t transport : {kTcp, kShm}) {
    CAPTURE(transport);
    std::atomic<std::uint64_t> wrong{0};
    std::atomic<std::uint64_t> failed{0};
    run_ranks(3, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      constexpr std::size_t kCount = 1003;
      stepccl_comm_info_t info{};
      info.size = sizeof info;
      if (stepccl_comm_query(comm, &info) != STEPCCL_SUCCESS) ++failed;
      {
        const std::lock_guard lock(mutex);
        comm_ids.insert(info.comm_id);
      }
      for (int datatype = 0; datatype < STEPCCL_DATATYPE_COUNT; ++datatype) {
        for (int redop = 0; redop < STEPCCL_REDOP_COUNT; ++redop) {
          const auto type = static_cast<stepccl_datatype_t>(datatype);
          const auto op = static_cast<stepccl_redop_t>(redop);
          std::vector<std::uint64_t> send(kCount);
          std::vector<std::uint64_t> recv(kCount);
          perf::fill(send.data(), kCount, type, op, rank, 5);
          perf::poison(recv.data(), kCount * 8);
          if (stepccl_all_reduce(comm, send.data(), recv.data(), kCount, type, op, nullptr) != STEPCCL_SUCCESS) ++failed;
          wrong += perf::count_wrong(recv.data(), kCount, type, op, 3, 5);
          if (stepccl_all_reduce(comm, send.data(), send.data(), kCount, type, op, nullptr) != STEPCCL_SUCCESS) ++failed;
          wrong += perf::count_wrong(send.data(), kCount, type, op, 3, 5);
        }
      }
    });
    CHECK(wrong == 0);
    CHECK(failed == 0);
  }
  CHECK(comm_ids.size() == 2);
  CHECK(shared_memory_files(comm_ids).empty());
}

TEST_CASE("large arrays, each algorithm, the same bits on each rank") {
  constexpr std::size_t kCount = (3u << 20) / 4 + 1;  // many chunks, not a multiple of anything
  for (const std::uint32_t transport : {kTcp, kShm}) {
    CAPTURE(transport);
    std::mutex mutex;
    std::vector<std::vector<float>> results[STEPCCL_ALGORITHM_COUNT];
    std::uint64_t wrong = 0;
    run_ranks(4, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      for (const stepccl_algorithm_t algorithm :
           {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_RECURSIVE_DOUBLING, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, STEPCCL_ALGORITHM_DIRECT_TWO_SHOT}) {
        std::vector<float> send(kCount);
        std::vector<float> recv(kCount);
        perf::fill(send.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, rank, 9);
        stepccl_call_t call = STEPCCL_CALL_INIT;
        call.algorithm = algorithm;
        const stepccl_result_t result = stepccl_all_reduce(comm, send.data(), recv.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, &call);
        const std::lock_guard lock(mutex);
        wrong += result == STEPCCL_SUCCESS ? perf::count_wrong(recv.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, 4, 9) : 1;
        results[algorithm].push_back(std::move(recv));
        stepccl_comm_info_t info{};
        info.size = sizeof info;
        stepccl_comm_query(comm, &info);
        wrong += info.last_algorithm == static_cast<std::uint32_t>(algorithm) ? 0 : 1;
      }
    });
    CHECK(wrong == 0);
    for (const auto& ranks : results) {
      for (const auto& result : ranks) CHECK(std::memcmp(result.data(), ranks[0].data(), kCount * sizeof(float)) == 0);
    }
    // Both direct algorithms add in rank order.
    CHECK(std::memcmp(results[STEPCCL_ALGORITHM_DIRECT_ONE_SHOT][0].data(), results[STEPCCL_ALGORITHM_DIRECT_TWO_SHOT][0].data(), kCount * sizeof(float)) == 0);
  }
}

TEST_CASE("a world of one, and counts of zero") {
  run_ranks(1, config_for(0), [](std::uint32_t, stepccl_comm_t comm) {
    float x = 3;
    float y = 0;
    CHECK(stepccl_all_reduce(comm, &x, &y, 1, STEPCCL_FLOAT32, STEPCCL_AVG, nullptr) == STEPCCL_SUCCESS);
    CHECK(y == 3);
    CHECK(stepccl_all_reduce(comm, nullptr, nullptr, 0, STEPCCL_FLOAT32, STEPCCL_AVG, nullptr) == STEPCCL_SUCCESS);
  });
  std::atomic<int> good{0};
  run_ranks(3, config_for(kTcp), [&](std::uint32_t, stepccl_comm_t comm) {
    good += stepccl_all_reduce(comm, nullptr, nullptr, 0, STEPCCL_FLOAT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS;
  });
  CHECK(good == 3);
}

TEST_CASE("two communicators in the same processes do not disturb each other") {
  const stepccl_unique_id_t one = new_id();
  const stepccl_unique_id_t two = new_id();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const stepccl_config_t config = config_for(0);
      stepccl_comm_t a = nullptr;
      stepccl_comm_t b = nullptr;
      if (stepccl_comm_init_rank(&a, 2, &one, rank, &config) != STEPCCL_SUCCESS || stepccl_comm_init_rank(&b, 2, &two, rank, &config) != STEPCCL_SUCCESS) return;
      for (int i = 0; i < 200; ++i) {
        std::int32_t x = i;
        std::int32_t y = 2 * i;
        good += stepccl_all_reduce(a, &x, &x, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS && x == 2 * i;
        good += stepccl_all_reduce(b, &y, &y, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS && y == 4 * i;
      }
      stepccl_comm_destroy(b);
      stepccl_comm_destroy(a);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(good == 800);
}

TEST_CASE("bad arguments are refused by name and leave the communicator usable") {
  run_ranks(1, config_for(0), [](std::uint32_t, stepccl_comm_t comm) {
    alignas(8) std::byte buffer[64] = {};
    const auto call = [&](const void* send, void* recv, std::size_t count, int datatype, int redop) {
      return stepccl_all_reduce(comm, send, recv, count, static_cast<stepccl_datatype_t>(datatype), static_cast<stepccl_redop_t>(redop), nullptr);
    };
    CHECK(call(nullptr, buffer, 1, STEPCCL_FLOAT32, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(call(buffer, nullptr, 1, STEPCCL_FLOAT32, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(call(buffer + 1, buffer + 1, 1, STEPCCL_FLOAT32, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(last_error(comm).text).find("aligned") != std::string::npos);
    CHECK(call(buffer, buffer + 4, 4, STEPCCL_FLOAT32, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(call(buffer, buffer, SIZE_MAX / 2, STEPCCL_FLOAT64, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(call(buffer, buffer, SIZE_MAX, STEPCCL_INT8, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(call(buffer, buffer, 1, 77, STEPCCL_SUM) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(call(buffer, buffer, 1, STEPCCL_FLOAT32, -1) == STEPCCL_ERROR_INVALID_ARGUMENT);
    stepccl_call_t options = STEPCCL_CALL_INIT;
    options.algorithm = STEPCCL_ALGORITHM_BRUCK;
    CHECK(stepccl_all_reduce(comm, buffer, buffer, 1, STEPCCL_FLOAT32, STEPCCL_SUM, &options) == STEPCCL_ERROR_UNSUPPORTED);
    CHECK(call(buffer, buffer, 1, STEPCCL_FLOAT32, STEPCCL_SUM) == STEPCCL_SUCCESS);
  });
  stepccl_comm_t comm = reinterpret_cast<stepccl_comm_t>(1);
  const stepccl_unique_id_t none{};
  CHECK(stepccl_comm_init_rank(&comm, 0, &none, 0, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
  CHECK(comm == nullptr);
  CHECK(stepccl_comm_init_rank(&comm, 2, &none, 2, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
  CHECK(stepccl_comm_init_rank(&comm, 1, &none, 0, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
  CHECK(std::string(last_error().text).find("unique id") != std::string::npos);
  CHECK(stepccl_comm_destroy(nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
  CHECK(stepccl_comm_abort(nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
  CHECK(stepccl_unique_id_create("0.0.0.0", nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
  stepccl_unique_id_t id{};
  CHECK(stepccl_unique_id_create("0.0.0.0", &id) == STEPCCL_ERROR_INVALID_ARGUMENT);
  CHECK(stepccl_unique_id_create("203.0.113.1", &id) == STEPCCL_ERROR_RENDEZVOUS);
  stepccl_config_t config = STEPCCL_CONFIG_INIT;
  config.chunk_bytes = 1;
  const stepccl_unique_id_t real = new_id();
  CHECK(stepccl_comm_init_rank(&comm, 1, &real, 0, &config) == STEPCCL_ERROR_INVALID_CONFIGURATION);
  CHECK(stepccl_unique_id_discard(&real) == STEPCCL_SUCCESS);
}

TEST_CASE("asking for rdma where there is none says what is missing") {
  stepccl_comm_t comm = nullptr;
  stepccl_config_t config = config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_RDMA));
  config.ib_hca = "=no-such-device";
  const stepccl_unique_id_t id = new_id();
  CHECK(stepccl_comm_init_rank(&comm, 1, &id, 0, &config) == STEPCCL_ERROR_TRANSPORT_UNAVAILABLE);
  CHECK(std::string(last_error().text).find("R501") == 0);
}
