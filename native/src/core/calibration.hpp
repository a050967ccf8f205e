// SPDX-License-Identifier: Apache-2.0
// The file that stepccl-perf --calibrate writes.
#pragma once

#include <string>

#include "core/engine_settings.hpp"

namespace stepccl {

// Figures and corrections from a calibration's text. INVALID_CONFIGURATION with the place where it can't be.
// {"version": 1, "gamma_us_per_byte": x, "links": {"shm": {"alpha_us": x, "beta_us_per_byte": x, "overhead_us": x}, ...},
//  "corrections": [{"collective": "all_reduce", "algorithm": "ring", "transport": "shm", "log2_bytes": 10, "factor": x}, ...]}
[[nodiscard]] Status parse_calibration(const std::string& text, EngineSettings& settings);
// The same from a file of at most 1 MiB.
[[nodiscard]] Status read_calibration(const std::string& path, EngineSettings& settings);

}  // namespace stepccl
