// SPDX-License-Identifier: Apache-2.0
// Every pair of ranks talks: one exchange, or two.
#include <algorithm>

#include "schedule/group.hpp"

namespace stepccl::schedule {

// Everyone sends its whole array to everyone and adds all of them in rank order: one exchange, (n-1) S bytes.
Schedule direct_one_shot_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  Slots slots(builder, problem, problem.count, n);
  for_chunks(problem.count, slots.chunk(), [&](std::uint64_t offset, std::uint64_t count) {
    const Place slot = slots.next();
    for (std::uint32_t k = 1; k < n; ++k) builder.send((r + k) % n, input_at(offset), count);
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (r + n - k) % n;
      builder.recv(peer, at(slot, peer * slots.chunk()), count);
    }
    const auto part = [&](std::uint32_t p) { return p == r ? input_at(offset) : at(slot, p * slots.chunk()); };
    sum_in_order(builder, n, part, at(slot, r * slots.chunk()), output_at(offset), count, true);
  });
  return builder.finish();
}

// Rank s gets everyone's segment s, adds in rank order and sends the sum to all: two exchanges, 2(n-1)/n S bytes.
Schedule direct_two_shot_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const std::uint64_t longest = (problem.count + n - 1) / n;
  Slots slots(builder, problem, longest, n);
  const Group group = everyone(problem);
  const auto piece = [&](std::uint64_t offset) {
    return [&, offset](std::uint32_t s) {
      const Segment whole = segment_of(problem.count, n, s);
      if (offset >= whole.count) return Segment{whole.offset, 0};
      return Segment{whole.offset + offset, std::min(slots.chunk(), whole.count - offset)};
    };
  };
  const auto gather_sums = [&](std::uint64_t offset) {
    direct_all_gather(builder, group, piece(offset), output_at(piece(offset)(group.index).offset), output_at(0), slots.chunk());
  };
  // Chunk by chunk of all segments together. The second exchange of a chunk stands behind the first one of the next
  // chunk, so that a message is always under way while a sum is computed.
  for_chunks(longest, slots.chunk(), [&](std::uint64_t offset, std::uint64_t) {
    direct_reduce_scatter(builder, group, piece(offset), input_at(0), output_at(piece(offset)(group.index).offset), slots, true);
    if (offset != 0) gather_sums(offset - slots.chunk());
  });
  if (longest != 0) gather_sums((longest - 1) / slots.chunk() * slots.chunk());
  return builder.finish();
}

Schedule direct_all_gather(const Problem& problem) {
  Builder builder(problem, problem.block_at(problem.rank), 0);
  const auto block = [&](std::uint32_t i) { return Segment{problem.block_at(i), problem.count}; };
  direct_all_gather(builder, everyone(problem), block, input_at(0), output_at(0), problem.chunk_elements);
  if (!problem.in_place) builder.copy(output_at(problem.block_at(problem.rank)), input_at(0), problem.count, false);
  return builder.finish();
}

Schedule direct_reduce_scatter(const Problem& problem) {
  Builder builder(problem, 0, problem.block_at(problem.rank));
  if (problem.world == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  Slots slots(builder, problem, problem.count, problem.world);
  const auto block = [&](std::uint32_t i) { return Segment{problem.block_at(i), problem.count}; };
  direct_reduce_scatter(builder, everyone(problem), block, input_at(0), output_at(0), slots, true);
  return builder.finish();
}

Schedule direct_broadcast(const Problem& problem) {
  Builder builder(problem);
  const Group group = everyone(problem, problem.root);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (group.index != 0) {
      builder.recv(problem.root, output_at(offset), count);
      return;
    }
    for (std::uint32_t k = 1; k < group.size(); ++k) builder.send(group.rank(k), input_at(offset), count);
  });
  if (group.index == 0 && !problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

Schedule direct_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  if (problem.rank != problem.root) {
    for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.send(problem.root, input_at(offset), count); });
    return builder.finish();
  }
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  Slots slots(builder, problem, problem.count, n);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    const Place slot = slots.next();
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (problem.root + k) % n;
      builder.recv(peer, at(slot, peer * slots.chunk()), count);
    }
    const auto part = [&](std::uint32_t p) { return p == problem.root ? input_at(offset) : at(slot, p * slots.chunk()); };
    sum_in_order(builder, n, part, at(slot, problem.root * slots.chunk()), output_at(offset), count, true);
  });
  return builder.finish();
}

Schedule direct_scatter(const Problem& problem) {
  Builder builder(problem, 0, problem.block_at(problem.root));
  const Group group = everyone(problem, problem.root);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (group.index != 0) {
      builder.recv(problem.root, output_at(offset), count);
      return;
    }
    for (std::uint32_t k = 1; k < group.size(); ++k) builder.send(group.rank(k), input_at(problem.block_at(group.rank(k)) + offset), count);
  });
  if (group.index == 0 && !problem.in_place) builder.copy(output_at(0), input_at(problem.block_at(problem.root)), problem.count, false);
  return builder.finish();
}

Schedule direct_gather(const Problem& problem) {
  Builder builder(problem, problem.block_at(problem.root), 0);
  const Group group = everyone(problem, problem.root);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (group.index != 0) {
      builder.send(problem.root, input_at(offset), count);
      return;
    }
    for (std::uint32_t k = 1; k < group.size(); ++k) builder.recv(group.rank(k), output_at(problem.block_at(group.rank(k)) + offset), count);
  });
  if (group.index == 0 && !problem.in_place) builder.copy(output_at(problem.block_at(problem.root)), input_at(0), problem.count, false);
  return builder.finish();
}

Schedule send_message(const Problem& problem) {
  Builder builder(problem);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.send(problem.root, input_at(offset), count); });
  return builder.finish();
}

Schedule recv_message(const Problem& problem) {
  Builder builder(problem);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.recv(problem.root, output_at(offset), count); });
  return builder.finish();
}

}  // namespace stepccl::schedule
