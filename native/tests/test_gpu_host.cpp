// SPDX-License-Identifier: Apache-2.0
// The GPU engine's parts that need no GPU: how operations are cut into messages, the ranks' ledger and local sockets,
// and what the interface says where there is no GPU.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <condition_variable>
#include <thread>

#include "core/float16.hpp"
#include "cuda/ledger.hpp"
#include "cuda/mesh.hpp"
#include "cuda/operation.hpp"

using namespace stepccl;
using namespace stepccl::cuda;

namespace {

// Carries an operation out on the CPU, message by message as the kernels do, for all ranks at once.
void carry_out(std::vector<Operation>& operations, std::uint64_t one_shot_bytes) {
  const auto ranks = static_cast<std::uint32_t>(operations.size());
  std::vector<std::vector<Messages>> rounds;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) rounds.push_back(messages_of(operations[rank], rank, ranks, one_shot_bytes));
  for (std::size_t round = 0; round < rounds[0].size(); ++round) {
    std::vector<std::vector<std::vector<unsigned char>>> wire(ranks, std::vector<std::vector<unsigned char>>(ranks));
    for (std::uint32_t from = 0; from < ranks; ++from) {
      const Messages& messages = rounds[from][round];
      for (std::uint32_t to = 0; to < ranks; ++to) {
        CHECK(messages.paired[to] == rounds[to][round].paired[from]);
        if (messages.send_bytes[to] == 0) continue;
        CHECK(messages.paired[to]);
        CHECK(messages.send_bytes[to] == rounds[to][round].recv_bytes[from]);
        wire[from][to].assign(messages.send[to], messages.send[to] + messages.send_bytes[to]);
      }
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Messages& messages = rounds[rank][round];
      if (!messages.reduce) {
        if (messages.own_out != nullptr && messages.own_bytes != 0 && messages.own_out != messages.own) std::memcpy(messages.own_out, messages.own, messages.own_bytes);
        for (std::uint32_t from = 0; from < ranks; ++from) {
          if (!wire[from][rank].empty()) std::memcpy(messages.recv[from], wire[from][rank].data(), wire[from][rank].size());
        }
        continue;
      }
      if (messages.own_out == nullptr) continue;
      std::vector<std::int32_t> sum(messages.own_bytes / 4, 0);
      for (std::uint32_t from = 0; from < ranks; ++from) {
        const unsigned char* part = from == rank ? messages.own : wire[from][rank].data();
        for (std::size_t i = 0; i < sum.size(); ++i) {
          std::int32_t value = 0;
          std::memcpy(&value, part + i * 4, 4);
          sum[i] += value;
        }
      }
      if (!sum.empty()) std::memcpy(messages.own_out, sum.data(), messages.own_bytes);
    }
  }
}

std::int32_t element(std::uint32_t rank, std::size_t index) { return static_cast<std::int32_t>(rank * 100003 + index * 17 + 1); }

}  // namespace

