// SPDX-License-Identifier: Apache-2.0
// The RDMA transport over the emulated device, through the C interface. The real path runs over Soft-RoCE in the lab.
#include <doctest/doctest.h>

#include <cstdlib>
#include <numeric>

#include "ranks.hpp"
#include "transport/rdma_wire.hpp"
#include "verbs_emulator.hpp"

using namespace stepccl;
using namespace stepccl::testing;
using namespace stepccl::transport;

namespace {

// An environment variable for the life of a test.
struct Variable {
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  const char* name_;
};

stepccl_config_t rdma_config() {
  stepccl_config_t config = config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_RDMA));
  config.chunk_bytes = 4096;
  return config;
}

// Sums of different lengths by all ranks, checked element by element.
void sum_and_check(stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'003}}) {
    for (const auto algorithm : {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_DIRECT_TWO_SHOT}) {
      std::vector<std::int32_t> send(count);
      std::vector<std::int32_t> recv(count, -1);
      for (std::size_t i = 0; i < count; ++i) send[i] = static_cast<std::int32_t>(i * (rank + 1));
      stepccl_call_t call = STEPCCL_CALL_INIT;
      call.algorithm = static_cast<std::uint32_t>(algorithm);
      REQUIRE(stepccl_all_reduce(comm, send.data(), recv.data(), count, STEPCCL_INT32, STEPCCL_SUM, &call) == STEPCCL_SUCCESS);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) wrong += recv[i] != static_cast<std::int32_t>(i * (world * (world + 1) / 2)) ? 1 : 0;
      CHECK(wrong == 0);
    }
  }
}

void run_all_reduce(std::uint32_t world) {
  run_ranks(world, rdma_config(), [&](std::uint32_t rank, stepccl_comm_t comm) {
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    stepccl_comm_query(comm, &info);
    CHECK(info.transport == STEPCCL_TRANSPORT_RDMA);
    sum_and_check(comm, rank, world);
  });
}

}  // namespace

TEST_CASE("sums over RDMA, on one queue pair per peer") {
  VerbsEmulator emulator({});
  run_all_reduce(3);
  CHECK(emulator.counters().delivered > 0);
  CHECK(emulator.counters().no_receive == 0);
  CHECK(emulator.counters().refused == 0);
  CHECK(emulator.counters().queue_pairs == 6);
  CHECK(emulator.alive() == 0);
}

TEST_CASE("loss, RNR and any order change no bit") {
  for (const char* split : {"0", "1"}) {
    CAPTURE(split);
    const Variable pairs("NCCL_IB_QPS_PER_CONNECTION", "4");
    const Variable cut("STEPCCL_IB_SPLIT_DATA_ON_QPS", split);
    VerbsEmulator emulator({7, 0.05, 0.05, true, 0});
    run_all_reduce(3);
    CHECK(emulator.counters().lost > 0);
    CHECK(emulator.counters().not_ready > 0);
    CHECK(emulator.counters().no_receive == 0);
    CHECK(emulator.counters().refused == 0);
    CHECK(emulator.counters().queue_pairs == 24);
    CHECK(emulator.alive() == 0);
  }
}

TEST_CASE("a port that dies ends the operation with the link named, and everything is freed") {
  VerbsEmulator emulator({3, 0, 0, false, 40});
  std::atomic<int> named{0};
  run_ranks(2, rdma_config(), [&](std::uint32_t, stepccl_comm_t comm) {
    std::vector<float> data(100'000, 1.0f);
    const stepccl_result_t result = stepccl_all_reduce(comm, data.data(), data.data(), data.size(), STEPCCL_FLOAT32, STEPCCL_SUM, nullptr);
    CHECK((result == STEPCCL_ERROR_TRANSPORT_FAILED || result == STEPCCL_ERROR_PEER_FAILED));
    const stepccl_error_info_t error = last_error(comm);
    CHECK(error.peer >= 0);
    const std::string text = error.text;
    if (text.find("retry counter exceeded") != std::string::npos && text.find("emu0 port 1") != std::string::npos) ++named;
    CHECK(stepccl_all_reduce(comm, data.data(), data.data(), 1, STEPCCL_FLOAT32, STEPCCL_SUM, nullptr) != STEPCCL_SUCCESS);
  });
  CHECK(named == 2);
  CHECK(emulator.alive() == 0);
}

TEST_CASE("calls that differ are told over RDMA too") {
  VerbsEmulator emulator({});
  run_ranks(2, rdma_config(), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<float> data(64, 1.0f);
    CHECK(stepccl_all_reduce(comm, data.data(), data.data(), 32 + rank, STEPCCL_FLOAT32, STEPCCL_SUM, nullptr) == STEPCCL_ERROR_MISMATCH);
    CHECK(std::string(last_error(comm).text).find(rank == 0 ? "of 33 float" : "of 32 float") != std::string::npos);
  });
  CHECK(emulator.alive() == 0);
}

