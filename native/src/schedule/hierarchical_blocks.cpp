// SPDX-License-Identifier: Apache-2.0
// Inside the nodes, then across: what moves one block for each rank, and the barrier.
#include <algorithm>
#include <bit>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

// Nodes with the same number of ranks: each rank gets what its node adds to the blocks of those with its place on all nodes,
// and these add across in rings.
void even_reduce_scatter(Builder& builder, const Problem& problem, const Nodes& nodes) {
  const Group local = inside(nodes);
  const Group remote = across(nodes, nodes.index);
  const std::uint32_t g = local.size();
  const std::uint32_t many = remote.size();
  const std::uint64_t window = std::max<std::uint64_t>(1, std::min(problem.count, problem.chunk_elements * 4));
  const std::uint64_t windows = (problem.count + window - 1) / window;
  Slots local_slots(builder, problem, g > 1 ? window : 0, g);
  Slots remote_slots(builder, problem, many > 1 ? window : 0);
  const Place sums = builder.scratch(many > 1 ? 2 * many * window : 0);
  const auto sums_of = [&](std::uint64_t w) { return at(sums, (w % 2) * many * window); };
  // Two stages on windows, so that both kinds of path are busy at a time.
  for (std::uint64_t w = 0; w < windows + 1; ++w) {
    if (w < windows) {
      const std::uint64_t begin = w * window;
      const std::uint64_t length = std::min(window, problem.count - begin);
      for (std::uint32_t k = 0; k < many; ++k) {
        const std::uint32_t node = (nodes.own + 2 * many - 1 - k) % many;  // in the order in which the rings send them
        const auto segment = [&](std::uint32_t place) { return Segment{problem.block_at(nodes.ranks[node][place]) + begin, length}; };
        const Place own = many == 1 ? output_at(begin) : at(sums_of(w), node * length);
        if (g > 1) {
          direct_reduce_scatter(builder, local, segment, input_at(0), own, local_slots, many == 1);
        } else {
          builder.copy(own, input_at(segment(0).offset), length, false);
        }
      }
    }
    if (w >= 1 && many > 1) {
      const std::uint64_t begin = (w - 1) * window;
      const std::uint64_t length = std::min(window, problem.count - begin);
      const Place base = sums_of(w - 1);
      ring_reduce_scatter(builder, remote, [&](std::uint32_t node) { return Segment{node * length, length}; }, base, base, remote_slots, true);
      builder.copy(output_at(begin), at(base, nodes.own * length), length, false);
    }
  }
}

// Any nodes: the first rank of each adds for its node, gives the others' first ranks what their nodes need, and adds what comes.
void leader_reduce_scatter(Builder& builder, const Problem& problem, const Nodes& nodes) {
  const Group local = inside(nodes);
  const Group leaders = across(nodes, 0);
  const std::uint32_t g = local.size();
  const std::uint32_t many = leaders.size();
  const bool leads = local.index == 0;
  Slots parts(builder, problem, leads && g > 1 ? problem.count : 0, g);
  Slots far(builder, problem, leads ? problem.count : 0, many);
  const Place sums = builder.scratch(leads ? problem.world * far.chunk() : 0);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    const auto block = [&](std::uint32_t rank) { return input_at(problem.block_at(rank) + offset); };
    const auto sum_of = [&](std::uint32_t rank) { return g == 1 ? block(rank) : at(sums, rank * far.chunk()); };
    for (const auto& ranks : nodes.ranks) {
      for (const std::uint32_t rank : ranks) {
        if (!leads) {
          builder.send(local.rank(0), block(rank), count);
          continue;
        }
        if (g == 1) continue;
        const Place slot = parts.next();
        for (std::uint32_t p = 1; p < g; ++p) builder.recv(local.rank(p), at(slot, p * parts.chunk()), count);
        const auto part = [&](std::uint32_t p) { return p == 0 ? block(rank) : at(slot, p * parts.chunk()); };
        sum_in_order(builder, g, part, slot, sum_of(rank), count, false);
      }
    }
    if (!leads) {
      builder.recv(local.rank(0), output_at(offset), count);
      return;
    }
    for (std::uint32_t k = 1; k < many; ++k) {
      const std::uint32_t node = (leaders.index + k) % many;
      for (const std::uint32_t rank : nodes.ranks[node]) builder.send(leaders.rank(node), sum_of(rank), count);
    }
    for (const std::uint32_t rank : local.ranks) {
      const Place slot = far.next();
      for (std::uint32_t k = 1; k < many; ++k) {
        const std::uint32_t node = (leaders.index + many - k) % many;
        builder.recv(leaders.rank(node), at(slot, node * far.chunk()), count);
      }
      const auto part = [&](std::uint32_t node) { return node == leaders.index ? sum_of(rank) : at(slot, node * far.chunk()); };
      const Place total = rank == problem.rank ? output_at(offset) : at(slot, leaders.index * far.chunk());
      sum_in_order(builder, many, part, at(slot, leaders.index * far.chunk()), total, count, true);
      if (rank != problem.rank) builder.send(rank, total, count);
    }
  });
}

