// SPDX-License-Identifier: Apache-2.0
// Collectives in the memory of one node: the node engine itself, without a communicator around it.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "transport/node_engine.hpp"

using namespace stepccl;
using namespace stepccl::transport;

namespace {

// Ranks as threads of this process: cross-memory attach works with oneself too.
class Node {
 public:
  Node(std::uint32_t world, bool single_copy) : areas_(world) {
    std::vector<BoardArea*> pointers;
    for (auto& area : areas_) pointers.push_back(area.get());
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      engines_.push_back(std::make_unique<NodeEngine>(std::make_unique<Board>(rank, pointers, bells()),
                                                      single_copy ? make_cross_memory_attach(std::vector<pid_t>(world, ::getpid())) : nullptr, true,
                                                      std::vector<telemetry::Flow>(world)));
    }
  }

  // Runs `body` as each rank; every operation has to succeed.
  template <class Body>
  void run(Body&& body) {
    std::vector<std::thread> threads;
    std::vector<std::string> problems(engines_.size());
    for (std::uint32_t rank = 0; rank < engines_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto call = [&](const NodeCall& asked) {
          Status status = engines_[rank]->run(asked, [](const auto&, bool) -> Status {
            std::this_thread::yield();
            return {};
          });
          if (!status.ok() && problems[rank].empty()) problems[rank] = status.error().cause;
        };
        body(rank, call);
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& problem : problems) CHECK(problem == "");
  }

  NodeEngine& engine(std::uint32_t rank) { return *engines_[rank]; }
  [[nodiscard]] std::uint32_t world() const { return static_cast<std::uint32_t>(engines_.size()); }

 private:
  // Nobody sleeps: the ranks of this test only yield.
  Bells bells() { return {std::vector<std::atomic<std::uint32_t>*>(areas_.size(), &sleeping_), [](std::uint32_t) {}, false}; }

  struct Area {
    std::unique_ptr<BoardArea> area = std::make_unique<BoardArea>();
    Area() { std::memset(static_cast<void*>(area.get()), 0, sizeof(BoardArea)); }
    [[nodiscard]] BoardArea* get() const { return area.get(); }
  };
  std::atomic<std::uint32_t> sleeping_{0};
  std::vector<Area> areas_;
  std::vector<std::unique_ptr<NodeEngine>> engines_;
};

std::int64_t element(std::uint32_t rank, std::size_t i) { return static_cast<std::int64_t>(1000 * (rank + 1) + i % 991); }

std::vector<std::int64_t> data_of(std::uint32_t rank, std::size_t count) {
  std::vector<std::int64_t> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = element(rank, i);
  return data;
}

NodeCall call_of(stepccl_collective_t collective, const std::int64_t* send, std::int64_t* recv, std::size_t count, std::uint32_t root = 0) {
  NodeCall call;
  call.collective = collective;
  call.send = reinterpret_cast<const std::byte*>(send);
  call.recv = reinterpret_cast<std::byte*>(recv);
  call.count = count;
  call.datatype = STEPCCL_INT64;
  call.root = root;
  return call;
}

