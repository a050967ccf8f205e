// SPDX-License-Identifier: Apache-2.0
// Names of the enumerations, both ways.
#pragma once

#include <optional>
#include <string_view>

#include "stepccl/stepccl.h"

namespace stepccl {

// Accepts this library's names and those of nccl-tests ("float", "half", "fp32"); nothing else.
[[nodiscard]] std::optional<stepccl_datatype_t> datatype_from_name(std::string_view name) noexcept;
[[nodiscard]] std::optional<stepccl_redop_t> redop_from_name(std::string_view name) noexcept;
[[nodiscard]] std::optional<stepccl_collective_t> collective_from_name(std::string_view name) noexcept;
[[nodiscard]] std::optional<stepccl_algorithm_t> algorithm_from_name(std::string_view name) noexcept;
// "auto" gives STEPCCL_TRANSPORT_NONE.
[[nodiscard]] std::optional<stepccl_transport> transport_from_name(std::string_view name) noexcept;

}  // namespace stepccl