// Scatter: the root sends every node's blocks to the node's head, which hands them on. Gather: the same way back.
Schedule by_heads(const Problem& problem, bool scatters) {
  const std::uint64_t of_root = problem.block_at(problem.root);
  Builder builder(problem, scatters ? 0 : of_root, scatters ? of_root : 0);
  const Nodes nodes = nodes_of(problem);
  const Group chain = heads(problem, nodes);
  const std::uint32_t head = chain.rank(chain.index);
  const bool root = problem.rank == problem.root;
  const auto whole = [&](std::uint64_t offset) { return scatters ? input_at(offset) : output_at(offset); };  // all ranks' blocks
  const auto block = [&](std::uint64_t offset) { return scatters ? output_at(offset) : input_at(offset); };
  Slots slots(builder, problem, problem.rank == head && !root ? problem.count : 0);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    // Upstream is the root's side, downstream the ranks'.
    const auto upstream = [&](std::uint32_t peer, Place place) { return scatters ? builder.recv(peer, place, count) : builder.send(peer, place, count); };
    const auto downstream = [&](std::uint32_t peer, Place place) { return scatters ? builder.send(peer, place, count) : builder.recv(peer, place, count); };
    if (root) {
      // What goes twice leaves first and comes last.
      for (std::uint32_t k = 0; k < chain.size(); ++k) {
        const std::uint32_t node = (nodes.own + (scatters ? 1 : 0) + k) % chain.size();
        const std::uint32_t first = head_of(nodes, node, problem.root);
        for (const std::uint32_t rank : nodes.ranks[node]) {
          if (rank != problem.root) downstream(node == nodes.own ? rank : first, whole(problem.block_at(rank) + offset));
        }
      }
      return;
    }
    if (problem.rank != head) {
      upstream(head, block(offset));
      return;
    }
    for (const std::uint32_t rank : nodes.ranks[nodes.own]) {
      const Place place = rank == head ? block(offset) : slots.next();
      if (scatters) upstream(problem.root, place);
      if (rank != head) downstream(rank, place);
      if (!scatters) upstream(problem.root, place);
    }
  });
  if (root && !problem.in_place) builder.copy(scatters ? block(0) : whole(of_root), scatters ? whole(of_root) : block(0), problem.count, false);
  return builder.finish();
}

}  // namespace

Schedule hierarchical_reduce_scatter(const Problem& problem) {
  Builder builder(problem, 0, problem.block_at(problem.rank));
  const Nodes nodes = nodes_of(problem);
  if (problem.world == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  } else if (nodes.even) {
    even_reduce_scatter(builder, problem, nodes);
  } else {
    leader_reduce_scatter(builder, problem, nodes);
  }
  return builder.finish();
}

Schedule hierarchical_scatter(const Problem& problem) { return by_heads(problem, true); }
Schedule hierarchical_gather(const Problem& problem) { return by_heads(problem, false); }

