// SPDX-License-Identifier: Apache-2.0
// Every collective by every algorithm over real paths.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>

#include "perf/collectives.hpp"
#include "perf/data.hpp"
#include "ranks.hpp"
#include "schedule/schedule.hpp"

using namespace stepccl::testing;

namespace {

constexpr std::uint32_t kTcp = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP);
constexpr std::uint32_t kShm = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);

std::vector<stepccl_algorithm_t> algorithms_of(stepccl_collective_t collective) {
  std::vector<stepccl_algorithm_t> list;
  for (const auto& row : stepccl::schedule::algorithms()) {
    if (row.collective == collective) list.push_back(row.algorithm);
  }
  if (list.empty()) list.push_back(STEPCCL_ALGORITHM_AUTO);  // send_recv
  return list;
}

struct Problems {
  std::mutex mutex;
  std::vector<std::string> list;
  void add(std::string text) {
    const std::lock_guard lock(mutex);
    if (list.size() < 5) list.push_back(std::move(text));
  }
};

// Runs one call, in place or not, and adds to the problems what is wrong with it.
void check_call(stepccl_comm_t comm, const perf::Work& work, bool in_place, const stepccl_call_t& options, Problems& problems) {
  const std::size_t element = stepccl_datatype_bytes(work.datatype);
  std::vector<std::uint64_t> one(work.full_count() * element / 8 + work.world + 2);
  std::vector<std::uint64_t> two(one.size());
  const perf::Buffers buffers = in_place ? perf::in_place(work, two.data()) : perf::Buffers{one.data(), two.data()};
  perf::poison(buffers.recv, work.recv_count() * element);
  perf::fill_input(work, buffers.send, 5);
  const stepccl_result_t result = perf::call(comm, work, buffers, &options);
  const std::uint64_t wrong = result == STEPCCL_SUCCESS ? perf::count_wrong_output(work, buffers.recv, 5) : 0;
  if (result == STEPCCL_SUCCESS && wrong == 0) return;
  problems.add(std::string(stepccl_collective_name(work.collective)) + " by " + stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(options.algorithm)) + " of " +
               std::to_string(work.count) + " " + stepccl_datatype_name(work.datatype) + (in_place ? " in place" : "") + ": " + std::to_string(wrong) +
               " wrong, " + last_error(comm).text);
}

}  // namespace

TEST_CASE("every collective, algorithm, size and root over tcp and shared memory, in place and not") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    for (const std::uint32_t world : {3u, 4u}) {
      Problems problems;
      run_ranks(world, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
        for (int c = 0; c < STEPCCL_COLLECTIVE_COUNT; ++c) {
          const auto collective = static_cast<stepccl_collective_t>(c);
          for (const stepccl_algorithm_t algorithm : algorithms_of(collective)) {
            stepccl_call_t options = STEPCCL_CALL_INIT;
            options.algorithm = static_cast<std::uint32_t>(algorithm);
            for (const std::uint64_t bytes : {0ull, 52ull, world == 3 ? 4'004ull : 600'012ull}) {
              for (const std::uint32_t root : {0u, world - 1}) {
                if (root != 0 && !perf::is_rooted(collective)) continue;
                const perf::Work work = perf::work_of(collective, bytes, STEPCCL_FLOAT32, STEPCCL_SUM, root, rank, world);
                check_call(comm, work, false, options, problems);
                if (collective != STEPCCL_SEND_RECV) check_call(comm, work, true, options, problems);
              }
            }
          }
        }
      });
      for (const auto& problem : problems.list) FAIL_CHECK(problem);
    }
  }
}

TEST_CASE("every datatype and reduction of the reducing collectives") {
  Problems problems;
  run_ranks(3, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
    const stepccl_call_t options = STEPCCL_CALL_INIT;
    for (const stepccl_collective_t collective : {STEPCCL_ALL_REDUCE, STEPCCL_REDUCE, STEPCCL_REDUCE_SCATTER}) {
      for (int datatype = 0; datatype < STEPCCL_DATATYPE_COUNT; ++datatype) {
        for (int redop = 0; redop < STEPCCL_REDOP_COUNT; ++redop) {
          check_call(comm, perf::work_of(collective, 3000, static_cast<stepccl_datatype_t>(datatype), static_cast<stepccl_redop_t>(redop), 1, rank, 3), redop % 2 == 1,
                     options, problems);
        }
      }
    }
  });
  for (const auto& problem : problems.list) FAIL_CHECK(problem);
}

