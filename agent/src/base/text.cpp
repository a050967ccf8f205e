// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace stepccl::agent {

namespace {

bool is_space(char c) noexcept
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\0';
}

bool is_continuation(unsigned char c) noexcept { return (c & 0xc0u) == 0x80u; }

} // namespace

std::string_view trim(std::string_view text) noexcept
{
	while (!text.empty() && is_space(text.front()))
		text.remove_prefix(1);
	while (!text.empty() && is_space(text.back()))
		text.remove_suffix(1);
	return text;
}

std::optional<std::uint64_t> parse_u64(std::string_view text, int base) noexcept
{
	if (base == 16 && text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		text.remove_prefix(2);
	std::uint64_t value = 0;
	const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
	if (error != std::errc{} || end != text.data() + text.size() || text.empty())
		return std::nullopt;
	return value;
}

std::optional<std::int64_t> parse_i64(std::string_view text) noexcept
{
	std::int64_t value = 0;
	const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
	if (error != std::errc{} || end != text.data() + text.size() || text.empty())
		return std::nullopt;
	return value;
}

std::vector<std::string_view> split(std::string_view text, char separator)
{
	std::vector<std::string_view> parts;
	for (;;) {
		const auto at = text.find(separator);
		parts.push_back(text.substr(0, at));
		if (at == std::string_view::npos)
			return parts;
		text.remove_prefix(at + 1);
	}
}

std::size_t utf8_sequence(std::string_view text, std::size_t at) noexcept
{
	const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
	const std::size_t left = text.size() - at;
	const unsigned char first = byte(0);
	if (first < 0x80)
		return 1;
	// Unicode 15, table 3-7: well-formed UTF-8 byte sequences.
	if (first >= 0xc2 && first <= 0xdf)
		return left >= 2 && is_continuation(byte(1)) ? 2 : 0;
	if (first >= 0xe0 && first <= 0xef) {
		if (left < 3 || !is_continuation(byte(1)) || !is_continuation(byte(2)))
			return 0;
		if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f))
			return 0;
		return 3;
	}
	if (first >= 0xf0 && first <= 0xf4) {
		if (left < 4 || !is_continuation(byte(1)) || !is_continuation(byte(2)) ||
		    !is_continuation(byte(3)))
			return 0;
		if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f))
			return 0;
		return 4;
	}
	return 0;
}

std::string printable(std::string_view text, std::size_t max_bytes)
{
	std::string out;
	out.reserve(std::min(text.size(), max_bytes));
	for (std::size_t at = 0; at < text.size();) {
		const std::size_t length = utf8_sequence(text, at);
		const auto first = static_cast<unsigned char>(text[at]);
		const bool c1_control = length == 2 && first == 0xc2 &&
					static_cast<unsigned char>(text[at + 1]) < 0xa0;
		const bool shown = length > 0 && first >= 0x20 && first != 0x7f && !c1_control;
		const std::size_t step = length == 0 ? 1 : length;
		if (out.size() + (shown ? step : 1) > max_bytes)
			break;
		if (shown)
			out.append(text.substr(at, step));
		else
			out.push_back(first == '\t' ? ' ' : '?');
		at += step;
	}
	return out;
}

bool is_token(std::string_view text, std::size_t max_bytes, std::string_view also) noexcept
{
	if (text.empty() || text.size() > max_bytes)
		return false;
	return std::all_of(text.begin(), text.end(), [&](char c) {
		return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		       also.find(c) != std::string_view::npos;
	});
}

bool is_ip_address(const std::string &text) noexcept
{
	if (text.find('\0') != std::string::npos)
		return false;
	unsigned char buffer[sizeof(in6_addr)];
	return ::inet_pton(AF_INET, text.c_str(), buffer) == 1 ||
	       ::inet_pton(AF_INET6, text.c_str(), buffer) == 1;
}

} // namespace stepccl::agent