// Every collective once, in place or not, each checked.
void check_all(Node& node, std::size_t count, bool in_place) {
  const std::uint32_t world = node.world();
  node.run([&](std::uint32_t rank, const auto& call) {
    const auto wrong = [&](const std::vector<std::int64_t>& got, std::size_t length, auto&& expected) {
      std::size_t errors = 0;
      for (std::size_t i = 0; i < length; ++i) errors += got[i] != expected(i) ? 1 : 0;
      return errors;
    };
    const auto sum = [&](std::size_t i) {
      std::int64_t total = 0;
      for (std::uint32_t r = 0; r < world; ++r) total += element(r, i);
      return total;
    };
    auto own = data_of(rank, count);
    auto wide = data_of(rank, count * world);
    std::vector<std::int64_t> recv(count * world, -1);
    for (std::uint32_t root = 0; root < world; ++root) {
      auto send = own;
      std::int64_t* into = in_place ? send.data() : recv.data();
      call(call_of(STEPCCL_ALL_REDUCE, send.data(), into, count));
      CHECK(wrong(in_place ? send : recv, count, sum) == 0);

      if (node.engine(0).algorithm_for(STEPCCL_REDUCE, 8 * count) != STEPCCL_ALGORITHM_AUTO) {
        send = own;
        call(call_of(STEPCCL_REDUCE, send.data(), rank == root ? into : nullptr, count, root));
        if (rank == root) CHECK(wrong(in_place ? send : recv, count, sum) == 0);
      }

      send = own;
      call(call_of(STEPCCL_BROADCAST, rank == root ? send.data() : nullptr, in_place ? send.data() : recv.data(), count, root));
      CHECK(wrong(in_place ? send : recv, count, [&](std::size_t i) { return element(root, i); }) == 0);

      auto blocks = wide;
      if (in_place) std::copy(own.begin(), own.end(), blocks.begin() + static_cast<std::ptrdiff_t>(rank * count));
      const std::int64_t* block = in_place ? blocks.data() + rank * count : own.data();
      auto& gathered = in_place ? blocks : recv;
      call(call_of(STEPCCL_ALL_GATHER, block, gathered.data(), count));
      CHECK(wrong(gathered, count * world, [&](std::size_t i) { return element(static_cast<std::uint32_t>(i / count), i % count); }) == 0);

      blocks = wide;
      if (in_place) std::copy(own.begin(), own.end(), blocks.begin() + static_cast<std::ptrdiff_t>(rank * count));
      call(call_of(STEPCCL_GATHER, in_place && rank == root ? blocks.data() + rank * count : own.data(), rank == root ? gathered.data() : nullptr, count, root));
      if (rank == root) CHECK(wrong(gathered, count * world, [&](std::size_t i) { return element(static_cast<std::uint32_t>(i / count), i % count); }) == 0);

      blocks = wide;
      std::int64_t* mine = in_place ? blocks.data() + rank * count : recv.data();
      call(call_of(STEPCCL_REDUCE_SCATTER, blocks.data(), mine, count));
      CHECK(wrong(std::vector<std::int64_t>(mine, mine + count), count, [&](std::size_t i) { return sum(rank * count + i); }) == 0);

      blocks = wide;
      mine = in_place && rank == root ? blocks.data() + rank * count : recv.data();
      call(call_of(STEPCCL_SCATTER, rank == root ? blocks.data() : nullptr, mine, count, root));
      CHECK(wrong(std::vector<std::int64_t>(mine, mine + count), count, [&](std::size_t i) { return element(root, rank * count + i); }) == 0);

      blocks = wide;
      auto& exchanged = in_place ? blocks : recv;
      call(call_of(STEPCCL_ALL_TO_ALL, blocks.data(), exchanged.data(), count));
      CHECK(wrong(exchanged, count * world, [&](std::size_t i) { return element(static_cast<std::uint32_t>(i / count), rank * count + i % count); }) == 0);

      call(call_of(STEPCCL_BARRIER, nullptr, nullptr, 0));
    }
  });
}

}  // namespace

TEST_CASE("every collective, small and large, in place and not") {
  for (const std::uint32_t world : {2u, 3u, 5u}) {
    Node node(world, true);
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{40'001}}) {
      for (const bool in_place : {false, true}) {
        CAPTURE(world);
        CAPTURE(count);
        CAPTURE(in_place);
        check_all(node, count, in_place);
      }
    }
  }
}

TEST_CASE("without single copy only what fits the board is taken, by every rank alike") {
  Node node(3, false);
  check_all(node, 100, false);
  NodeEngine& engine = node.engine(1);
  CHECK(engine.algorithm_for(STEPCCL_ALL_REDUCE, kBoardBytes) == STEPCCL_ALGORITHM_DIRECT_ONE_SHOT);
  CHECK(engine.algorithm_for(STEPCCL_ALL_REDUCE, kBoardBytes + 1) == STEPCCL_ALGORITHM_AUTO);
  CHECK(engine.algorithm_for(STEPCCL_ALL_TO_ALL, kBoardBytes + 3) == STEPCCL_ALGORITHM_AUTO);
  CHECK(engine.algorithm_for(STEPCCL_SEND_RECV, 1) == STEPCCL_ALGORITHM_AUTO);
  CHECK(engine.algorithm_for(STEPCCL_BARRIER, 0) == STEPCCL_ALGORITHM_DIRECT_ONE_SHOT);
  Node copying(3, true);
  CHECK(copying.engine(0).algorithm_for(STEPCCL_ALL_REDUCE, kBoardBytes + 1) == STEPCCL_ALGORITHM_DIRECT_TWO_SHOT);
  CHECK(copying.engine(0).algorithm_for(STEPCCL_REDUCE, kBoardBytes + 1) == STEPCCL_ALGORITHM_AUTO);
}