TEST_CASE("no rank leaves a barrier before all have come") {
  for (const std::uint32_t world : {2u, 5u}) {
    std::atomic<std::uint32_t> here{0};
    std::atomic<int> early{0};
    run_ranks(world, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
      for (std::uint32_t i = 0; i < 20; ++i) {
        if (rank == i % world) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++here;
        if (stepccl_barrier(comm, nullptr) != STEPCCL_SUCCESS || here.load() < (i + 1) * world) ++early;
      }
    });
    CHECK(early == 0);
  }
}

TEST_CASE("uneven exchanges between real ranks, and counts that do not fit are named") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    constexpr std::uint32_t kWorld = 3;
    const auto count = [](std::uint32_t from, std::uint32_t to) -> std::size_t { return from == to ? 5 : (from * 40'000 + to * 3) % 100'001; };
    std::atomic<int> wrong{0};
    std::atomic<int> named{0};
    std::string texts[kWorld];
    run_ranks(kWorld, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      std::size_t counts[4][kWorld];
      std::size_t out = 0;
      std::size_t in = 0;
      for (std::uint32_t p = 0; p < kWorld; ++p) {
        counts[0][p] = count(rank, p);
        counts[1][p] = out;
        counts[2][p] = count(p, rank);
        counts[3][p] = in;
        out += counts[0][p];
        in += counts[2][p];
      }
      std::vector<std::int32_t> send(out);
      std::vector<std::int32_t> recv(in, -1);
      for (std::size_t i = 0; i < out; ++i) send[i] = static_cast<std::int32_t>(rank * 1'000'000 + i);
      if (stepccl_all_to_all_v(comm, send.data(), counts[0], counts[1], recv.data(), counts[2], counts[3], STEPCCL_INT32, nullptr) != STEPCCL_SUCCESS) ++wrong;
      for (std::uint32_t p = 0; p < kWorld; ++p) {
        std::size_t begin = 0;
        for (std::uint32_t q = 0; q < rank; ++q) begin += count(p, q);
        for (std::size_t i = 0; i < counts[2][p]; ++i) wrong += recv[counts[3][p] + i] == static_cast<std::int32_t>(p * 1'000'000 + begin + i) ? 0 : 1;
      }
      if (rank == 1) counts[2][0] = 0;  // but rank 0 sends it something
      stepccl_result_t result = stepccl_all_to_all_v(comm, send.data(), counts[0], counts[1], recv.data(), counts[2], counts[3], STEPCCL_INT32, nullptr);
      if (result == STEPCCL_SUCCESS) result = stepccl_barrier(comm, nullptr);  // a rank that had nothing to wait for learns of it now
      texts[rank] = last_error(comm).text;
      named += result == STEPCCL_ERROR_MISMATCH;
    });
    CHECK(wrong == 0);
    CHECK_MESSAGE(named.load() == 3, texts[0] << " | " << texts[1] << " | " << texts[2]);
  }
}

TEST_CASE("wrong arguments of every collective are refused by name and leave the communicator usable") {
  run_ranks(2, config_for(kShm), [](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<std::int32_t> a(64);
    std::vector<std::int32_t> b(64);
    const auto refused = [&](stepccl_result_t result, const char* word) {
      CHECK(result == STEPCCL_ERROR_INVALID_ARGUMENT);
      CHECK_MESSAGE(std::string(last_error(comm).text).find(word) != std::string::npos, last_error(comm).text);
    };
    refused(stepccl_broadcast(comm, a.data(), b.data(), 4, STEPCCL_INT32, 2, nullptr), "root 2");
    refused(stepccl_all_gather(comm, b.data() + 1, b.data(), 8, STEPCCL_INT32, nullptr), "overlap");
    refused(stepccl_reduce_scatter(comm, nullptr, b.data(), 8, STEPCCL_INT32, STEPCCL_SUM, nullptr), "send is NULL");
    refused(stepccl_all_to_all(comm, a.data(), b.data(), SIZE_MAX / 4, STEPCCL_INT32, nullptr), "address space");
    refused(stepccl_scatter(comm, a.data(), rank == 0 ? nullptr : nullptr, 4, STEPCCL_INT32, 0, nullptr), "recv is NULL");
    refused(stepccl_send(comm, a.data(), 4, STEPCCL_INT32, 7, nullptr), "peer 7");
    refused(stepccl_all_to_all_v(comm, a.data(), nullptr, nullptr, b.data(), nullptr, nullptr, STEPCCL_INT32, nullptr), "counts");
    const std::size_t counts[2] = {4, 4};
    const std::size_t places[2] = {0, 2};
    refused(stepccl_all_to_all_v(comm, a.data(), counts, places, b.data(), counts, places, STEPCCL_INT32, nullptr), "overlap");
    CHECK(stepccl_send(comm, a.data(), 4, STEPCCL_INT32, rank, nullptr) == STEPCCL_ERROR_INVALID_USAGE);
    stepccl_call_t call = STEPCCL_CALL_INIT;
    call.priority = STEPCCL_PRIORITY_HIGH;
    CHECK(stepccl_barrier(comm, &call) == STEPCCL_ERROR_INVALID_USAGE);
    call = STEPCCL_CALL_INIT;
    call.stream = &call;
    CHECK(stepccl_barrier(comm, &call) == STEPCCL_ERROR_UNSUPPORTED);
    call = STEPCCL_CALL_INIT;
    call.algorithm = STEPCCL_ALGORITHM_RING;
    CHECK(stepccl_barrier(comm, &call) == STEPCCL_ERROR_UNSUPPORTED);
    CHECK(stepccl_group_end() == STEPCCL_ERROR_INVALID_USAGE);
    CHECK(stepccl_barrier(comm, nullptr) == STEPCCL_SUCCESS);
  });
}

