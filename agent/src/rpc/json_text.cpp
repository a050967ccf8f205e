// SPDX-License-Identifier: Apache-2.0
#include "rpc/json_text.hpp"

namespace stepccl::agent {

bool depth_within(std::string_view text, std::size_t max_depth) noexcept
{
	std::size_t depth = 0;
	bool in_string = false;
	for (std::size_t i = 0; i < text.size(); i++) {
		const char c = text[i];
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > max_depth)
				return false;
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return true;
}

std::optional<nlohmann::json> parse_json(std::string_view text, std::string *why)
{
	if (!depth_within(text)) {
		if (why)
			*why = "it is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels";
		return std::nullopt;
	}
	nlohmann::json value = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
	if (value.is_discarded()) {
		if (why)
			*why = text.empty() ? "it is empty" : "its syntax is wrong or it is not UTF-8";
		return std::nullopt;
	}
	return value;
}

std::string to_line(const nlohmann::json &value)
{
	return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace stepccl::agent
