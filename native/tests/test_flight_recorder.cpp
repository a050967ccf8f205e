// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "telemetry/flight_recorder.hpp"

using namespace stepccl;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/stepccl-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::vector<std::string> flights() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".flight") found.push_back(entry.path());
    }
    return found;
  }
};

// The file as another process sees it.
struct Recording {
  stepccl_flight_header header{};
  std::vector<stepccl_flight_op> ops;

  explicit Recording(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(bytes.size() == sizeof header + STEPCCL_FLIGHT_OP_SLOTS * sizeof(stepccl_flight_op));
    std::memcpy(&header, bytes.data(), sizeof header);
    ops.resize(STEPCCL_FLIGHT_OP_SLOTS);
    std::memcpy(ops.data(), bytes.data() + sizeof header, ops.size() * sizeof ops[0]);
  }
};

stepccl_flight_op call(std::uint64_t sequence) {
  stepccl_flight_op op{};
  op.sequence = sequence;
  op.queued_ns = 10 * sequence;
  op.count = 7;
  op.state = STEPCCL_FLIGHT_QUEUED;
  op.redop = STEPCCL_FLIGHT_NO_REDOP;
  return op;
}

}  // namespace

TEST_CASE("an operation is followed from its call to its end") {
  Folder folder;
  telemetry::FlightRecorder recorder;
  REQUIRE(recorder.open(folder.path, 0xabc, 3, 4, "a job"));
  const auto op = [&](std::size_t slot) {
    const Recording recording(recorder.path());
    CHECK(recording.ops[slot].edits % 2 == 0);
    return recording.ops[slot];
  };
  CHECK(Recording(recorder.path()).header.world_size == 4);
  CHECK(std::string(reinterpret_cast<const char*>(Recording(recorder.path()).header.job_name)) == "a job");
  const std::uint64_t first = recorder.called(call(5));
  CHECK(op(0).state == STEPCCL_FLIGHT_QUEUED);
  const std::uint64_t second = recorder.called(call(6));
  CHECK(first != 0);
  CHECK(second != first);
  recorder.started(first, 60, 50, STEPCCL_ALGORITHM_RING, STEPCCL_TRANSPORT_TCP);
  CHECK(op(0).started_ns == 60);
  CHECK(op(0).sequence == 50);
  CHECK(op(0).transport == STEPCCL_TRANSPORT_TCP);
  CHECK(op(1).state == STEPCCL_FLIGHT_QUEUED);
  std::vector<std::uint32_t> ranks(20);
  for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
  recorder.waits_for(first, ranks);
  CHECK(op(0).waiting_count == 20);
  CHECK(op(0).waiting[STEPCCL_FLIGHT_WAITING - 1] == STEPCCL_FLIGHT_WAITING - 1);
  recorder.waits_for(first, {});
  CHECK(op(0).waiting_count == 0);
  recorder.ended(first, 70, 0);
  CHECK(op(0).state == STEPCCL_FLIGHT_COMPLETED);
  CHECK(op(0).ended_ns == 70);
  // What was never called, and what has ended, change nothing.
  recorder.ended(0, 1, 1);
  recorder.ended(99, 1, 1);
  recorder.ended(first, 1, 1);
  recorder.started(99, 1, 1, 1, 1);
  CHECK(op(0).ended_ns == 70);
  CHECK(op(0).error == 0);
  CHECK(op(1).state == STEPCCL_FLIGHT_QUEUED);
}

TEST_CASE("the last operations stay, and those that have not ended stay longer") {
  Folder folder;
  telemetry::FlightRecorder recorder;
  REQUIRE(recorder.open(folder.path, 1, 0, 2, ""));
  const std::uint64_t open = recorder.called(call(1));
  const std::uint64_t early = recorder.called(call(2));
  recorder.ended(early, 1, 0);
  for (std::uint64_t i = 3; i <= STEPCCL_FLIGHT_OP_SLOTS + 2; ++i) recorder.ended(recorder.called(call(i)), i, 0);
  recorder.ended(early, 99, 7);  // its slot belongs to another one now
  Recording recording(recorder.path());
  CHECK(recording.ops[0].sequence == 1);  // passed over
  CHECK(recording.ops[0].state == STEPCCL_FLIGHT_QUEUED);
  CHECK(recording.ops[1].sequence == STEPCCL_FLIGHT_OP_SLOTS + 1);
  CHECK(recording.ops[1].error == 0);
  CHECK(recording.ops[3].sequence == 4);
  recorder.ended(open, 5, 0);
  for (std::uint64_t i = 0; i < STEPCCL_FLIGHT_OP_SLOTS; ++i) CHECK(recorder.called(call(5000 + i)) != 0);
  CHECK(recorder.called(call(9999)) == 0);  // full of operations that have not ended
  recording = Recording(recorder.path());
  for (const stepccl_flight_op& op : recording.ops) CHECK(op.sequence >= 5000);
  for (const stepccl_flight_op& op : recording.ops) CHECK(op.sequence != 9999);
}

