// SPDX-License-Identifier: Apache-2.0
// The kernels of the embedded fat binary, loaded ahead of use: a lazy load in the middle of an operation would wait
// for the kernel that waits for it.
#pragma once

#include <array>

#include "cuda/driver.hpp"
#include "stepccl/cuda.h"

namespace stepccl::cuda {

class Kernels {
 public:
  enum Kind : std::uint32_t { kFlagged, kPacked, kStaged, kDirect, kBulk, kPipeline, kSpread, kKinds };
  enum Arithmetic : std::uint32_t { kAny, kFloat, kBfloat, kHalf, kCopy, kArithmetics };

  [[nodiscard]] Status load(const Driver& driver, bool hopper, std::uint32_t shared_bytes);
  void unload(const Driver& driver);

  [[nodiscard]] CUfunction get(Kind kind, Arithmetic arithmetic) const noexcept { return functions_[kind][arithmetic]; }
  [[nodiscard]] CUfunction gate_enter() const noexcept { return gate_enter_; }
  [[nodiscard]] CUfunction gate_leave() const noexcept { return gate_leave_; }

  // The specialised code for a reduction, if there is one.
  [[nodiscard]] static Arithmetic arithmetic_for(stepccl_datatype_t datatype, stepccl_redop_t redop) noexcept;

 private:
  CUmodule module_ = nullptr;
  std::array<std::array<CUfunction, kArithmetics>, kKinds> functions_{};
  CUfunction gate_enter_ = nullptr;
  CUfunction gate_leave_ = nullptr;
};

}  // namespace stepccl::cuda
