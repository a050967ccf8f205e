// SPDX-License-Identifier: Apache-2.0
// What short collectives rely on: a cheaper clock, and a value that is published without a lock.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>

#include "core/published.hpp"
#include "core/tick_clock.hpp"

using namespace stepccl;

TEST_CASE("the tick clock keeps to CLOCK_MONOTONIC and never goes back") {
  TickClock clock;
  std::uint64_t last = 0;
  std::uint64_t backwards = 0;
  std::uint64_t worst = 0;
  const std::uint64_t begin = monotonic_ns();
  while (monotonic_ns() - begin < 60'000'000u) {
    const std::uint64_t before = monotonic_ns();
    const std::uint64_t now = clock.now_ns();
    const std::uint64_t after = monotonic_ns();
    backwards += now < last ? 1 : 0;
    last = now;
    if (now < before) worst = std::max(worst, before - now);
    if (now > after) worst = std::max(worst, now - after);
  }
  CHECK(backwards == 0);
  CHECK(worst < 20'000);  // ns; a wrong rate is off by far more after a few milliseconds
}

TEST_CASE("the tick clock is right after a pause") {
  TickClock clock;
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const std::uint64_t before = monotonic_ns();
    const std::uint64_t now = clock.now_ns();
    CHECK(now + 20'000 >= before);
    CHECK(now <= monotonic_ns() + 20'000);
  }
}

TEST_CASE("a published value is read whole while it changes") {
  struct Value {
    std::array<std::uint64_t, 6> words{};
  };
  Published<Value> published;
  CHECK(published.load().words[5] == 0);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
      Value value;
      value.words.fill(i);
      published.store(value);
    }
  });
  std::uint64_t torn = 0;
  std::uint64_t last = 0;
  std::uint64_t backwards = 0;
  for (int i = 0; i < 200'000; ++i) {
    const Value seen = published.load();
    for (const std::uint64_t word : seen.words) torn += word != seen.words[0] ? 1 : 0;
    backwards += seen.words[0] < last ? 1 : 0;
    last = seen.words[0];
  }
  stop = true;
  writer.join();
  CHECK(torn == 0);
  CHECK(backwards == 0);
}
