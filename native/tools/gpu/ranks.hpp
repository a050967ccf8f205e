// SPDX-License-Identifier: Apache-2.0
// Runs a job of several GPUs of this host: one process each, forked before the driver is touched.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "stepccl/cuda.h"

namespace gpu {

// Thrown with what went wrong.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One rank: its communicator, engine, context and a stream.
struct Rank {
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  stepccl_comm_t comm = nullptr;
  stepccl_cuda_t engine = nullptr;
  const stepccl::cuda::Driver* driver = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  // Throws unless the call succeeded.
  void ok(stepccl_result_t result, const char* what) const;
  void cu(CUresult result, const char* what) const;

  [[nodiscard]] CUdeviceptr window(std::uint64_t bytes) const;  // stepccl_cuda_mem_alloc
  [[nodiscard]] CUdeviceptr plain(std::uint64_t bytes) const;   // cuMemAlloc
  void upload(CUdeviceptr to, const void* from, std::uint64_t bytes) const;
  void download(void* to, CUdeviceptr from, std::uint64_t bytes) const;
  void sync() const;     // this rank's stream
  void meet() const;     // all ranks' host threads
  // Largest value over all ranks.
  [[nodiscard]] double largest(double mine) const;
  [[nodiscard]] std::uint64_t sum(std::uint64_t mine) const;
};

// Gives every rank's end: 0 well, otherwise its exit status or 128 + signal. A job that outlasts timeout_s is killed.
struct Outcome {
  std::vector<int> status;
  bool timed_out = false;
  [[nodiscard]] bool well() const;
};
[[nodiscard]] Outcome run(std::uint32_t world, std::uint32_t timeout_s, const stepccl_cuda_config_t& config, const std::function<void(Rank&)>& body,
                          bool orderly_end = true);

// Pseudo-random finite values of a type: element `index` of rank `rank` in round `seed`, the same in every process.
void fill(void* to, stepccl_datatype_t type, std::uint64_t first, std::uint64_t count, std::uint32_t rank, std::uint64_t seed);

}  // namespace gpu
