// SPDX-License-Identifier: Apache-2.0
// Strangers, impostors and absentees at the rendezvous, over real sockets.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>

#include "bootstrap/control_plane.hpp"
#include "bootstrap/handshake.hpp"
#include "ranks.hpp"

using namespace stepccl;
using namespace stepccl::bootstrap;
using namespace stepccl::testing;

namespace {

UniqueId opened(const stepccl_unique_id_t& id) { return UniqueId::decode(id).value(); }

stepccl_unique_id_t changed(const stepccl_unique_id_t& id, const std::function<void(UniqueId&)>& change) {
  UniqueId inside = opened(id);
  change(inside);
  return inside.encode();
}

Fd connect_raw(const Endpoint& endpoint) {
  auto fd = connect_to(endpoint, Deadline::after_ms(5000), {});
  return fd.ok() ? std::move(fd.value()) : Fd();
}

// Rank 0 of two; rank 1 joins after `disturb` has had its way with the port.
void join_after(const std::function<void(const stepccl_unique_id_t&)>& disturb) {
  const stepccl_unique_id_t id = new_id();
  const stepccl_config_t config = config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP));
  std::atomic<int> good{0};
  const auto rank = [&](std::uint32_t index) {
    stepccl_comm_t comm = nullptr;
    const stepccl_result_t result = stepccl_comm_init_rank(&comm, 2, &id, index, &config);
    CHECK_MESSAGE(result == STEPCCL_SUCCESS, last_error().text);
    if (result != STEPCCL_SUCCESS) return;
    std::int32_t x = 1;
    good += stepccl_all_reduce(comm, &x, &x, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS && x == 2;
    stepccl_comm_destroy(comm);
  };
  std::thread zero(rank, 0);
  disturb(id);
  std::thread one(rank, 1);
  zero.join();
  one.join();
  CHECK(good == 2);
}

stepccl_result_t try_join(const stepccl_unique_id_t& id, std::uint32_t rank, std::uint32_t world, std::uint32_t timeout_ms) {
  stepccl_config_t config = config_for(0);
  config.timeout_ms = timeout_ms;
  stepccl_comm_t comm = nullptr;
  const stepccl_result_t result = stepccl_comm_init_rank(&comm, world, &id, rank, &config);
  if (comm != nullptr) stepccl_comm_destroy(comm);
  return result;
}

}  // namespace

TEST_CASE("a wrong secret is refused and harms nobody") {
  join_after([](const stepccl_unique_id_t& id) {
    const auto wrong = changed(id, [](UniqueId& inside) { inside.secret[0] ^= std::byte{1}; });
    CHECK(try_join(wrong, 1, 2, 3000) == STEPCCL_ERROR_AUTHENTICATION);
    CHECK(std::string(last_error().text).find("secret") != std::string::npos);
  });
}

TEST_CASE("an id of another job at the same address is refused") {
  join_after([](const stepccl_unique_id_t& id) {
    const auto other = changed(id, [](UniqueId& inside) { inside.comm_id ^= 1; });
    CHECK(try_join(other, 1, 2, 3000) == STEPCCL_ERROR_AUTHENTICATION);
  });
}

TEST_CASE("a world size that differs is refused") {
  join_after([](const stepccl_unique_id_t& id) { CHECK(try_join(id, 1, 3, 3000) == STEPCCL_ERROR_RANK_CONFLICT); });
}

TEST_CASE("a peer of another protocol version is told so") {
  join_after([](const stepccl_unique_id_t& id) {
    const Fd fd = connect_raw(opened(id).endpoint);
    Hello hello;
    hello.version = kProtocolVersion + 1;
    hello.comm_id = opened(id).comm_id;
    REQUIRE(write_all(fd.get(), bytes_of(hello), Deadline::after_ms(2000), {}).ok());
    Challenge answer;
    REQUIRE(read_exact(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), Deadline::after_ms(2000), {}).ok());
    CHECK(answer.status == STEPCCL_ERROR_VERSION);
  });
}

