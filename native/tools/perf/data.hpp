// SPDX-License-Identifier: Apache-2.0
// Test data that every rank can compute for every other, and the full check of a result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stepccl/stepccl.h"

namespace perf {

// The elements that `rank` contributes. A function of (rank, index, datatype, redop, seed) alone.
void fill(void* data, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t rank, std::uint64_t seed);

// How many of the elements differ from the reduction over all ranks of the elements from `first` on: integers, min and max exactly; floating
// sums and products by Higham's bound |error| <= gamma(n-1) sum|x| (Accuracy and Stability of Numerical Algorithms,
// section 4.2) with the type's unit roundoff, or the one of what it travels as, which holds for any order of summation.
[[nodiscard]] std::uint64_t count_wrong(const void* result, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop,
                                        std::uint32_t world, std::uint64_t seed, std::uint64_t first = 0, double wire_roundoff = 0);

// How many of the elements differ from what `rank` contributes from its element `first` on, bit for bit.
[[nodiscard]] std::uint64_t count_different(const void* result, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t rank,
                                            std::uint64_t first, std::uint64_t seed);

// Fills with a pattern that no result has.
void poison(void* data, std::size_t bytes);

}  // namespace perf
