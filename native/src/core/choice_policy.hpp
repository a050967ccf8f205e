// SPDX-License-Identifier: Apache-2.0
// STEPCCL_ALGO and STEPCCL_PROTO, and NCCL's variables of the same grammar: what may be chosen for which collective.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/error.hpp"

namespace stepccl {

// How small messages travel where a transport has more than one way.
enum : std::uint8_t { kProtocolLL = 1, kProtocolLL128 = 2, kProtocolSimple = 4, kProtocolAll = 7 };

struct ChoicePolicy {
  std::array<std::uint32_t, STEPCCL_COLLECTIVE_COUNT> algorithms{};  // bits 1 << stepccl_algorithm_t; 0 = all
  std::array<std::uint8_t, STEPCCL_COLLECTIVE_COUNT> protocols{};    // 0 = all
  std::array<std::uint8_t, 2> reserved{};                            // rank 0 sends it as it stands: no bytes without a value
};
static_assert(sizeof(ChoicePolicy) == STEPCCL_COLLECTIVE_COUNT * 5 + 2);

// NCCL's grammar: entries separated by ';', each a comma list with an optional "function:" in front; '^' in front of a
// list excludes it. Later entries win, entries with a function over those without. Case and underscores do not count.
// `variable` is named in errors. With `foreign` the names are NCCL's: those of algorithms that this library lacks (collnet,
// nvls) are skipped. Without a function a list holds for the collectives that have any of its algorithms; with one, for a
// collective that has none of them, it is refused.
// Errors: INVALID_CONFIGURATION.
[[nodiscard]] Status read_algorithms(const std::string& variable, const std::string& text, bool foreign, ChoicePolicy& policy);
[[nodiscard]] Status read_protocols(const std::string& variable, const std::string& text, ChoicePolicy& policy);

}  // namespace stepccl