TEST_CASE("a root that runs ahead waits for the slowest reader, and nobody reads a later post") {
  Node node(3, true);
  node.run([&](std::uint32_t rank, const auto& call) {
    for (std::int64_t i = 0; i < 200; ++i) {
      if (rank == 2 && i % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::int64_t value = rank == 0 ? i : -1;
      std::int64_t got = -1;
      call(call_of(STEPCCL_BROADCAST, &value, &got, 1));
      CHECK(got == i);
    }
  });
}

TEST_CASE("a broadcast through the board in pieces, with and without single copy") {
  for (const bool single_copy : {false, true}) {
    Node node(3, single_copy);
    CHECK(node.engine(0).by_board(STEPCCL_BROADCAST, 100'000));
    CHECK(node.engine(0).by_board(STEPCCL_BROADCAST, 64u << 20) == !single_copy);
    node.run([&](std::uint32_t rank, const auto& call) {
      for (std::uint32_t i = 0; i < 12; ++i) {
        const std::size_t count = i == 3 ? 60'000 : 2'047 + 3'001 * (i % 4);  // pieces end inside and at the end of a slot
        const std::uint32_t root = i % 3;
        const auto send = data_of(root + i, count);
        std::vector<std::int64_t> recv(count, -1);
        if (rank == (root + 1) % 3 && i % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        call(call_of(STEPCCL_BROADCAST, rank == root ? send.data() : nullptr, recv.data(), count, root));
        CHECK(recv == send);
      }
    });
  }
}

TEST_CASE("an averaged sum, and the order of a floating-point one") {
  Node node(4, true);
  for (const std::size_t count : {std::size_t{3}, std::size_t{30'000}}) {
    std::vector<std::vector<float>> results(4);
    node.run([&](std::uint32_t rank, const auto& call) {
      std::vector<float> send(count);
      for (std::size_t i = 0; i < count; ++i) send[i] = 1.0f / static_cast<float>(rank + i % 17 + 1);
      results[rank].resize(count);
      NodeCall asked;
      asked.send = reinterpret_cast<const std::byte*>(send.data());
      asked.recv = reinterpret_cast<std::byte*>(results[rank].data());
      asked.count = count;
      asked.redop = STEPCCL_AVG;
      call(asked);
    });
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 1.0f / static_cast<float>(i % 17 + 1);
      for (std::uint32_t rank = 1; rank < 4; ++rank) sum += 1.0f / static_cast<float>(rank + i % 17 + 1);
      if (results[0][i] != sum / 4.0f) FAIL_CHECK("element " << i);
    }
    for (std::uint32_t rank = 1; rank < 4; ++rank) CHECK(results[rank] == results[0]);
  }
}

TEST_CASE("a rank in another call is told, and one that stops waiting ends with its error") {
  Node node(2, true);
  std::vector<stepccl_result_t> results(2);
  const auto rest = [](const auto& waiting, bool) -> Status {
    CHECK(waiting() == std::vector<std::uint32_t>{0});
    return make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_TRANSFER, "enough");
  };
  std::int64_t value = 1;
  std::int64_t got = 0;
  auto call = call_of(STEPCCL_ALL_REDUCE, &value, &got, 1);
  Status alone = node.engine(1).run(call, rest);
  REQUIRE_FALSE(alone.ok());
  CHECK(alone.error().code == STEPCCL_ERROR_TIMEOUT);
  call.tag = {1, 99};  // rank 1 has posted another one
  Status differs = node.engine(0).run(call, [](const auto&, bool) -> Status { return {}; });
  REQUIRE_FALSE(differs.ok());
  CHECK(differs.error().code == STEPCCL_ERROR_MISMATCH);
  CHECK(differs.error().peer == 1);
}

TEST_CASE("ranks that name different roots are found out in the next call at the latest") {
  Node node(3, true);
  std::vector<stepccl_result_t> second(3);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto rest = [](const auto&, bool) -> Status {
        std::this_thread::yield();
        return {};
      };
      std::int64_t value = rank;
      std::int64_t got = 0;
      auto call = call_of(STEPCCL_BROADCAST, &value, &got, 1, rank == 1 ? 1 : 0);
      call.tag = {1, call.root};
      CHECK(node.engine(rank).run(call, rest).ok());  // no two of them had to hear each other
      call = call_of(STEPCCL_ALL_REDUCE, &value, &got, 1);
      call.tag = {2, 7};
      Status status = node.engine(rank).run(call, rest);
      second[rank] = status.ok() ? STEPCCL_SUCCESS : status.error().code;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const stepccl_result_t result : second) CHECK(result == STEPCCL_ERROR_MISMATCH);
}

TEST_CASE("memory that can't be read any more is a closed peer") {
  const auto copy = make_cross_memory_attach({::getpid(), 0x7ffffff0});
  std::array<std::byte, 8> into{};
  CHECK(copy->read(1, {reinterpret_cast<std::uint64_t>(into.data()), 0}, 0, into).error().code == STEPCCL_ERROR_PEER_CLOSED);
  CHECK(copy->read(0, {64, 0}, 0, into).error().code == STEPCCL_ERROR_PEER_CLOSED);
}
