// SPDX-License-Identifier: Apache-2.0
#include "perf/collectives.hpp"

#include <algorithm>

#include "perf/data.hpp"
#include "schedule/schedule.hpp"

namespace perf {
namespace {

std::byte* at(const Work& work, void* buffer, std::uint64_t element) {
  return static_cast<std::byte*>(buffer) + element * stepccl_datatype_bytes(work.datatype);
}

bool at_root(const Work& work) { return work.rank == work.root; }

}  // namespace

bool is_reducing(stepccl_collective_t c) { return c == STEPCCL_ALL_REDUCE || c == STEPCCL_REDUCE || c == STEPCCL_REDUCE_SCATTER; }
bool is_rooted(stepccl_collective_t c) { return c == STEPCCL_BROADCAST || c == STEPCCL_REDUCE || c == STEPCCL_SCATTER || c == STEPCCL_GATHER; }

std::uint64_t Work::full_count() const {
  return collective == STEPCCL_BARRIER ? 0 : stepccl::schedule::is_blocked(collective) ? count * world : count;
}

std::uint64_t Work::bytes() const { return full_count() * stepccl_datatype_bytes(datatype); }

std::uint64_t Work::send_count() const {
  switch (collective) {
    case STEPCCL_REDUCE_SCATTER:
    case STEPCCL_ALL_TO_ALL: return count * world;
    case STEPCCL_SCATTER: return at_root(*this) ? count * world : 0;
    case STEPCCL_BROADCAST: return at_root(*this) ? count : 0;
    case STEPCCL_BARRIER: return 0;
    default: return count;
  }
}

std::uint64_t Work::recv_count() const {
  switch (collective) {
    case STEPCCL_ALL_GATHER:
    case STEPCCL_ALL_TO_ALL: return count * world;
    case STEPCCL_GATHER: return at_root(*this) ? count * world : 0;
    case STEPCCL_REDUCE: return at_root(*this) ? count : 0;
    case STEPCCL_BARRIER: return 0;
    default: return count;
  }
}

Work work_of(stepccl_collective_t collective, std::uint64_t bytes, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t root, std::uint32_t rank,
             std::uint32_t world) {
  Work work{collective, datatype, redop, root, rank, world, bytes / stepccl_datatype_bytes(datatype)};
  if (stepccl::schedule::is_blocked(collective)) work.count /= world;
  if (collective == STEPCCL_BARRIER) work.count = 0;
  return work;
}

double bus_factor(stepccl_collective_t collective, std::uint32_t world) {
  const double n = world;
  switch (collective) {
    case STEPCCL_ALL_REDUCE: return 2 * (n - 1) / n;
    case STEPCCL_ALL_GATHER:
    case STEPCCL_REDUCE_SCATTER:
    case STEPCCL_SCATTER:
    case STEPCCL_GATHER:
    case STEPCCL_ALL_TO_ALL: return (n - 1) / n;
    case STEPCCL_BARRIER: return 0;
    default: return 1;
  }
}

Buffers in_place(const Work& work, void* buffer) {
  switch (work.collective) {
    case STEPCCL_ALL_GATHER: return {at(work, buffer, work.rank * work.count), buffer};
    case STEPCCL_REDUCE_SCATTER: return {buffer, at(work, buffer, work.rank * work.count)};
    case STEPCCL_SCATTER: return at_root(work) ? Buffers{buffer, at(work, buffer, work.root * work.count)} : Buffers{buffer, buffer};
    case STEPCCL_GATHER: return at_root(work) ? Buffers{at(work, buffer, work.root * work.count), buffer} : Buffers{buffer, buffer};
    default: return {buffer, buffer};
  }
}

stepccl_result_t call(stepccl_comm_t comm, const Work& w, const Buffers& b, const stepccl_call_t* options) {
  switch (w.collective) {
    case STEPCCL_ALL_REDUCE: return stepccl_all_reduce(comm, b.send, b.recv, w.count, w.datatype, w.redop, options);
    case STEPCCL_ALL_GATHER: return stepccl_all_gather(comm, b.send, b.recv, w.count, w.datatype, options);
    case STEPCCL_REDUCE_SCATTER: return stepccl_reduce_scatter(comm, b.send, b.recv, w.count, w.datatype, w.redop, options);
    case STEPCCL_BROADCAST: return stepccl_broadcast(comm, b.send, b.recv, w.count, w.datatype, w.root, options);
    case STEPCCL_REDUCE: return stepccl_reduce(comm, b.send, b.recv, w.count, w.datatype, w.redop, w.root, options);
    case STEPCCL_SCATTER: return stepccl_scatter(comm, b.send, b.recv, w.count, w.datatype, w.root, options);
    case STEPCCL_GATHER: return stepccl_gather(comm, b.send, b.recv, w.count, w.datatype, w.root, options);
    case STEPCCL_ALL_TO_ALL: return stepccl_all_to_all(comm, b.send, b.recv, w.count, w.datatype, options);
    case STEPCCL_BARRIER: return stepccl_barrier(comm, options);
    case STEPCCL_SEND_RECV: break;
  }
  // To the next rank and from the one before, as sendrecv_perf does.
  stepccl_group_start();
  const stepccl_result_t sent = stepccl_send(comm, b.send, w.count, w.datatype, (w.rank + 1) % w.world, options);
  const stepccl_result_t received = stepccl_recv(comm, b.recv, w.count, w.datatype, (w.rank + w.world - 1) % w.world, options);
  const stepccl_result_t moved = stepccl_group_end();
  return sent != STEPCCL_SUCCESS ? sent : received != STEPCCL_SUCCESS ? received : moved;
}

void fill_input(const Work& work, void* send, std::uint64_t seed) { fill(send, work.send_count(), work.datatype, work.redop, work.rank, seed); }

std::uint64_t count_wrong_output(const Work& w, const void* recv, std::uint64_t seed) {
  const auto blocks = [&](std::uint64_t first) {
    std::uint64_t wrong = 0;
    for (std::uint32_t r = 0; r < w.world; ++r) {
      wrong += count_different(static_cast<const std::byte*>(recv) + r * w.count * stepccl_datatype_bytes(w.datatype), w.count, w.datatype, w.redop, r, first, seed);
    }
    return wrong;
  };
  switch (w.collective) {
    case STEPCCL_ALL_REDUCE: return count_wrong(recv, w.count, w.datatype, w.redop, w.world, seed, 0, w.wire_roundoff);
    case STEPCCL_REDUCE: return at_root(w) ? count_wrong(recv, w.count, w.datatype, w.redop, w.world, seed, 0, w.wire_roundoff) : 0;
    case STEPCCL_REDUCE_SCATTER: return count_wrong(recv, w.count, w.datatype, w.redop, w.world, seed, w.rank * w.count, w.wire_roundoff);
    case STEPCCL_ALL_GATHER: return blocks(0);
    case STEPCCL_GATHER: return at_root(w) ? blocks(0) : 0;
    case STEPCCL_ALL_TO_ALL: return blocks(w.rank * w.count);
    case STEPCCL_BROADCAST: return count_different(recv, w.count, w.datatype, w.redop, w.root, 0, seed);
    case STEPCCL_SCATTER: return count_different(recv, w.count, w.datatype, w.redop, w.root, w.rank * w.count, seed);
    case STEPCCL_SEND_RECV: return count_different(recv, w.count, w.datatype, w.redop, (w.rank + w.world - 1) % w.world, 0, seed);
    case STEPCCL_BARRIER: break;
  }
  return 0;
}

}  // namespace perf
