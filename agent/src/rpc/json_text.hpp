// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace stepccl::agent {

/// Deepest nesting that is taken from outside. (A value's writer recurses once for each level.)
inline constexpr std::size_t kMaxJsonDepth = 32;

/// True when no array or object of the text lies deeper than `max_depth`. Looks at brackets outside of
/// strings only: a text that passes may still be no JSON.
bool depth_within(std::string_view text, std::size_t max_depth = kMaxJsonDepth) noexcept;

/// The value of a foreign JSON text, or nothing where it is malformed, no UTF-8, or too deep; `why` then
/// says which in a few words.
std::optional<nlohmann::json> parse_json(std::string_view text, std::string *why = nullptr);

/// The value as one line of JSON (no line end). Malformed UTF-8 inside is replaced, never thrown at.
std::string to_line(const nlohmann::json &value);

} // namespace stepccl::agent
