// SPDX-License-Identifier: Apache-2.0
// The local arithmetic of reductions on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stepccl/stepccl.h"

namespace stepccl {

// target[i] = left[i] op right[i]. `target` may be exactly `left` or `right`, no other overlap; AVG adds.
// The operands' order is kept, so NaN payloads and signed zeros come out the same everywhere.
void reduce(void* target, const void* left, const void* right, std::size_t count, stepccl_datatype_t datatype,
            stepccl_redop_t redop) noexcept;

// The last step of AVG: target[i] /= ranks. Integers are truncated towards zero.
void divide(void* target, std::size_t count, stepccl_datatype_t datatype, std::uint32_t ranks) noexcept;

// "avx2" or "baseline": which kernels this CPU runs. Both give the same bits.
[[nodiscard]] const char* reduce_kernels_name() noexcept;

// The baseline kernels whatever the CPU; for tests that compare the two.
void reduce_baseline(void* target, const void* left, const void* right, std::size_t count, stepccl_datatype_t datatype,
                     stepccl_redop_t redop) noexcept;

}  // namespace stepccl
