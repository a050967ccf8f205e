// SPDX-License-Identifier: Apache-2.0
// Predicted times: a discrete-event walk through the very schedules that the engines execute.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stepccl/stepccl.h"

namespace stepccl::model {

// Hockney's model with a reduction term. Each rank has one port out and one in, full duplex.
struct LinkModel {
  double alpha_us = 0;           // from posting a message to its first byte at the peer
  double beta_us_per_byte = 0;   // of a port
  double gamma_us_per_byte = 0;  // of reducing
};

// Predicted time in us until the last rank is done, messages not cut into chunks. AUTO takes the algorithm with the least
// closed-form cost. Beyond about a million steps in all, the closed form stands in for the walk.
// nullopt: no such algorithm for the collective, world 0, or a parameter that is negative or not finite.
[[nodiscard]] std::optional<double> expected_us(stepccl_collective_t collective, stepccl_algorithm_t algorithm,
                                                std::uint32_t world, std::uint64_t bytes, const LinkModel& link);

// The walk itself, with messages of at most chunk_bytes.
[[nodiscard]] std::optional<double> simulate_us(stepccl_collective_t collective, stepccl_algorithm_t algorithm,
                                                std::uint32_t world, std::uint64_t bytes, std::uint64_t chunk_bytes,
                                                const LinkModel& link);

struct Sample {
  double bytes = 0;
  double time_us = 0;
};

struct Fit {
  double alpha_us = 0;
  double beta_us_per_byte = 0;  // gamma is part of it
};

// Least squares of relative errors, both parameters held at 0 or above. Needs at least two sizes and a named algorithm;
// nullopt otherwise, or where a sample is not positive and finite.
[[nodiscard]] std::optional<Fit> fit_alpha_beta(std::span<const Sample> samples, stepccl_collective_t collective,
                                                stepccl_algorithm_t algorithm, std::uint32_t world);

}  // namespace stepccl::model
