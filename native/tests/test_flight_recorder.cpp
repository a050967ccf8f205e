// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
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
  recorder.called(call(5));
  CHECK(op(0).state == STEPCCL_FLIGHT_QUEUED);
  recorder.called(call(6));
  recorder.started(5, 60, STEPCCL_ALGORITHM_RING, STEPCCL_TRANSPORT_TCP);
  CHECK(op(0).started_ns == 60);
  CHECK(op(0).transport == STEPCCL_TRANSPORT_TCP);
  CHECK(op(1).state == STEPCCL_FLIGHT_QUEUED);
  std::vector<std::uint32_t> ranks(20);
  for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
  recorder.waits_for(5, ranks);
  CHECK(op(0).waiting_count == 20);
  CHECK(op(0).waiting[STEPCCL_FLIGHT_WAITING - 1] == STEPCCL_FLIGHT_WAITING - 1);
  recorder.waits_for(5, {});
  CHECK(op(0).waiting_count == 0);
  recorder.ended(5, 70, 0);
  CHECK(op(0).state == STEPCCL_FLIGHT_COMPLETED);
  CHECK(op(0).ended_ns == 70);
  // What was never called, and what comes again, change nothing.
  recorder.ended(4, 1, 1);
  recorder.started(99, 1, 1, 1);
  CHECK(op(0).ended_ns == 70);
  CHECK(op(1).state == STEPCCL_FLIGHT_QUEUED);
}

TEST_CASE("the last operations stay, an overwritten one is left alone") {
  Folder folder;
  telemetry::FlightRecorder recorder;
  REQUIRE(recorder.open(folder.path, 1, 0, 2, ""));
  for (std::uint64_t i = 1; i <= STEPCCL_FLIGHT_OP_SLOTS + 1; ++i) recorder.called(call(i));
  recorder.ended(1, 5, 0);  // its slot belongs to the last one now
  const Recording recording(recorder.path());
  CHECK(recording.header.op_head == STEPCCL_FLIGHT_OP_SLOTS + 1);
  CHECK(recording.ops[0].sequence == STEPCCL_FLIGHT_OP_SLOTS + 1);
  CHECK(recording.ops[0].state == STEPCCL_FLIGHT_QUEUED);
  CHECK(recording.ops[1].sequence == 2);
}

TEST_CASE("without a folder there is no recorder, and no error") {
  telemetry::FlightRecorder recorder;
  CHECK_FALSE(recorder.open("/nonexistent", 1, 0, 2, ""));
  recorder.called(call(1));
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