TEST_CASE("a rank 0 of another version, of another job or of no sense is told by what it says") {
  struct Case {
    std::int32_t status;
    stepccl_result_t result;
  };
  for (const Case& one : {Case{STEPCCL_ERROR_VERSION, STEPCCL_ERROR_VERSION}, Case{STEPCCL_ERROR_AUTHENTICATION, STEPCCL_ERROR_AUTHENTICATION}}) {
    Endpoint endpoint = parse_endpoint("127.0.0.1").value();
    auto listener = listen_on(endpoint, 8);
    REQUIRE(listener.ok());
    const stepccl_unique_id_t other = new_id();
    const auto id = changed(other, [&](UniqueId& inside) { inside.endpoint = endpoint; });
    stepccl_unique_id_discard(&other);
    std::thread zero([&] {
      pollfd waiting{listener.value().get(), POLLIN, 0};
      CHECK(::poll(&waiting, 1, 5'000) == 1);
      const Fd fd(::accept(listener.value().get(), nullptr, nullptr));
      Hello hello;
      CHECK(read_exact(fd.get(), std::as_writable_bytes(std::span(&hello, 1)), Deadline::after_ms(2000), {}).ok());
      Challenge answer;
      answer.status = static_cast<std::uint16_t>(one.status);
      CHECK(write_all(fd.get(), bytes_of(answer), Deadline::after_ms(2000), {}).ok());
    });
    CHECK(try_join(id, 1, 2, 3000) == one.result);
    zero.join();
  }
}

TEST_CASE("garbage, silence and half-open connections do not keep a rank out") {
  join_after([](const stepccl_unique_id_t& id) {
    static std::vector<Fd> open;
    std::mt19937 random(1);
    for (int i = 0; i < 50; ++i) {
      Fd fd = connect_raw(opened(id).endpoint);
      REQUIRE(fd);
      std::vector<std::byte> junk(random() % 300);
      for (auto& byte : junk) byte = static_cast<std::byte>(random());
      if (i % 3 == 0) junk.resize(std::min<std::size_t>(junk.size(), 3));
      if (i % 5 == 0) {  // begins well, then says no more
        const Hello hello;
        junk.assign(bytes_of(hello).begin(), bytes_of(hello).begin() + 20);
      }
      (void)::send(fd.get(), junk.data(), junk.size(), MSG_NOSIGNAL);
      if (i % 2 == 0) open.push_back(std::move(fd));
    }
  });
}

TEST_CASE("ten thousand connections, a thousand at once, do not keep a rank out") {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<Fd> crowd(1000);
  std::size_t connected = 0;
  join_after([&](const stepccl_unique_id_t& id) {
    for (std::size_t i = 0; i < 10'000; ++i) {
      Fd fd = connect_raw(opened(id).endpoint);
      if (!fd) continue;
      ++connected;
      crowd[i % crowd.size()] = std::move(fd);
    }
  });
  CHECK(connected > 9'000);
}

TEST_CASE("garbage on every port of a running job changes nothing") {
  run_ranks(3, config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP)), [](std::uint32_t rank, stepccl_comm_t comm) {
    const auto sum = [&] {
      std::int32_t one = 1;
      std::int32_t total = 0;
      CHECK(stepccl_all_reduce(comm, &one, &total, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
      CHECK(total == 3);
    };
    std::size_t ports = 0;
    const auto disturb = [&] {
      std::mt19937 random(3);
      for (int fd = 0; fd < 1024; ++fd) {
        int listens = 0;
        socklen_t size = sizeof listens;
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
        if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 || address.ss_family != AF_INET) continue;
        ++ports;
        for (int i = 0; i < 20; ++i) {
          const Fd stranger = connect_raw(Endpoint::from_sockaddr(address));
          std::vector<std::byte> junk(1 + random() % 4000);
          for (auto& byte : junk) byte = static_cast<std::byte>(random());
          if (stranger) (void)::send(stranger.get(), junk.data(), junk.size(), MSG_NOSIGNAL);
        }
      }
    };
    if (rank == 0) disturb();  // the data paths are not open yet
    sum();
    if (rank == 0) disturb();
    sum();
    if (rank == 0) CHECK(ports >= 2 * 3);  // every rank listens for data, and both rounds found them
  });
}

TEST_CASE("a rank that is taken is refused") {
  const stepccl_unique_id_t id = new_id();
  std::atomic<int> conflicts{0};
  std::atomic<int> joined{0};
  std::vector<std::thread> threads;
  for (const std::uint32_t rank : {0u, 1u, 1u}) {
    threads.emplace_back([&, rank] {
      const stepccl_result_t result = try_join(id, rank, 3, 2500);
      conflicts += result == STEPCCL_ERROR_RANK_CONFLICT;
      joined += result == STEPCCL_ERROR_TIMEOUT;  // rank 2 never comes
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(conflicts == 1);
  CHECK(joined == 2);
}

TEST_CASE("the ranks that did not come are named") {
  const stepccl_unique_id_t id = new_id();
  const auto begin = std::chrono::steady_clock::now();
  CHECK(try_join(id, 0, 4, 700) == STEPCCL_ERROR_TIMEOUT);
  const std::string text = last_error().text;
  CHECK_MESSAGE(text.find("1, 2, 3 of 4") != std::string::npos, text);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
}

TEST_CASE("a rank 0 that is gone is reported soon") {
  const stepccl_unique_id_t id = new_id();
  stepccl_unique_id_discard(&id);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(try_join(id, 1, 2, 20'000) == STEPCCL_ERROR_PEER_UNREACHABLE);
  CHECK(last_error().peer == 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(6));
}

TEST_CASE("an id serves one communicator") {
  const stepccl_unique_id_t id = new_id();
  CHECK(try_join(id, 0, 1, 1000) == STEPCCL_SUCCESS);
  CHECK(try_join(id, 0, 1, 1000) == STEPCCL_ERROR_INVALID_USAGE);
}

TEST_CASE("what an authenticated rank may not send ends the job with its name") {
  // A holder of the secret that speaks nonsense after the handshake.
  const stepccl_unique_id_t id = new_id();
  std::string text;
  std::thread zero([&] {
    CHECK(try_join(id, 0, 2, 5000) == STEPCCL_ERROR_PROTOCOL);
    text = last_error().text;
  });
  const Fd fd = connect_raw(opened(id).endpoint);
  JobKey key;
  key.secret = opened(id).secret;
  key.comm_id = opened(id).comm_id;
  key.rank = 1;
  key.world = 2;
  REQUIRE(client_handshake(fd.get(), key, Role::control, Deadline::after_ms(2000), {}).ok());
  const MessageHeader nonsense{0xffffff, 77, 0};
  REQUIRE(write_all(fd.get(), bytes_of(nonsense), Deadline::after_ms(2000), {}).ok());
  zero.join();
  CHECK_MESSAGE(text.find("rank 1") != std::string::npos, text);
}
