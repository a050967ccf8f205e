// SPDX-License-Identifier: Apache-2.0
// Inside the nodes over the fast paths, across them over the slow ones.
#include <algorithm>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

Schedule alone(const Problem& problem) {
  Builder builder(problem);
  if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

// Nodes with the same number of ranks: reduce-scatter inside, all-reduce of every segment across, all-gather inside. Every
// rank has a part in every stage.
void even_all_reduce(Builder& builder, const Problem& problem, const Nodes& nodes) {
  const Group local = inside(nodes);
  const Group remote = across(nodes, nodes.index);
  const std::uint32_t g = local.size();
  const auto many = static_cast<std::uint32_t>(nodes.ranks.size());
  // The stages work on windows, one behind the other, so that both kinds of path are busy at a time.
  const std::uint64_t window = std::max<std::uint64_t>(1, std::min(problem.count, problem.chunk_elements * g * 4));
  const std::uint64_t windows = (problem.count + window - 1) / window;
  Slots local_slots(builder, problem, (window + g - 1) / g, g);
  Slots remote_slots(builder, problem, ((window + g - 1) / g + many - 1) / many);
  const auto local_segment = [&](std::uint64_t w) {
    const std::uint64_t begin = w * window;
    const std::uint64_t length = std::min(window, problem.count - begin);
    return [=](std::uint32_t s) {
      const Segment segment = segment_of(length, g, s);
      return Segment{begin + segment.offset, segment.count};
    };
  };
  for (std::uint64_t w = 0; w < windows + 2; ++w) {
    if (w < windows) {
      const auto segment = local_segment(w);
      if (g == 1) {
        const Segment own = segment(0);
        if (!problem.in_place) builder.copy(output_at(own.offset), input_at(own.offset), own.count, false);
      } else {
        direct_reduce_scatter(builder, local, segment, input_at(0), output_at(segment(local.index).offset), local_slots, many == 1);
      }
    }
    if (w >= 1 && w - 1 < windows && many > 1) {
      const Segment own = local_segment(w - 1)(local.index);
      const auto segment = [&](std::uint32_t s) {
        const Segment part = segment_of(own.count, many, s);
        return Segment{own.offset + part.offset, part.count};
      };
      ring_reduce_scatter(builder, remote, segment, output_at(0), output_at(0), remote_slots, true);
      ring_all_gather(builder, remote, segment, output_at(segment(remote.index).offset), output_at(0), remote_slots.chunk());
    }
    if (w >= 2 && g > 1) {
      const auto segment = local_segment(w - 2);
      direct_all_gather(builder, local, segment, output_at(segment(local.index).offset), output_at(0), local_slots.chunk());
    }
  }
}

// Any nodes: the first rank of each adds for its node.
void leader_all_reduce(Builder& builder, const Problem& problem, const Nodes& nodes) {
  const Group local = inside(nodes);
  const Group leaders = across(nodes, 0);
  const std::uint32_t g = local.size();
  const std::uint32_t many = leaders.size();
  const std::uint64_t window = std::max<std::uint64_t>(1, std::min(problem.count, problem.chunk_elements * many));
  const std::uint64_t windows = (problem.count + window - 1) / window;
  const bool leads = local.index == 0;
  Slots local_slots(builder, problem, leads && g > 1 ? window : 0, g);
  Slots remote_slots(builder, problem, leads ? (window + many - 1) / many : 0);
  for (std::uint64_t w = 0; w < windows + 2; ++w) {
    if (w < windows) {
      const std::uint64_t begin = w * window;
      const std::uint64_t length = std::min(window, problem.count - begin);
      if (leads && g == 1 && !problem.in_place) builder.copy(output_at(begin), input_at(begin), length, false);
      if (g > 1) {
        for_chunks(length, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
          const std::uint64_t place = begin + offset;
          if (!leads) {
            builder.send(local.rank(0), input_at(place), count);
            return;
          }
          const Place slot = local_slots.next();
          for (std::uint32_t p = 1; p < g; ++p) builder.recv(local.rank(p), at(slot, p * local_slots.chunk()), count);
          const auto part = [&](std::uint32_t p) { return p == 0 ? input_at(place) : at(slot, p * local_slots.chunk()); };
          sum_in_order(builder, g, part, slot, output_at(place), count, many == 1);
        });
      }
    }
    if (leads && w >= 1 && w - 1 < windows) {
      const std::uint64_t begin = (w - 1) * window;
      const std::uint64_t length = std::min(window, problem.count - begin);
      const auto segment = [&](std::uint32_t s) {
        const Segment part = segment_of(length, many, s);
        return Segment{begin + part.offset, part.count};
      };
      ring_reduce_scatter(builder, leaders, segment, output_at(0), output_at(0), remote_slots, true);
      ring_all_gather(builder, leaders, segment, output_at(segment(leaders.index).offset), output_at(0), remote_slots.chunk());
    }
    if (w >= 2 && g > 1) {
      const std::uint64_t begin = (w - 2) * window;
      for_chunks(std::min(window, problem.count - begin), problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
        if (!leads) {
          builder.recv(local.rank(0), output_at(begin + offset), count);
        } else {
          for (std::uint32_t p = 1; p < g; ++p) builder.send(local.rank(p), output_at(begin + offset), count);
        }
      });
    }
  }
}

}  // namespace

Schedule hierarchical_all_reduce(const Problem& problem) {
  if (problem.world == 1) return alone(problem);
  Builder builder(problem);
  const Nodes nodes = nodes_of(problem);
  if (nodes.even) {
    even_all_reduce(builder, problem, nodes);
  } else {
    leader_all_reduce(builder, problem, nodes);
  }
  return builder.finish();
}

