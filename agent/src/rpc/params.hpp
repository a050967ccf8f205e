// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace stepccl::agent {

/// Reads the members of a foreign object with their checks. Every function throws RpcError (A101,
/// -32602) that names the member by its path ("members[2].name") and says what it must be.
class Params {
public:
	/// Refuses members that are not `known`. `path` stands before the members' names in messages.
	Params(const nlohmann::json &object, std::initializer_list<std::string_view> known, std::string path = {});

	[[nodiscard]] bool has(std::string_view name) const;
	/// True when the member is missing or null.
	[[nodiscard]] bool is_null(std::string_view name) const;

	[[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t low, std::int64_t high) const;
	[[nodiscard]] bool boolean(std::string_view name) const;
	/// Text of min..max bytes without control characters.
	[[nodiscard]] std::string text(std::string_view name, std::size_t min_bytes, std::size_t max_bytes) const;
	/// Text of A-Z a-z 0-9 and `also`, 1..max bytes.
	[[nodiscard]] std::string token(std::string_view name, std::size_t max_bytes,
					std::string_view also = "_-") const;
	[[nodiscard]] std::string one_of(std::string_view name,
					 std::initializer_list<std::string_view> choices) const;
	[[nodiscard]] std::string ip_address(std::string_view name) const;
	[[nodiscard]] const nlohmann::json &array(std::string_view name, std::size_t min_items,
						  std::size_t max_items) const;
	[[nodiscard]] const nlohmann::json &object(std::string_view name) const;

	/// The path of a member, for messages about what stands inside it.
	[[nodiscard]] std::string path(std::string_view name) const { return path_ + std::string(name); }
	[[nodiscard]] std::string path(std::string_view name, std::size_t index) const;

private:
	[[nodiscard]] const nlohmann::json &member(std::string_view name) const;

	const nlohmann::json &object_;
	std::string path_;
};

} // namespace stepccl::agent
