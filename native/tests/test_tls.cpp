// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "core/fd.hpp"
#include "ranks.hpp"
#include "stepccl/telemetry.h"
#include "transport/tls.hpp"

using namespace stepccl;
using namespace stepccl::testing;
using transport::TlsSession;
using bootstrap::JobKey;

namespace {

struct Ends {
  Fd client;
  Fd server;
};

Ends connected() {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  return {Fd(pair[0]), Fd(pair[1])};
}

void fill(JobKey& key, std::uint32_t rank, std::byte secret = std::byte{7}) {
  key.secret.fill(secret);
  key.comm_id = 42;
  key.rank = rank;
  key.world = 2;
}

using Opened = Expected<std::unique_ptr<TlsSession>>;

Opened open(int fd, TlsSession::Side side, const JobKey& key, std::uint32_t peer) {
  return TlsSession::open(fd, side, key, peer, Deadline::after_ms(5'000), {});
}

// Both ends at once.
std::pair<Opened, Opened> open_both(const Ends& ends, const JobKey& client, const JobKey& server) {
  auto other = std::async(std::launch::async, [&] { return open(ends.server.get(), TlsSession::Side::server, server, 1); });
  auto one = open(ends.client.get(), TlsSession::Side::client, client, 0);
  if (!one.ok()) ::shutdown(ends.client.get(), SHUT_RDWR);  // as the caller's close does: the other end need not wait
  return {std::move(one), other.get()};
}

iovec part(std::string& text) { return {text.data(), text.size()}; }

}  // namespace

TEST_CASE("bytes cross TLS as they were, whatever their pieces") {
  const Ends ends = connected();
  JobKey client;
  JobKey server;
  fill(client, 1);
  fill(server, 0);
  auto [one, other] = open_both(ends, client, server);
  REQUIRE(one.ok());
  REQUIRE(other.ok());
  std::string header(24, 'h');
  std::string data(300'000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  const std::string sent = header + data;
  std::string received;
  std::size_t taken = 0;
  std::string buffer(50'000, '\0');
  while (received.size() < sent.size()) {
    if (taken < sent.size()) {
      std::string first = sent.substr(taken, taken < 24 ? 24 - taken : std::string::npos);
      std::string second = taken < 24 ? sent.substr(24) : std::string();
      const iovec parts[2] = {part(first), part(second)};
      auto wrote = one.value()->write({parts, second.empty() ? 1u : 2u});
      REQUIRE(wrote.ok());
      taken += wrote.value();
    }
    const iovec into = part(buffer);
    auto got = other.value()->read({&into, 1});
    REQUIRE(got.ok());
    received.append(buffer, 0, got.value());
  }
  CHECK(received == sent);
  const iovec into = part(buffer);
  CHECK(other.value()->read({&into, 1}).value() == 0);
}

TEST_CASE("nothing of what is sent can be read on the way, and what is changed there is refused") {
  // The client speaks to a man in the middle, who hands everything on and looks.
  const Ends left = connected();
  const Ends right = connected();
  JobKey client;
  JobKey server;
  fill(client, 1);
  fill(server, 0);
  std::string seen;
  std::atomic<bool> stop{false};
  std::atomic<bool> spoil{false};
  std::thread middle([&] {
    char bytes[4096];
    while (!stop) {
      bool moved = false;
      for (const auto& [from, to] : {std::pair(left.server.get(), right.client.get()), std::pair(right.client.get(), left.server.get())}) {
        const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
        if (got <= 0) continue;
        moved = true;
        seen.append(bytes, static_cast<std::size_t>(got));
        if (spoil) bytes[got - 1] ^= 1;
        (void)!::send(to, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
      if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const Ends outer{Fd(::dup(left.client.get())), Fd(::dup(right.server.get()))};
  auto both = open_both(outer, client, server);
  Opened& one = both.first;  // not a structured binding: the lambda below takes them
  Opened& other = both.second;
  REQUIRE(one.ok());
  REQUIRE(other.ok());
  std::string buffer(4096, '\0');
  const auto exchange = [&](const std::string& message) {
    std::string text = message;
    const iovec out = part(text);
    CHECK(one.value()->write({&out, 1}).value() == text.size());
    const iovec in = part(buffer);
    for (int i = 0; i < 5'000; ++i) {
      auto got = other.value()->read({&in, 1});
      if (!got.ok() || got.value() != 0) return got;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Expected<std::size_t>(std::size_t{0});
  };
  const std::string secret = "the weights of the model";
  auto got = exchange(secret);
  REQUIRE(got.ok());
  CHECK(buffer.substr(0, got.value()) == secret);
  spoil = true;
  auto refused = exchange(secret);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == STEPCCL_ERROR_PROTOCOL);
  stop = true;
  middle.join();
  CHECK(seen.find("weights") == std::string::npos);
}

TEST_CASE("without the job's secret there is no session") {
  JobKey client;
  JobKey server;
  SUBCASE("another secret") {
    fill(client, 1, std::byte{8});
    fill(server, 0);
  }
  SUBCASE("another pair of ranks") {
    fill(client, 2);
    fill(server, 0);
  }
  SUBCASE("another job") {
    fill(client, 1);
    fill(server, 0);
    client.comm_id = 43;
  }
  const Ends ends = connected();
  auto [one, other] = open_both(ends, client, server);
  REQUIRE_FALSE(one.ok());
  REQUIRE_FALSE(other.ok());
  CHECK((one.error().code == STEPCCL_ERROR_AUTHENTICATION || other.error().code == STEPCCL_ERROR_AUTHENTICATION));
}

TEST_CASE("garbage, silence and an end instead of a handshake") {
  JobKey server;
  fill(server, 0);
  const Ends ends = connected();
  SUBCASE("garbage") {
    const char garbage[] = "GET / HTTP/1.1\r\n\r\n";
    REQUIRE(::send(ends.client.get(), garbage, sizeof garbage, 0) > 0);
    auto opened = open(ends.server.get(), TlsSession::Side::server, server, 1);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code == STEPCCL_ERROR_AUTHENTICATION);
  }
  SUBCASE("an end") {
    ::shutdown(ends.client.get(), SHUT_RDWR);
    auto opened = open(ends.server.get(), TlsSession::Side::server, server, 1);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code == STEPCCL_ERROR_PEER_CLOSED);
  }
  SUBCASE("silence") {
    auto opened = TlsSession::open(ends.server.get(), TlsSession::Side::server, server, 1, Deadline::after_ms(50), {});
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code == STEPCCL_ERROR_TIMEOUT);
  }
}

TEST_CASE("collectives over TLS and over several sockets give the same sums") {
  for (const char* encryption : {"off", "tls"}) {
    for (const char* sockets : {"1", "3"}) {
      ::setenv("STEPCCL_ENCRYPTION", encryption, 1);
      ::setenv("NCCL_NSOCKS_PERTHREAD", sockets, 1);
      stepccl_config_t config = config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP));
      config.chunk_bytes = 10'000;
      run_ranks(3, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{200'001}}) {
          std::vector<std::int32_t> data(count);
          for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::int32_t>(i + rank);
          REQUIRE(stepccl_all_reduce(comm, data.data(), data.data(), count, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < count; ++i) wrong += data[i] != static_cast<std::int32_t>(3 * i + 3) ? 1 : 0;
          CHECK(wrong == 0);
        }
      });
    }
  }
  ::unsetenv("STEPCCL_ENCRYPTION");
  ::unsetenv("NCCL_NSOCKS_PERTHREAD");
}

TEST_CASE("the daemon's page switches TLS on for rank 0's job, and never off against the job's own word") {
  char path[] = "/tmp/stepccl-control-XXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(fd >= 0);
  stepccl_control page{};
  page.magic = STEPCCL_CONTROL_MAGIC;
  page.version = 1;
  struct Case {
    std::uint8_t page;
    const char* own;
    std::uint32_t encryption;
  };
  for (const Case& one : {Case{0, "off", 0}, Case{2, "off", 1}, Case{1, "off", 0}, Case{1, "tls", 1}, Case{0, "tls", 1}}) {
    CAPTURE(one.page);
    CAPTURE(one.own);
    page.seq += 2;
    page.encryption = one.page;
    REQUIRE(::pwrite(fd, &page, sizeof page, 0) == static_cast<ssize_t>(sizeof page));
    ::setenv("STEPCCL_CONTROL_FILE", path, 1);
    ::setenv("STEPCCL_ENCRYPTION", one.own, 1);
    run_ranks(2, config_for(STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP)), [&](std::uint32_t, stepccl_comm_t comm) {
      stepccl_comm_info_t info{};
      info.size = sizeof info;
      REQUIRE(stepccl_comm_query(comm, &info) == STEPCCL_SUCCESS);
      CHECK(info.encryption == one.encryption);
      std::int32_t x = 1;
      CHECK(stepccl_all_reduce(comm, &x, &x, 1, STEPCCL_INT32, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
      CHECK(x == 2);
    });
  }
  ::unsetenv("STEPCCL_CONTROL_FILE");
  ::unsetenv("STEPCCL_ENCRYPTION");
  ::close(fd);
  ::unlink(path);
}
