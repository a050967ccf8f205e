// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

// Rounds whose messages may be under way at a time: enough to hide latency, few enough not to flood one receiver.
constexpr std::size_t kRounds = 4;

// Round k joins r with k - r (mod n): both ends meet in the same round, so that a rank that exchanges in place, through
// scratch, waits for nobody who is further on. In one round a rank is its own partner.
std::uint32_t partner_of(std::uint32_t n, std::uint32_t r, std::uint32_t round) { return (round + n - r) % n; }

// Sends of a round wait for the messages that came in an earlier one.
class Rounds {
 public:
  explicit Rounds(Builder& builder) : builder_(builder) {}
  void send_after_window(std::optional<std::uint32_t> send) {
    if (ends_.size() >= kRounds) builder_.order(ends_[ends_.size() - kRounds], send);
  }
  void end(std::optional<std::uint32_t> last_receive) {
    if (last_receive) ends_.push_back(*last_receive);
  }

 private:
  Builder& builder_;
  std::vector<std::uint32_t> ends_;
};

void exchange_by_rounds(Builder& builder, const Problem& problem, bool windowed) {
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  const std::uint64_t chunk = problem.chunk_elements;
  // In place a block that comes may not overwrite the one that still has to leave: it waits in a slot.
  std::optional<Slots> slots;
  if (problem.in_place) slots.emplace(builder, problem, problem.count);
  Rounds rounds(builder);
  for (std::uint32_t round = 0; round < n; ++round) {
    const std::uint32_t peer = partner_of(n, r, round);
    const std::uint64_t block = problem.block_at(peer);
    if (peer == r) {
      if (!problem.in_place) builder.copy(output_at(block), input_at(block), problem.count, false);
      continue;
    }
    std::optional<std::uint32_t> received;
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      const auto sent = builder.send(peer, input_at(block + offset), count);
      if (windowed) rounds.send_after_window(sent);
      const Place to = slots ? slots->next() : output_at(block + offset);
      received = builder.recv(peer, to, count);
      if (slots) builder.copy(output_at(block + offset), to, count, false);
    });
    rounds.end(received);
  }
}

}  // namespace

Schedule pairwise_all_to_all(const Problem& problem) {
  Builder builder(problem);
  exchange_by_rounds(builder, problem, true);
  return builder.finish();
}

// All messages under way at once.
Schedule direct_all_to_all(const Problem& problem) {
  Builder builder(problem);
  exchange_by_rounds(builder, problem, false);
  return builder.finish();
}

// ceil(lg n) rounds of half the array each (Bruck et al. 1997): block i travels the distance i by its binary digits. Between
// two local shifts, which scratch makes room for.
Schedule bruck_all_to_all(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  const std::uint64_t size = problem.count;
  const std::uint64_t half = (n + 1) / 2;
  const Place blocks = builder.scratch(n * size);
  const Place outgoing = builder.scratch(half * size);
  const Place incoming = builder.scratch(half * size);
  for (std::uint32_t i = 0; i < n; ++i) builder.copy(at(blocks, i * size), input_at(problem.block_at((r + i) % n)), size, false);
  for (std::uint32_t distance = 1; distance < n; distance *= 2) {
    std::uint64_t packed = 0;
    for (std::uint32_t i = distance; i < n; ++i) {
      if ((i & distance) != 0) builder.copy(at(outgoing, packed++ * size), at(blocks, i * size), size, false);
    }
    for_chunks(packed * size, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
      builder.send((r + distance) % n, at(outgoing, offset), count);
      builder.recv((r + n - distance) % n, at(incoming, offset), count);
    });
    packed = 0;
    for (std::uint32_t i = distance; i < n; ++i) {
      if ((i & distance) != 0) builder.copy(at(blocks, i * size), at(incoming, packed++ * size), size, false);
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) builder.copy(output_at(problem.block_at((r + n - i) % n)), at(blocks, i * size), size, false);
  return builder.finish();
}

// lg n rounds (Bruck et al. 1997). Blocks go straight to their places, so that nothing has to be shifted in the end.
Schedule bruck_all_gather(const Problem& problem) {
  Builder builder(problem, problem.block_at(problem.rank), 0);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (!problem.in_place) builder.copy(output_at(problem.block_at(r)), input_at(0), problem.count, false);
  // `blocks` blocks from `first` on, around the end of the array, in runs that stand together.
  const auto runs = [&](std::uint32_t first, std::uint32_t blocks, auto&& f) {
    for (std::uint32_t done = 0; done < blocks;) {
      const std::uint32_t block = (first + done) % n;
      const std::uint32_t run = problem.packed() ? std::min(blocks - done, n - block) : 1;
      for_chunks(run * problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { f(problem.block_at(block) + offset, count); });
      done += run;
    }
  };
  for (std::uint32_t have = 1; have < n; have *= 2) {
    const std::uint32_t more = std::min(have, n - have);
    runs(r, more, [&](std::uint64_t place, std::uint64_t count) { builder.send((r + n - have) % n, output_at(place), count); });
    runs((r + have) % n, more, [&](std::uint64_t place, std::uint64_t count) { builder.recv((r + have) % n, output_at(place), count); });
  }
  return builder.finish();
}

Schedule vector_all_to_all(const Problem& problem, const VectorExchange& exchange) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  const Place nothing = builder.scratch(2);  // what is exchanged where there is nothing to exchange
  Place input = input_at(0);
  if (problem.in_place) {
    std::uint64_t end = 0;
    for (std::uint32_t p = 0; p < n; ++p) end = std::max<std::uint64_t>(end, exchange.send_counts[p] == 0 ? 0 : exchange.send_at[p] + exchange.send_counts[p]);
    input = builder.scratch(end);
    builder.copy(input, input_at(0), end, false);
  }
  Rounds rounds(builder);
  for (std::uint32_t round = 0; round < n; ++round) {
    const std::uint32_t peer = partner_of(n, r, round);
    const std::uint64_t out = exchange.send_counts[peer];
    const std::uint64_t in = exchange.recv_counts[peer];
    if (peer == r) {
      builder.copy(output_at(exchange.recv_at[r]), at(input, exchange.send_at[r]), std::min(out, in), false);
      continue;
    }
    std::optional<std::uint32_t> received;
    if (out == 0) rounds.send_after_window(builder.send(peer, nothing, 1));
    if (in == 0) received = builder.recv(peer, at(nothing, 1), 1);
    for_chunks(out, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
      rounds.send_after_window(builder.send(peer, at(input, exchange.send_at[peer] + offset), count));
    });
    for_chunks(in, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
      received = builder.recv(peer, output_at(exchange.recv_at[peer] + offset), count);
    });
    rounds.end(received);
  }
  return builder.finish();
}

// ceil(lg n) rounds (Hensgen, Finkel, Manber 1988): a rank that has heard of k rounds has heard of 2^k others. One byte each.
Schedule dissemination_barrier(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  std::uint32_t rounds = 0;
  for (std::uint32_t distance = 1; distance < n; distance *= 2) ++rounds;
  const Place heard = builder.scratch(rounds);
  const Place word = builder.scratch(n > 1 ? 1 : 0);
  std::vector<std::uint32_t> received;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t distance = 1u << round;
    const auto sent = builder.send((problem.rank + distance) % n, word, 1);
    for (const std::uint32_t earlier : received) builder.order(earlier, sent);
    received.push_back(*builder.recv((problem.rank + n - distance) % n, at(heard, round), 1));
  }
  return builder.finish();
}

}  // namespace stepccl::schedule
