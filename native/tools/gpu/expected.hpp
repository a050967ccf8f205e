// SPDX-License-Identifier: Apache-2.0
// What an operation must leave in recv, computed on the CPU from every rank's input, bit for bit.
#pragma once

#include <cstring>
#include <vector>

#include "core/reduce.hpp"
#include "gpu/ranks.hpp"

namespace gpu {

struct Case {
  stepccl_collective_t kind = STEPCCL_ALL_REDUCE;
  stepccl_datatype_t type = STEPCCL_FLOAT32;
  stepccl_redop_t redop = STEPCCL_SUM;
  std::uint64_t count = 0;
  std::uint32_t root = 0;
  std::uint64_t seed = 0;

  [[nodiscard]] std::uint64_t bytes() const { return count * stepccl_datatype_bytes(type); }
  [[nodiscard]] std::uint64_t send_blocks(std::uint32_t world) const {
    return kind == STEPCCL_REDUCE_SCATTER || kind == STEPCCL_ALL_TO_ALL || kind == STEPCCL_SCATTER ? world : 1;
  }
  [[nodiscard]] std::uint64_t recv_blocks(std::uint32_t world) const { return kind == STEPCCL_ALL_GATHER || kind == STEPCCL_ALL_TO_ALL || kind == STEPCCL_GATHER ? world : 1; }
  [[nodiscard]] bool writes(std::uint32_t rank) const { return (kind != STEPCCL_REDUCE && kind != STEPCCL_GATHER) || rank == root; }
};

inline std::vector<unsigned char> input(const Case& c, std::uint32_t world, std::uint32_t rank) {
  std::vector<unsigned char> data(c.bytes() * c.send_blocks(world));
  fill(data.data(), c.type, 0, c.count * c.send_blocks(world), rank, c.seed);
  return data;
}

inline std::vector<unsigned char> expected(const Case& c, std::uint32_t world, std::uint32_t rank) {
  const std::uint64_t bytes = c.bytes();
  std::vector<unsigned char> out(bytes * c.recv_blocks(world));
  std::vector<unsigned char> block(bytes);
  // Block `index` of what rank `from` sends.
  const auto sent = [&](std::uint32_t from, std::uint64_t index) {
    fill(block.data(), c.type, index * c.count, c.count, from, c.seed);
    return block.data();
  };
  const auto reduced = [&](std::uint64_t index) {
    std::memcpy(out.data(), sent(0, index), bytes);
    for (std::uint32_t from = 1; from < world; ++from) stepccl::reduce(out.data(), out.data(), sent(from, index), c.count, c.type, c.redop);
    if (c.redop == STEPCCL_AVG) stepccl::divide(out.data(), c.count, c.type, world);
  };
  switch (c.kind) {
    case STEPCCL_ALL_REDUCE:
    case STEPCCL_REDUCE: reduced(0); break;
    case STEPCCL_REDUCE_SCATTER: reduced(rank); break;
    case STEPCCL_BROADCAST: std::memcpy(out.data(), sent(c.root, 0), bytes); break;
    case STEPCCL_SCATTER: std::memcpy(out.data(), sent(c.root, rank), bytes); break;
    case STEPCCL_ALL_GATHER:
    case STEPCCL_GATHER:
      for (std::uint32_t from = 0; from < world; ++from) std::memcpy(out.data() + from * bytes, sent(from, 0), bytes);
      break;
    default:
      for (std::uint32_t from = 0; from < world; ++from) std::memcpy(out.data() + from * bytes, sent(from, rank), bytes);
      break;
  }
  return out;
}

inline stepccl_result_t call(const Rank& self, const Case& c, CUdeviceptr send, CUdeviceptr recv, CUstream stream, stepccl_cuda_call_t* options) {
  const void* from = reinterpret_cast<const void*>(send);
  void* to = reinterpret_cast<void*>(recv);
  switch (c.kind) {
    case STEPCCL_ALL_REDUCE: return stepccl_cuda_all_reduce(self.engine, from, to, c.count, c.type, c.redop, stream, options);
    case STEPCCL_REDUCE_SCATTER: return stepccl_cuda_reduce_scatter(self.engine, from, to, c.count, c.type, c.redop, stream, options);
    case STEPCCL_REDUCE: return stepccl_cuda_reduce(self.engine, from, to, c.count, c.type, c.redop, c.root, stream, options);
    case STEPCCL_ALL_GATHER: return stepccl_cuda_all_gather(self.engine, from, to, c.count, c.type, stream, options);
    case STEPCCL_BROADCAST: return stepccl_cuda_broadcast(self.engine, from, to, c.count, c.type, c.root, stream, options);
    case STEPCCL_SCATTER: return stepccl_cuda_scatter(self.engine, from, to, c.count, c.type, c.root, stream, options);
    case STEPCCL_GATHER: return stepccl_cuda_gather(self.engine, from, to, c.count, c.type, c.root, stream, options);
    case STEPCCL_ALL_TO_ALL: return stepccl_cuda_all_to_all(self.engine, from, to, c.count, c.type, stream, options);
    default: return stepccl_cuda_barrier(self.engine, stream, options);
  }
}

}  // namespace gpu
