// SPDX-License-Identifier: Apache-2.0
// Times and checks one size of a collective.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "perf/collectives.hpp"
#include "perf/output.hpp"

namespace perf {

// Page-aligned and touched, so that no iteration pays for page faults.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes == 0 ? 1 : bytes) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  }
  ~Memory() {
    if (ok()) ::munmap(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] bool ok() const { return data_ != MAP_FAILED; }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_;
  std::size_t bytes_;
};

// What the command line asks of every call.
[[nodiscard]] stepccl_call_t call_options(const Arguments& arguments);

// What every rank measures; each call returns SUCCESS or the first error.
class Bench {
 public:
  // Both buffers hold the largest size.
  Bench(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, void* send, void* recv)
      : arguments_(arguments), comm_(comm), rank_(rank), world_(world), send_(send), recv_(recv), options_(call_options(arguments)) {}

  [[nodiscard]] stepccl_result_t measure(stepccl_collective_t collective, std::uint64_t bytes, stepccl_datatype_t datatype, stepccl_redop_t redop, Row& row);

  // Mean time of `iterations` calls, averaged over the ranks.
  [[nodiscard]] stepccl_result_t time(const Work& work, const Buffers& buffers, const stepccl_call_t& options, std::uint32_t warmup, std::uint32_t iterations,
                                      double& time_us);

 private:
  template <class T>
  stepccl_result_t agree(T& value, stepccl_datatype_t datatype, stepccl_redop_t redop) {
    return stepccl_all_reduce(comm_, &value, &value, 1, datatype, redop, nullptr);
  }
  stepccl_result_t measure_one(const Work& work, const Buffers& buffers, Row& row, Timing& timing);

  const Arguments& arguments_;
  stepccl_comm_t comm_;
  std::uint32_t rank_;
  std::uint32_t world_;
  void* send_;
  void* recv_;
  stepccl_call_t options_;
};

}  // namespace perf