TEST_CASE("parts of a message cover it once") {
  for (const bool split : {false, true}) {
    for (const std::uint32_t pairs : {1u, 3u, 4u, 128u}) {
      for (const std::uint64_t bytes : {0ull, 1ull, 127ull, 128ull, 129ull, 1000ull, 262'144ull}) {
        for (const std::uint32_t message : {0u, 1u, 4'000'000'000u}) {
          CAPTURE(bytes);
          const std::uint32_t parts = parts_of(bytes, pairs, split);
          std::uint64_t at = 0;
          for (std::uint32_t i = 0; i < parts; ++i) {
            const Part part = part_of(message, bytes, pairs, split, i);
            CHECK(part.offset == at);
            CHECK(part.queue_pair < pairs);
            CHECK((part.bytes % kStripeBytes == 0 || i + 1 == parts));
            CHECK((part.bytes > 0 || bytes == 0));
            at += part.bytes;
          }
          CHECK(at == bytes);
        }
      }
    }
  }
}

TEST_CASE("what a peer says of its queue pairs is checked") {
  ConnectionInfo good;
  good.queue_pairs = 2;
  good.mtu = 3;
  good.ethernet = 1;
  const auto parse = [](const ConnectionInfo& info, bool ethernet = true) { return parse_connection_info(std::as_bytes(std::span(&info, 1)), ethernet); };
  REQUIRE(parse(good).ok());
  const auto refused = [&](auto&& change) {
    ConnectionInfo info = good;
    change(info);
    auto parsed = parse(info);
    return !parsed.ok() && parsed.error().code == STEPCCL_ERROR_PROTOCOL;
  };
  CHECK(refused([](auto& i) { i.magic ^= 1; }));
  CHECK(refused([](auto& i) { i.queue_pairs = 0; }));
  CHECK(refused([](auto& i) { i.queue_pairs = 129; }));
  CHECK(refused([](auto& i) { i.mtu = 0; }));
  CHECK(refused([](auto& i) { i.mtu = 6; }));
  CHECK(refused([](auto& i) { i.split = 2; }));
  CHECK(refused([](auto& i) { i.ethernet = 0; }));
  CHECK_FALSE(parse_connection_info(std::as_bytes(std::span(&good, 1)).first(39), true).ok());

  std::vector<QueuePairEnd> ends{{1, 2}, {3, 4}};
  const auto list = [&] { return parse_queue_pairs(std::as_bytes(std::span(ends)), good); };
  REQUIRE(list().ok());
  CHECK(list().value()[1].packet_number == 4);
  ends[1].number = 1u << 24;
  CHECK_FALSE(list().ok());
  ends.pop_back();
  CHECK_FALSE(list().ok());

  const ClearToSend record{1, 64, 2, 5, 9, 10};
  CHECK(check_clearance(record, 5, {9, 10}, 64).ok());
  CHECK(check_clearance(record, 6, {9, 10}, 64).error().code == STEPCCL_ERROR_PROTOCOL);
  CHECK(check_clearance(record, 5, {9, 11}, 64).error().code == STEPCCL_ERROR_MISMATCH);
  CHECK(check_clearance(record, 5, {9, 10}, 65).error().code == STEPCCL_ERROR_MISMATCH);
}
