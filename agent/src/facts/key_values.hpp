// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/text.hpp"

namespace stepccl::agent {

/// The value of the first line `name:value` (or another separator) of a proc file; trimmed.
inline std::optional<std::string_view> find_value(std::string_view file, std::string_view name, char separator = ':')
{
	while (!file.empty()) {
		const auto end = file.find('\n');
		const std::string_view line = file.substr(0, end);
		file.remove_prefix(end == std::string_view::npos ? file.size() : end + 1);
		const auto at = line.find(separator);
		if (at != std::string_view::npos && trim(line.substr(0, at)) == name)
			return trim(line.substr(at + 1));
	}
	return std::nullopt;
}

/// The leading decimal number of such a value ("16384 kB" gives 16384).
inline std::optional<std::uint64_t> find_number(std::string_view file, std::string_view name)
{
	const auto value = find_value(file, name);
	if (!value)
		return std::nullopt;
	return parse_u64(value->substr(0, value->find_first_not_of("0123456789")));
}

} // namespace stepccl::agent
