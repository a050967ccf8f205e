// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels.hpp"

#include <string>

// build/…/kernels.fatbin, by fatbin.S
extern "C" const unsigned char stepccl_fatbin[];

namespace stepccl::cuda {

Kernels::Arithmetic Kernels::arithmetic_for(stepccl_datatype_t datatype, stepccl_redop_t redop) noexcept {
  if (redop != STEPCCL_SUM && redop != STEPCCL_AVG) return kAny;
  switch (datatype) {
    case STEPCCL_FLOAT32: return kFloat;
    case STEPCCL_BFLOAT16: return kBfloat;
    case STEPCCL_FLOAT16: return kHalf;
    default: return kAny;
  }
}

Status Kernels::load(const Driver& driver, bool hopper, std::uint32_t shared_bytes) {
  constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_REGISTER;
  STEPCCL_CU(driver, kPhase, cuModuleLoadData, &module_, stepccl_fatbin);
  constexpr const char* kKindNames[kKinds] = {"flagged", "packed", "staged", "direct", "bulk", "pipeline", "spread"};
  constexpr const char* kArithmeticNames[kArithmetics] = {"any", "float", "bfloat", "half", "copy"};
  for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
    for (std::uint32_t arithmetic = 0; arithmetic < kArithmetics; ++arithmetic) {
      const bool copies = kind == kFlagged || kind == kPacked || kind == kStaged || kind == kSpread;
      if (arithmetic == kCopy ? !copies : kind == kSpread) continue;
      const std::string name = std::string("stepccl_") + kKindNames[kind] + '_' + kArithmeticNames[arithmetic];
      STEPCCL_CU(driver, kPhase, cuModuleGetFunction, &functions_[kind][arithmetic], module_, name.c_str());
      // Setting an attribute loads the code.
      if (kind == kBulk && hopper) {
        STEPCCL_CU(driver, kPhase, cuFuncSetAttribute, functions_[kind][arithmetic], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared_bytes));
      } else {
        STEPCCL_CU(driver, kPhase, cuFuncSetAttribute, functions_[kind][arithmetic], CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0);
      }
    }
  }
  STEPCCL_CU(driver, kPhase, cuModuleGetFunction, &gate_enter_, module_, "stepccl_gate_enter");
  STEPCCL_CU(driver, kPhase, cuModuleGetFunction, &gate_leave_, module_, "stepccl_gate_leave");
  for (const CUfunction gate : {gate_enter_, gate_leave_}) {
    STEPCCL_CU(driver, kPhase, cuFuncSetAttribute, gate, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0);
  }
  return {};
}

void Kernels::unload(const Driver& driver) {
  if (module_ != nullptr) driver.cuModuleUnload(module_);
  module_ = nullptr;
}

}  // namespace stepccl::cuda