TEST_CASE("many threads call operations while another runs them") {
  Folder folder;
  telemetry::FlightRecorder recorder;
  REQUIRE(recorder.open(folder.path, 1, 0, 2, ""));
  constexpr std::uint64_t kEach = 600;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t number = recorder.called(call(t * kEach + i + 1));
        if (number == 0) continue;
        recorder.started(number, 1, t * kEach + i + 1, 1, 1);
        recorder.ended(number, 2, 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const Recording recording(recorder.path());
  CHECK(recording.header.op_head >= 4 * kEach);  // a slot whose operation has not ended is passed over
  for (const stepccl_flight_op& op : recording.ops) {
    CHECK(op.edits % 2 == 0);
    CHECK(op.state == STEPCCL_FLIGHT_COMPLETED);
    CHECK(op.queued_ns == 10 * op.sequence);  // one call's own fields
  }
}

TEST_CASE("without a folder there is no recorder, and no error") {
  telemetry::FlightRecorder recorder;
  CHECK_FALSE(recorder.open("/nonexistent", 1, 0, 2, ""));
  CHECK(recorder.called(call(1)) == 0);
  recorder.waits_for(1, {});
  recorder.ended(1, 1, 0);
}

TEST_CASE("a short collective that nobody had to wait for is recorded whole") {
  Folder folder;
  stepccl_config_t config = testing::config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM));
  config.telemetry_dir = folder.path.c_str();
  testing::run_ranks(2, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
    for (std::int32_t i = 0; i < 5; ++i) {
      std::int32_t sum = 0;
      CHECK(stepccl_all_reduce(comm, &i, &sum, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
      CHECK(sum == 2 * i);
    }
    for (const std::string& path : folder.flights()) {
      const Recording recording(path);
      if (recording.header.rank != rank) continue;
      CHECK(recording.header.op_head == 5);
      for (std::size_t i = 0; i < 5; ++i) {
        const stepccl_flight_op& op = recording.ops[i];
        CHECK(op.sequence == i + 1);
        CHECK(op.state == STEPCCL_FLIGHT_COMPLETED);
        CHECK(op.started_ns != 0);
        CHECK(op.ended_ns >= op.started_ns);
        CHECK(op.bytes == 4);
        CHECK(op.waiting_count == 0);
      }
    }
    CHECK(stepccl_barrier(comm, nullptr) == STEPCCL_SUCCESS);
  });
}

TEST_CASE("the file goes with a healthy communicator and stays after a failure") {
  Folder folder;
  stepccl_config_t config = testing::config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM));
  config.telemetry_dir = folder.path.c_str();
  testing::run_ranks(2, config, [&](std::uint32_t, stepccl_comm_t comm) {
    std::int32_t one = 1;
    std::int32_t sum = 0;
    CHECK(stepccl_all_reduce(comm, &one, &sum, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
    CHECK(folder.flights().size() == 2);
  });
  CHECK(folder.flights().empty());

  // Rank 1 never calls the operation: rank 0's recorder says so.
  testing::run_ranks(2, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
    if (rank == 1) return;
    std::int32_t one = 1;
    std::int32_t sum = 0;
    stepccl_call_t call = STEPCCL_CALL_INIT;
    call.timeout_ms = 200;
    CHECK(stepccl_all_reduce(comm, &one, &sum, 1, STEPCCL_INT32, STEPCCL_SUM, &call) == STEPCCL_ERROR_TIMEOUT);
  });
  bool seen = false;
  for (const std::string& path : folder.flights()) {
    const Recording recording(path);
    if (recording.header.rank != 0) continue;
    seen = true;
    CHECK(recording.ops[0].state == STEPCCL_FLIGHT_FAILED);
    CHECK(recording.ops[0].error == STEPCCL_ERROR_TIMEOUT);
    CHECK(recording.ops[0].waiting_count == 1);
    CHECK(recording.ops[0].waiting[0] == 1);
    CHECK(recording.ops[0].bytes == 4);
  }
  CHECK(seen);
}