// Even nodes: inside each, a rank collects what goes to those with its place elsewhere; across go few, larger messages. On
// uneven nodes nobody could stand for the others without carrying all their bytes: there the exchange goes by pairs.
Schedule hierarchical_all_to_all(const Problem& problem) {
  const Nodes nodes = nodes_of(problem);
  if (!nodes.even || problem.world == 1) return pairwise_all_to_all(problem);
  Builder builder(problem);
  const Group local = inside(nodes);
  const Group remote = across(nodes, nodes.index);
  const std::uint32_t g = local.size();
  const std::uint32_t many = remote.size();
  const auto block_of = [&](std::uint32_t node, std::uint32_t place) { return problem.block_at(nodes.ranks[node][place]); };
  // One message for each node where that is no more than a chunk; larger ones are cut anyway, and need no staging here.
  const bool together = g > 1 && g * problem.count <= problem.chunk_elements;
  const Place out = builder.scratch(many * g * problem.count);  // by node, then by the place that it comes from
  const Place in = builder.scratch(together || problem.in_place ? many * g * problem.count : 0);
  const auto staged = [&](Place base, std::uint32_t node, std::uint32_t place) { return at(base, (std::uint64_t{node} * g + place) * problem.count); };
  const auto chunks = [&](auto&& f) { for_chunks(problem.count, problem.chunk_elements, f); };
  for (std::uint32_t k = 0; k < many; ++k) {
    const std::uint32_t node = (nodes.own + 1 + k) % many;  // this node's own blocks last: they go no further
    for (std::uint32_t d = 1; d < g; ++d) {
      const std::uint32_t to = (local.index + d) % g;
      chunks([&](std::uint64_t offset, std::uint64_t count) { builder.send(local.rank(to), input_at(block_of(node, to) + offset), count); });
    }
    for (std::uint32_t d = 1; d < g; ++d) {
      const std::uint32_t from = (local.index + g - d) % g;
      chunks([&](std::uint64_t offset, std::uint64_t count) { builder.recv(local.rank(from), at(staged(out, node, from), offset), count); });
    }
    builder.copy(staged(out, node, local.index), input_at(block_of(node, local.index)), problem.count, false);
  }
  for (std::uint32_t k = 1; k < many; ++k) {
    const std::uint32_t to = (nodes.own + k) % many;
    const std::uint32_t from = (nodes.own + many - k) % many;
    if (together) {
      builder.send(remote.rank(to), staged(out, to, 0), g * problem.count);
      builder.recv(remote.rank(from), staged(in, from, 0), g * problem.count);
    } else {
      for (std::uint32_t place = 0; place < g; ++place) {
        chunks([&](std::uint64_t offset, std::uint64_t count) { builder.send(remote.rank(to), at(staged(out, to, place), offset), count); });
      }
      for (std::uint32_t place = 0; place < g; ++place) {
        const Place target = problem.in_place ? staged(in, from, place) : output_at(block_of(from, place));
        chunks([&](std::uint64_t offset, std::uint64_t count) { builder.recv(remote.rank(from), at(target, offset), count); });
      }
    }
    if (!together && !problem.in_place) continue;
    for (std::uint32_t place = 0; place < g; ++place) builder.copy(output_at(block_of(from, place)), staged(in, from, place), problem.count, false);
  }
  for (std::uint32_t place = 0; place < g; ++place) builder.copy(output_at(block_of(nodes.own, place)), staged(out, nodes.own, place), problem.count, false);
  return builder.finish();
}

// The ranks of a node report to the first; the first ranks agree by dissemination (Hensgen, Finkel, Manber 1988) and let theirs go.
Schedule hierarchical_barrier(const Problem& problem) {
  Builder builder(problem);
  const Nodes nodes = nodes_of(problem);
  const Group local = inside(nodes);
  const Group leaders = across(nodes, 0);
  const std::uint32_t g = local.size();
  const std::uint32_t many = leaders.size();
  const Place word = builder.scratch(1);
  const auto rounds = many < 2 ? 0u : static_cast<std::uint32_t>(std::bit_width(many - 1));
  const Place heard = builder.scratch(g + rounds);
  if (local.index != 0) {
    const auto sent = builder.send(local.rank(0), word, 1);
    builder.order(sent, builder.recv(local.rank(0), heard, 1));
    return builder.finish();
  }
  std::vector<std::optional<std::uint32_t>> received;
  for (std::uint32_t p = 1; p < g; ++p) received.push_back(builder.recv(local.rank(p), at(heard, p), 1));
  const auto send_after_all = [&](std::uint32_t peer) {
    const auto sent = builder.send(peer, word, 1);
    for (const auto& earlier : received) builder.order(earlier, sent);
  };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t distance = 1u << round;
    send_after_all(leaders.rank(leaders.index + distance));
    received.push_back(builder.recv(leaders.rank(leaders.index + many - distance), at(heard, g + round), 1));
  }
  for (std::uint32_t p = 1; p < g; ++p) send_after_all(local.rank(p));
  return builder.finish();
}

}  // namespace stepccl::schedule
