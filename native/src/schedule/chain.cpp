// SPDX-License-Identifier: Apache-2.0
// One after the other from the root on, chunks pipelined: every link carries each byte once.
#include "schedule/group.hpp"

namespace stepccl::schedule {

Schedule chain_broadcast(const Problem& problem) {
  Builder builder(problem);
  const Group chain = everyone(problem, problem.root);
  const std::uint32_t i = chain.index;
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (i != 0) builder.recv(chain.rank(i - 1), output_at(offset), count);
    if (i + 1 < chain.size()) builder.send(chain.rank(i + 1), i == 0 ? input_at(offset) : output_at(offset), count);
  });
  if (i == 0 && !problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

// From the far end to the root: every rank's part stands left of what comes.
Schedule chain_reduce(const Problem& problem) {
  Builder builder(problem);
  const Group chain = everyone(problem, problem.root);
  const std::uint32_t i = chain.index;
  if (chain.size() == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  Slots slots(builder, problem, problem.count);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (i + 1 == chain.size()) {
      builder.send(chain.rank(i - 1), input_at(offset), count);
      return;
    }
    const Place slot = slots.next();
    builder.recv(chain.rank(i + 1), slot, count);
    builder.reduce(i == 0 ? output_at(offset) : slot, input_at(offset), slot, count, i == 0);
    if (i != 0) builder.send(chain.rank(i - 1), slot, count);
  });
  return builder.finish();
}

}  // namespace stepccl::schedule