TEST_CASE("every operation refuses null, misaligned and overflowing arguments, types and ranks that there are not") {
  struct Operation {
    const char* name;
    bool rooted;
    bool blocked;
    std::function<stepccl_result_t(stepccl_comm_t, const void*, void*, std::size_t, int, int, std::uint32_t)> call;
  };
  const auto type = [](int t) { return static_cast<stepccl_datatype_t>(t); };
  const auto op = [](int o) { return static_cast<stepccl_redop_t>(o); };
  const std::vector<Operation> operations{
      {"all_reduce", false, false, [=](auto c, auto s, auto r, auto n, int t, int o, auto) { return stepccl_all_reduce(c, s, r, n, type(t), op(o), nullptr); }},
      {"all_gather", false, true, [=](auto c, auto s, auto r, auto n, int t, int, auto) { return stepccl_all_gather(c, s, r, n, type(t), nullptr); }},
      {"reduce_scatter", false, true, [=](auto c, auto s, auto r, auto n, int t, int o, auto) { return stepccl_reduce_scatter(c, s, r, n, type(t), op(o), nullptr); }},
      {"broadcast", true, false, [=](auto c, auto s, auto r, auto n, int t, int, auto root) { return stepccl_broadcast(c, s, r, n, type(t), root, nullptr); }},
      {"reduce", true, false, [=](auto c, auto s, auto r, auto n, int t, int o, auto root) { return stepccl_reduce(c, s, r, n, type(t), op(o), root, nullptr); }},
      {"scatter", true, true, [=](auto c, auto s, auto r, auto n, int t, int, auto root) { return stepccl_scatter(c, s, r, n, type(t), root, nullptr); }},
      {"gather", true, true, [=](auto c, auto s, auto r, auto n, int t, int, auto root) { return stepccl_gather(c, s, r, n, type(t), root, nullptr); }},
      {"all_to_all", false, true, [=](auto c, auto s, auto r, auto n, int t, int, auto) { return stepccl_all_to_all(c, s, r, n, type(t), nullptr); }},
      {"send", true, false, [=](auto c, auto s, auto, auto n, int t, int, auto root) { return stepccl_send(c, s, n, type(t), root, nullptr); }},
      {"recv", true, false, [=](auto c, auto, auto r, auto n, int t, int, auto root) { return stepccl_recv(c, r, n, type(t), root, nullptr); }},
  };
  run_ranks(2, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<std::int64_t> send(64);
    std::vector<std::int64_t> recv(64);
    const auto odd = [](std::vector<std::int64_t>& array) { return reinterpret_cast<std::byte*>(array.data()) + 3; };
    const std::uint32_t good = 1 - rank;  // a root, or a peer
    for (const Operation& one : operations) {
      CAPTURE(one.name);
      const auto refused = [&](stepccl_result_t result) { CHECK(result == STEPCCL_ERROR_INVALID_ARGUMENT); };
      refused(one.call(nullptr, send.data(), recv.data(), 4, STEPCCL_INT64, STEPCCL_SUM, good));
      refused(one.call(comm, nullptr, nullptr, 4, STEPCCL_INT64, STEPCCL_SUM, good));
      refused(one.call(comm, odd(send), odd(recv), 4, STEPCCL_INT64, STEPCCL_SUM, good));
      for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1}) refused(one.call(comm, send.data(), recv.data(), count, STEPCCL_INT64, STEPCCL_SUM, good));
      if (one.blocked) refused(one.call(comm, send.data(), recv.data(), SIZE_MAX / 2 / 8, STEPCCL_INT64, STEPCCL_SUM, good));  // only all blocks together do not fit
      for (const int datatype : {-1, STEPCCL_DATATYPE_COUNT, 1 << 20}) refused(one.call(comm, send.data(), recv.data(), 4, datatype, STEPCCL_SUM, good));
      if (one.rooted) {
        for (const std::uint32_t root : {2u, 0xffffffffu}) refused(one.call(comm, send.data(), recv.data(), 4, STEPCCL_INT64, STEPCCL_SUM, root));
      }
      if (std::string(one.name).find("reduce") != std::string::npos) {
        for (const int redop : {-1, STEPCCL_REDOP_COUNT}) refused(one.call(comm, send.data(), recv.data(), 4, STEPCCL_INT64, redop, good));
      }
    }
    stepccl_call_t call = STEPCCL_CALL_INIT;
    call.size = 4;
    CHECK(stepccl_barrier(comm, &call) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(stepccl_barrier(nullptr, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(stepccl_request_wait(nullptr, 1) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(stepccl_request_test(nullptr, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(stepccl_request_query(nullptr, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(stepccl_request_free(nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
    CHECK(stepccl_comm_query(comm, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
    // None of it has touched the communicator.
    CHECK(stepccl_all_reduce(comm, send.data(), recv.data(), 4, STEPCCL_INT64, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
  });
}

TEST_CASE("a root, a type or a collective that differs is named on every rank") {
  using Call = stepccl_result_t (*)(stepccl_comm_t, void*, void*, bool odd);
  struct Case {
    const char* expected;
    Call call;
  };
  const Case cases[] = {
      {"root 1", [](stepccl_comm_t comm, void* a, void* b, bool odd) { return stepccl_broadcast(comm, a, b, 10, STEPCCL_INT32, odd ? 1 : 0, nullptr); }},
      {"to root 2", [](stepccl_comm_t comm, void* a, void* b, bool odd) { return stepccl_reduce(comm, a, b, 10, STEPCCL_INT32, STEPCCL_SUM, odd ? 2 : 0, nullptr); }},
      {"11 int32", [](stepccl_comm_t comm, void* a, void* b, bool odd) { return stepccl_all_gather(comm, a, b, odd ? 11 : 10, STEPCCL_INT32, nullptr); }},
      {"10 float", [](stepccl_comm_t comm, void* a, void* b, bool odd) { return stepccl_all_to_all(comm, a, b, 10, odd ? STEPCCL_FLOAT32 : STEPCCL_INT32, nullptr); }},
      {"barrier", [](stepccl_comm_t comm, void* a, void* b, bool odd) {
         return odd ? stepccl_barrier(comm, nullptr) : stepccl_gather(comm, a, b, 10, STEPCCL_INT32, 0, nullptr);
       }},
      {"scatter of", [](stepccl_comm_t comm, void* a, void* b, bool odd) {
         return odd ? stepccl_scatter(comm, a, b, 10, STEPCCL_INT32, 0, nullptr) : stepccl_reduce_scatter(comm, a, b, 10, STEPCCL_INT32, STEPCCL_MAX, nullptr);
       }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.expected);
    std::atomic<int> named{0};
    std::string texts[3];
    run_ranks(3, config_for(kShm), [&](std::uint32_t rank, stepccl_comm_t comm) {
      std::vector<std::int32_t> a(64);
      std::vector<std::int32_t> b(64);
      stepccl_result_t result = one.call(comm, a.data(), b.data(), rank == 1);
      // A rank that had nothing to wait for learns of it in its next call.
      if (result == STEPCCL_SUCCESS) result = stepccl_all_reduce(comm, a.data(), a.data(), 8, STEPCCL_INT32, STEPCCL_SUM, nullptr);
      texts[rank] = last_error(comm).text;
      named += result == STEPCCL_ERROR_MISMATCH && texts[rank].find(one.expected) != std::string::npos;
    });
    CHECK_MESSAGE(named.load() == 3, texts[0] << " | " << texts[1] << " | " << texts[2]);
  }
}
