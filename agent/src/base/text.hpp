// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepccl::agent {

/// Without leading and trailing white space.
std::string_view trim(std::string_view text) noexcept;

/// The whole text as an unsigned number of the given base (10 or 16, an "0x" is taken with 16), or nothing.
std::optional<std::uint64_t> parse_u64(std::string_view text, int base = 10) noexcept;

/// The whole text as a signed decimal number, or nothing.
std::optional<std::int64_t> parse_i64(std::string_view text) noexcept;

/// The parts between the separators; empty parts are kept.
std::vector<std::string_view> split(std::string_view text, char separator);

/// How many bytes the well-formed UTF-8 sequence at `text[at]` takes; 0 where it is malformed.
std::size_t utf8_sequence(std::string_view text, std::size_t at) noexcept;

/// Foreign text made safe to show: malformed UTF-8 and control characters become '?', and it is cut
/// to `max_bytes` at a character's edge.
std::string printable(std::string_view text, std::size_t max_bytes = 4096);

/// True when the text holds only A-Z a-z 0-9 and characters of `also`, and 1..max_bytes of them.
bool is_token(std::string_view text, std::size_t max_bytes, std::string_view also = "_-") noexcept;

/// True when the text is an IPv4 or IPv6 literal.
bool is_ip_address(const std::string &text) noexcept;

} // namespace stepccl::agent