// Even nodes: every rank gets the blocks of its peers on the other nodes, then all blocks go round inside. Otherwise the
// first ranks collect, exchange and spread.
Schedule hierarchical_all_gather(const Problem& problem) {
  Builder builder(problem, problem.block_at(problem.rank), 0);
  const Nodes nodes = nodes_of(problem);
  const Group local = inside(nodes);
  const auto many = static_cast<std::uint32_t>(nodes.ranks.size());
  const auto block_of = [&](std::uint32_t rank) { return Segment{problem.block_at(rank), problem.count}; };
  const auto chunks = [&](auto&& f) { for_chunks(problem.count, problem.chunk_elements, f); };
  if (!problem.in_place) builder.copy(output_at(problem.block_at(problem.rank)), input_at(0), problem.count, false);
  if (nodes.even) {
    const Group remote = across(nodes, nodes.index);
    ring_all_gather(builder, remote, [&](std::uint32_t node) { return block_of(remote.rank(node)); }, input_at(0), output_at(0), problem.chunk_elements);
    for (std::uint32_t k = 0; k < many; ++k) {
      const std::uint32_t node = (nodes.own + many - k) % many;  // in the order in which they have come
      const auto segment = [&](std::uint32_t place) { return block_of(nodes.ranks[node][place]); };
      direct_all_gather(builder, local, segment, output_at(segment(local.index).offset), output_at(0), problem.chunk_elements);
    }
    return builder.finish();
  }
  const Group leaders = across(nodes, 0);
  const bool leads = local.index == 0;
  for (std::uint32_t p = 1; p < local.size(); ++p) {
    chunks([&](std::uint64_t offset, std::uint64_t count) {
      if (leads) builder.recv(local.rank(p), output_at(problem.block_at(local.rank(p)) + offset), count);
      if (local.index == p) builder.send(local.rank(0), input_at(offset), count);
    });
  }
  for (std::uint32_t k = 0; leads && k + 1 < many; ++k) {
    const auto out = (leaders.index + many - k) % many;
    const auto in = (leaders.index + 2 * many - 1 - k) % many;
    for (const std::uint32_t rank : nodes.ranks[out]) {
      chunks([&](std::uint64_t offset, std::uint64_t count) { builder.send(leaders.rank(leaders.index + 1), output_at(problem.block_at(rank) + offset), count); });
    }
    for (const std::uint32_t rank : nodes.ranks[in]) {
      chunks([&](std::uint64_t offset, std::uint64_t count) {
        builder.recv(leaders.rank(leaders.index + many - 1), output_at(problem.block_at(rank) + offset), count);
      });
    }
  }
  for (std::uint32_t k = 0; k < many && local.size() > 1; ++k) {
    for (const std::uint32_t rank : nodes.ranks[(nodes.own + many - k) % many]) {
      chunks([&](std::uint64_t offset, std::uint64_t count) {
        const Place place = output_at(problem.block_at(rank) + offset);
        for (std::uint32_t p = 1; p < local.size(); ++p) {
          if (leads && local.rank(p) != rank) builder.send(local.rank(p), place, count);
          if (local.index == p && local.rank(p) != rank) builder.recv(local.rank(0), place, count);
        }
      });
    }
  }
  return builder.finish();
}

// A chain through the nodes' heads; each spreads on its node.
Schedule hierarchical_broadcast(const Problem& problem) {
  Builder builder(problem);
  const Nodes nodes = nodes_of(problem);
  const Group chain = heads(problem, nodes);
  const std::uint32_t head = chain.rank(chain.index);
  const bool root = problem.rank == problem.root;
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (problem.rank != head) {
      builder.recv(head, output_at(offset), count);
      return;
    }
    if (!root) builder.recv(chain.rank(chain.index - 1), output_at(offset), count);
    const Place from = root ? input_at(offset) : output_at(offset);
    if (chain.index + 1 < chain.size()) builder.send(chain.rank(chain.index + 1), from, count);
    for (const std::uint32_t peer : nodes.ranks[nodes.own]) {
      if (peer != head) builder.send(peer, from, count);
    }
  });
  if (root && !problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

// Each head adds its node's parts in rank order, then a chain of heads adds on the way to the root.
Schedule hierarchical_reduce(const Problem& problem) {
  if (problem.world == 1) return alone(problem);
  Builder builder(problem);
  const Nodes nodes = nodes_of(problem);
  const Group chain = heads(problem, nodes);
  const std::uint32_t head = chain.rank(chain.index);
  if (problem.rank != head) {
    for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.send(head, input_at(offset), count); });
    return builder.finish();
  }
  const auto& ranks = nodes.ranks[nodes.own];
  const auto g = static_cast<std::uint32_t>(ranks.size());
  const bool root = problem.rank == problem.root;
  const bool more = chain.index + 1 < chain.size();
  Slots slots(builder, problem, problem.count, g + 1);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    const Place slot = slots.next();
    const Place far = at(slot, g * slots.chunk());
    for (std::uint32_t p = 0; p < g; ++p) {
      if (ranks[p] != head) builder.recv(ranks[p], at(slot, p * slots.chunk()), count);
    }
    const Place sum = at(slot, nodes.index * slots.chunk());
    Place part = input_at(offset);
    if (g > 1) {
      const auto part_of = [&](std::uint32_t p) { return ranks[p] == head ? input_at(offset) : at(slot, p * slots.chunk()); };
      part = root && !more ? output_at(offset) : sum;
      sum_in_order(builder, g, part_of, sum, part, count, root && !more);
    }
    if (more) {
      builder.recv(chain.rank(chain.index + 1), far, count);
      const Place target = root ? output_at(offset) : sum;
      builder.reduce(target, part, far, count, root);
      part = target;
    }
    if (!root) builder.send(chain.rank(chain.index - 1), part, count);
  });
  return builder.finish();
}

}  // namespace stepccl::schedule