namespace {

// The operations that rank 0's recorder holds, in the order of the calls.
std::vector<stepccl_flight_op> operations_of_rank_0(const Folder& folder) {
  std::vector<stepccl_flight_op> ops;
  for (const std::string& path : folder.flights()) {
    const Recording recording(path);
    if (recording.header.rank == 0) ops.assign(recording.ops.begin(), recording.ops.begin() + static_cast<std::ptrdiff_t>(recording.header.op_head));
  }
  return ops;
}

// Looks again until `wanted` holds, for as long as a loaded machine may need.
bool seen_within_10_s(const Folder& folder, const std::function<bool(const std::vector<stepccl_flight_op>&)>& wanted) {
  for (int i = 0; i < 1'000; ++i) {
    if (wanted(operations_of_rank_0(folder))) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

stepccl_config_t recorded(const Folder& folder, std::uint32_t transport) {
  stepccl_config_t config = testing::config_for(STEPCCL_TRANSPORT_BIT(transport));
  config.telemetry_dir = folder.path.c_str();
  return config;
}

}  // namespace

TEST_CASE("asynchronous operations show while they stand in line") {
  for (const std::uint32_t transport : {STEPCCL_TRANSPORT_SHM, STEPCCL_TRANSPORT_TCP}) {
    CAPTURE(transport);
    Folder folder;
    std::atomic<bool> looked{false};
    testing::run_ranks(2, recorded(folder, transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
      constexpr std::size_t kCalls = 8;
      std::vector<std::int32_t> data(kCalls, 1);
      std::vector<stepccl_request_t> requests(kCalls);
      // Rank 1 comes only when rank 0's recorder has been read.
      while (rank == 1 && !looked) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      for (std::size_t i = 0; i < kCalls; ++i) {
        stepccl_call_t call = STEPCCL_CALL_INIT;
        call.request = &requests[i];
        REQUIRE(stepccl_all_reduce(comm, &data[i], &data[i], 1, STEPCCL_INT32, STEPCCL_SUM, &call) == STEPCCL_SUCCESS);
      }
      if (rank == 0) {
        CHECK(seen_within_10_s(folder, [](const auto& ops) {
          return ops.size() == kCalls && ops[0].state == STEPCCL_FLIGHT_STARTED && ops[0].waiting_count == 1 && ops[0].waiting[0] == 1 && ops[0].sequence == 1 &&
                 ops[kCalls - 1].state == STEPCCL_FLIGHT_QUEUED && ops[kCalls - 1].started_ns == 0 && ops[kCalls - 1].queued_ns != 0 && ops[kCalls - 1].sequence == kCalls;
        }));
        looked = true;
      }
      for (const stepccl_request_t request : requests) {
        CHECK(stepccl_request_wait(request, 0) == STEPCCL_SUCCESS);
        stepccl_request_free(request);
      }
      if (rank != 0) return;
      for (const stepccl_flight_op& op : operations_of_rank_0(folder)) {
        CHECK(op.state == STEPCCL_FLIGHT_COMPLETED);
        CHECK(op.started_ns >= op.queued_ns);
        CHECK(op.ended_ns >= op.started_ns);
      }
    });
  }
}

TEST_CASE("messages, groups and what is fused show one by one") {
  Folder folder;
  testing::run_ranks(2, recorded(folder, STEPCCL_TRANSPORT_SHM), [&](std::uint32_t rank, stepccl_comm_t comm) {
    const std::uint32_t peer = 1 - rank;
    std::vector<std::int32_t> data(8, 1);
    REQUIRE(stepccl_group_start() == STEPCCL_SUCCESS);
    REQUIRE(stepccl_send(comm, &data[0], 1, STEPCCL_INT32, peer, nullptr) == STEPCCL_SUCCESS);
    REQUIRE(stepccl_recv(comm, &data[1], 1, STEPCCL_INT32, peer, nullptr) == STEPCCL_SUCCESS);
    REQUIRE(stepccl_send(comm, &data[2], 1, STEPCCL_INT32, rank, nullptr) == STEPCCL_SUCCESS);
    REQUIRE(stepccl_recv(comm, &data[3], 1, STEPCCL_INT32, rank, nullptr) == STEPCCL_SUCCESS);
    for (std::size_t i = 4; i < 7; ++i) REQUIRE(stepccl_all_reduce(comm, &data[i], &data[i], 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
    REQUIRE(stepccl_group_end() == STEPCCL_SUCCESS);
    REQUIRE(stepccl_barrier(comm, nullptr) == STEPCCL_SUCCESS);
    if (rank == 0) {
      const auto ops = operations_of_rank_0(folder);
      REQUIRE(ops.size() == 8);
      for (const stepccl_flight_op& op : ops) CHECK(op.state == STEPCCL_FLIGHT_COMPLETED);
      const auto find = [&](std::uint8_t message, std::uint32_t root) {
        return std::count_if(ops.begin(), ops.end(), [&](const auto& op) { return op.message == message && op.root == root && op.collective == STEPCCL_SEND_RECV && op.bytes == 4; });
      };
      CHECK(find(STEPCCL_FLIGHT_SEND, 1) == 1);
      CHECK(find(STEPCCL_FLIGHT_RECV, 1) == 1);
      CHECK(find(STEPCCL_FLIGHT_SEND, 0) == 1);
      CHECK(find(STEPCCL_FLIGHT_RECV, 0) == 1);
      std::vector<std::uint64_t> numbers;
      for (const stepccl_flight_op& op : ops) {
        if (op.collective == STEPCCL_ALL_REDUCE) numbers.push_back(op.sequence);
        if (op.collective == STEPCCL_BARRIER) CHECK(op.sequence == 4);
      }
      CHECK(numbers == std::vector<std::uint64_t>{1, 2, 3});
    }
    REQUIRE(stepccl_barrier(comm, nullptr) == STEPCCL_SUCCESS);  // rank 1's own file may go only now
  });
}

TEST_CASE("a send that nobody receives is told with its peer, a refused call keeps no file") {
  Folder folder;
  testing::run_ranks(2, recorded(folder, STEPCCL_TRANSPORT_TCP), [&](std::uint32_t rank, stepccl_comm_t comm) {
    stepccl_call_t call = STEPCCL_CALL_INIT;
    call.algorithm = STEPCCL_ALGORITHM_BRUCK;
    std::int32_t one = 1;
    CHECK(stepccl_all_reduce(comm, &one, &one, 1, STEPCCL_INT32, STEPCCL_SUM, &call) == STEPCCL_ERROR_UNSUPPORTED);
    CHECK(stepccl_all_reduce(comm, &one, &one, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
    if (rank == 0) {
      const auto ops = operations_of_rank_0(folder);
      REQUIRE(ops.size() == 2);
      CHECK(ops[0].state == STEPCCL_FLIGHT_FAILED);
      CHECK(ops[0].error == STEPCCL_ERROR_UNSUPPORTED);
      CHECK(ops[1].sequence == 2);
    }
  });
  CHECK(folder.flights().empty());

  testing::run_ranks(2, recorded(folder, STEPCCL_TRANSPORT_TCP), [&](std::uint32_t rank, stepccl_comm_t comm) {
    if (rank == 1) return;
    std::vector<std::byte> data(4u << 20);
    stepccl_call_t call = STEPCCL_CALL_INIT;
    call.timeout_ms = 200;
    CHECK(stepccl_send(comm, data.data(), data.size(), STEPCCL_UINT8, 1, &call) == STEPCCL_ERROR_TIMEOUT);
  });
  const auto ops = operations_of_rank_0(folder);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].message == STEPCCL_FLIGHT_SEND);
  CHECK(ops[0].root == 1);
  CHECK(ops[0].sequence == 1);
  CHECK(ops[0].state == STEPCCL_FLIGHT_FAILED);
  CHECK(ops[0].error == STEPCCL_ERROR_TIMEOUT);
  CHECK(ops[0].waiting_count == 1);
  CHECK(ops[0].waiting[0] == 1);
}