TEST_CASE("messages carry every collective out, for any number of ranks, in place and not") {
  constexpr stepccl_collective_t kKinds[] = {STEPCCL_ALL_REDUCE, STEPCCL_ALL_GATHER, STEPCCL_REDUCE_SCATTER, STEPCCL_BROADCAST,
                                             STEPCCL_REDUCE,     STEPCCL_SCATTER,    STEPCCL_GATHER,         STEPCCL_ALL_TO_ALL};
  for (const auto kind : kKinds) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 5u, 8u}) {
      for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{33}, std::uint64_t{1000}}) {
        for (const std::uint64_t one_shot : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
          for (const bool in_place : {false, true}) {
            if (in_place && kind == STEPCCL_ALL_TO_ALL) continue;
            CAPTURE(static_cast<int>(kind));
            CAPTURE(ranks);
            CAPTURE(count);
            CAPTURE(in_place);
            const std::uint32_t root = ranks - 1;
            const bool send_wide = kind == STEPCCL_REDUCE_SCATTER || kind == STEPCCL_SCATTER || kind == STEPCCL_ALL_TO_ALL;
            const bool recv_wide = kind == STEPCCL_ALL_GATHER || kind == STEPCCL_GATHER || kind == STEPCCL_ALL_TO_ALL;
            std::vector<std::vector<std::int32_t>> sends;
            std::vector<std::vector<std::int32_t>> recvs;
            std::vector<Operation> operations(ranks);
            for (std::uint32_t rank = 0; rank < ranks; ++rank) {
              sends.emplace_back(count * ranks);
              recvs.emplace_back(count * ranks, -7);
            }
            for (std::uint32_t rank = 0; rank < ranks; ++rank) {
              Operation& op = operations[rank];
              op.kind = kind;
              op.count = count;
              op.datatype = STEPCCL_INT32;
              op.root = root;
              std::int32_t* send = sends[rank].data();
              std::int32_t* recv = recvs[rank].data();
              if (in_place && send_wide) recv = send + rank * count;
              else if (in_place) send = recv + (recv_wide ? rank * count : 0);
              for (std::size_t i = 0; i < count * (send_wide ? ranks : 1); ++i) send[i] = element(rank, i);
              op.send = reinterpret_cast<unsigned char*>(send);
              op.recv = reinterpret_cast<unsigned char*>(recv);
              CHECK(op.check(rank, ranks).ok());
            }
            carry_out(operations, one_shot);
            for (std::uint32_t rank = 0; rank < ranks; ++rank) {
              if ((kind == STEPCCL_REDUCE || kind == STEPCCL_GATHER) && rank != root) continue;
              const auto* got = reinterpret_cast<const std::int32_t*>(operations[rank].recv);
              for (std::size_t i = 0; i < count * (recv_wide ? ranks : 1); ++i) {
                std::int32_t wanted = 0;
                const auto block = static_cast<std::uint32_t>(i / count);
                switch (kind) {
                  case STEPCCL_ALL_REDUCE:
                  case STEPCCL_REDUCE:
                    for (std::uint32_t from = 0; from < ranks; ++from) wanted += element(from, i);
                    break;
                  case STEPCCL_REDUCE_SCATTER:
                    for (std::uint32_t from = 0; from < ranks; ++from) wanted += element(from, rank * count + i);
                    break;
                  case STEPCCL_BROADCAST: wanted = element(root, i); break;
                  case STEPCCL_SCATTER: wanted = element(root, rank * count + i); break;
                  case STEPCCL_ALL_TO_ALL: wanted = element(block, rank * count + i % count); break;
                  default: wanted = element(block, i % count); break;
                }
                if (got[i] != wanted) FAIL("element " << i << " of rank " << rank << " is " << got[i] << ", not " << wanted);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("both ends cut a message alike, and into pieces that cover it") {
  for (const std::uint64_t bytes : {0ull, 1ull, 15ull, 16ull, 4095ull, 1000003ull, 123456789ull}) {
    for (const std::uint32_t blocks : {1u, 3u, 32u}) {
      const std::uint64_t share = Cut::staged_share(bytes, blocks, 32768);
      const std::uint64_t pieces = Cut::staged_pieces(bytes, blocks, 32768);
      CHECK(share % 16 == 0);
      CHECK(share <= 32768);
      CHECK(pieces >= 1);
      CHECK(pieces * blocks * share >= bytes);
      if (bytes != 0) CHECK((pieces - 1) * blocks * share < bytes);
      CHECK(Cut::flagged_share(bytes, blocks) * blocks >= bytes);
    }
  }
  for (const std::uint32_t ranks : {1u, 2u, 7u, 16u}) {
    std::uint64_t next = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Share share = share_of(1000003, rank, ranks);
      CHECK((share.begin == next || share.bytes == 0));
      next = share.begin + share.bytes;
      if (share.bytes != 0) CHECK(share.begin % 128 == 0);
    }
    CHECK(next == 1000003);
  }
}

TEST_CASE("the parts of a lane don't overlap") {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 16u}) {
    const LaneLayout layout{ranks, LaneLayout::piece_for(ranks), LaneLayout::packed_lines_for(ranks)};
    CHECK(LaneLayout::ready(kMaxRanks) <= LaneLayout::complete(0));
    CHECK(LaneLayout::complete(kMaxRanks) <= LaneLayout::barrier_flag(0, 0));
    CHECK(LaneLayout::barrier_flag(kMaxBlocks, 0) <= LaneLayout::staged_flag(0, 0));
    CHECK(LaneLayout::staged_flag(kMaxBlocks, 0) <= LaneLayout::flagged_count(0, 0));
    CHECK(LaneLayout::flagged_count(kMaxBlocks, 0) <= LaneLayout::staged_count(0, 0));
    CHECK(LaneLayout::staged_count(kMaxBlocks, 0) <= LaneLayout::barrier_count(0));
    CHECK(LaneLayout::barrier_count(kMaxBlocks) <= LaneLayout::chunk_count(0));
    CHECK(LaneLayout::chunk_count(kChunkCounters) <= LaneLayout::chunk_done());
    CHECK(LaneLayout::chunk_done() + 4 <= LaneLayout::chunk_came(0, 0));
    CHECK(LaneLayout::chunk_came(kChunkSlots, 0) <= LaneLayout::chunk_free(0, 0));
    CHECK(LaneLayout::chunk_free(kChunkSlots, 0) <= LaneLayout::header_bytes());
    const std::uint32_t last = ranks - 1;
    CHECK(layout.flagged(0, 1, 0, 0) == LaneLayout::header_bytes());
    CHECK(layout.flagged(last - 1, last, 1, kMaxBlocks - 1) + 2 * kFlaggedBytes == layout.staged(0, 1, 0, 0));
    CHECK(layout.staged(last - 1, last, kSlots - 1, kMaxBlocks - 1) + layout.piece_bytes <= layout.packed(0, 1, 0, 0));
    CHECK(layout.packed(last - 1, last, 1, kMaxBlocks - 1) + layout.packed_lines * kLineBytes <= layout.bytes());
    CHECK(LaneLayout::chunk_end() <= LaneLayout::relayed());
    CHECK(LaneLayout::relayed() + 64 <= LaneLayout::packed_count(0, 0));
    CHECK(LaneLayout::packed_count(kMaxBlocks, 0) <= LaneLayout::header_bytes());
    // A message that the whole budget can carry has lines enough in each of the blocks that it gets.
    for (const std::uint32_t budget : {1u, 7u, kMaxBlocks}) {
      for (std::uint64_t bytes = 1; bytes <= layout.packed_bytes(budget); bytes += 1 + bytes / 3) {
        const std::uint32_t blocks = packed_blocks(bytes, budget, layout.packed_lines, Thresholds());
        CHECK(Cut::packed_share(bytes, blocks) <= std::uint64_t{layout.packed_lines} * kLineData);
        CHECK(Cut::packed_share(bytes, blocks) * blocks >= bytes);
      }
    }
  }
}

TEST_CASE("bad operations are refused") {
  alignas(16) static unsigned char memory[4096];
  Operation op;
  op.kind = STEPCCL_ALL_REDUCE;
  op.datatype = STEPCCL_FLOAT32;
  op.count = 16;
  op.send = memory;
  op.recv = memory + 1024;
  CHECK(op.check(0, 2).ok());
  const auto refused = [&](auto&& change) {
    Operation bad = op;
    change(bad);
    const Status status = bad.check(0, 2);
    return !status.ok() && status.error().code == STEPCCL_ERROR_INVALID_ARGUMENT;
  };
  CHECK(refused([](Operation& bad) { bad.send = nullptr; }));
  CHECK(refused([](Operation& bad) { bad.recv = memory + 2; }));
  CHECK(refused([](Operation& bad) { bad.recv = memory + 4; }));
  CHECK(refused([](Operation& bad) { bad.datatype = static_cast<stepccl_datatype_t>(77); }));
  CHECK(refused([](Operation& bad) { bad.redop = static_cast<stepccl_redop_t>(-1); }));
  CHECK(refused([](Operation& bad) { bad.root = 2; }));
  CHECK(refused([](Operation& bad) { bad.count = UINT64_MAX / 4; }));
}

TEST_CASE("a calibration is taken or named as wrong") {
  CHECK(Thresholds::parse("{\"flagged_bytes\": 4096, \"bulk_blocks\": 4}", {}).value().flagged_bytes == 4096);
  CHECK(Thresholds::parse("{}", {}).ok());
  for (const char* bad : {"", "[]", "{\"flagged_bytes\": -1}", "{\"bulk_blocks\": 0}", "{\"bulk_blocks\": 1000}", "{\"flagged_bytes\": \"4\"}"}) {
    CAPTURE(bad);
    CHECK(Thresholds::parse(bad, {}).error().code == STEPCCL_ERROR_INVALID_CONFIGURATION);
  }
}

TEST_CASE("thresholds shrink with the peers that a rank sends to") {
  CHECK(Thresholds::per_peer(256u << 10, 2) == 256u << 10);
  CHECK(Thresholds::per_peer(256u << 10, 5) == 64u << 10);
  CHECK(Thresholds::one_shot_for(4) == 256u << 10);
  CHECK(Thresholds::one_shot_for(8) == 106'666);
  CHECK(Thresholds::one_shot_for(16) == 42'666);
  Thresholds standard;
  standard.one_shot_bytes = 77;
  CHECK(Thresholds::parse("{}", standard).value().one_shot_bytes == 77);
  CHECK(Thresholds::parse("{\"one_shot_bytes\": 99}", standard).value().one_shot_bytes == 99);
}

TEST_CASE("the ledger finds the first call that differs and names both") {
  auto memory = Ledger::create(2);
  REQUIRE(memory.ok());
  auto first = Ledger::open(memory.value(), 0, 2);
  auto second = Ledger::open(memory.value(), 1, 2);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  Entry entry;
  entry.collective = STEPCCL_ALL_REDUCE;
  entry.datatype = STEPCCL_BFLOAT16;
  entry.count = 10;
  for (int i = 0; i < 1000; ++i) {
    first.value().note(entry);
    second.value().note(entry);
    if (i % 100 == 0) CHECK_FALSE(first.value().look());
  }
  first.value().note(entry);
  CHECK_FALSE(first.value().look());  // the other has not come there
  entry.count = 11;
  second.value().note(entry);
  const auto error = second.value().look();
  REQUIRE(error);
  CHECK(error->code == STEPCCL_ERROR_MISMATCH);
  CHECK(error->peer == 0);
  CHECK(error->cause == "call 1001 is all_reduce of 11 bfloat16 sum here and all_reduce of 10 bfloat16 sum there");
}

TEST_CASE("ranks exchange bytes and descriptors") {
  constexpr std::uint32_t kRanks = 4;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::byte>> cards(kRanks);
  std::uint32_t told = 0;
  std::vector<std::thread> threads;
  std::array<bool, kRanks> well{};
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      auto mesh = Mesh::connect(rank, kRanks, 10'000, [&](std::span<const std::byte> mine) -> Expected<std::vector<std::vector<std::byte>>> {
        std::unique_lock lock(mutex);
        cards[rank].assign(mine.begin(), mine.end());
        ++told;
        changed.notify_all();
        changed.wait(lock, [&] { return told == kRanks; });
        return cards;
      });
      if (!mesh.ok()) return;
      bool good = true;
      for (std::uint32_t round = 0; round < 20; ++round) {
        int pipes[2] = {-1, -1};
        if (::pipe(pipes) != 0) return;
        const Fd reader(pipes[0]);
        Fd writer(pipes[1]);
        // Every rank gives the reading end of a pipe that holds its number; more of them than one message carries.
        const auto mark = static_cast<char>('a' + rank);
        for (std::uint32_t i = 0; i < 200; ++i) good = good && ::write(writer.get(), &mark, 1) == 1;
        const std::vector<int> descriptors(round % 3 == 0 ? 200 : round % 3, reader.get());
        std::vector<std::byte> bytes(round * 1000 * (rank + 1), static_cast<std::byte>(rank));
        auto all = mesh.value().exchange(bytes, descriptors, 10'000, [] { return Status(); });
        if (!all.ok()) return;
        for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
          good = good && all.value()[peer].bytes == std::vector<std::byte>(round * 1000 * (peer + 1), static_cast<std::byte>(peer));
          if (peer == rank) continue;
          good = good && all.value()[peer].descriptors.size() == descriptors.size();
          for (const Fd& descriptor : all.value()[peer].descriptors) {
            char got = 0;
            if (&descriptor == &all.value()[peer].descriptors.front()) good = good && ::read(descriptor.get(), &got, 1) == 1 && got == static_cast<char>('a' + peer);
          }
        }
      }
      well[rank] = good;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const bool one : well) CHECK(one);
}

TEST_CASE("a rank that does not come is a timeout that names it, a gone one is closed") {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::byte>> cards(2);
  std::uint32_t told = 0;
  std::array<std::optional<Error>, 2> errors;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto mesh = Mesh::connect(rank, 2, 10'000, [&](std::span<const std::byte> mine) -> Expected<std::vector<std::vector<std::byte>>> {
        std::unique_lock lock(mutex);
        cards[rank].assign(mine.begin(), mine.end());
        ++told;
        changed.notify_all();
        changed.wait(lock, [&] { return told == 2; });
        return cards;
      });
      if (!mesh.ok()) return;
      if (rank == 1) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return errors[0].has_value(); });
        return;  // closes its end
      }
      auto late = mesh.value().exchange({}, {}, 50, [] { return Status(); });
      {
        const std::lock_guard lock(mutex);
        if (!late.ok()) errors[0] = late.error();
        changed.notify_all();
      }
      auto closed = mesh.value().exchange({}, {}, 10'000, [] { return Status(); });
      if (!closed.ok()) errors[1] = closed.error();
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(errors[0]);
  CHECK(errors[0]->code == STEPCCL_ERROR_TIMEOUT);
  CHECK(errors[0]->peer == 1);
  REQUIRE(errors[1]);
  CHECK(errors[1]->code == STEPCCL_ERROR_PEER_CLOSED);
}

TEST_CASE("without a GPU the interface says so") {
  std::uint32_t count = 7;
  const stepccl_result_t result = stepccl_cuda_device_count(&count);
  if (result == STEPCCL_SUCCESS) return;  // this machine has one
  CHECK(result == STEPCCL_ERROR_NO_GPU);
  CHECK(count == 0);
  stepccl_error_info_t info{};
  info.size = sizeof info;
  CHECK(stepccl_cuda_last_error(nullptr, &info) == STEPCCL_SUCCESS);
  CHECK(info.code == STEPCCL_ERROR_NO_GPU);
  CHECK(std::string(info.text).find("R601 no_gpu") == 0);
  stepccl_cuda_t engine = reinterpret_cast<stepccl_cuda_t>(1);
  CHECK(stepccl_cuda_attach(&engine, nullptr, nullptr) != STEPCCL_SUCCESS);
  CHECK(engine == nullptr);
  CHECK(stepccl_cuda_status(nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT);
}
