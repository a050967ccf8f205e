// SPDX-License-Identifier: Apache-2.0
#include "rpc/params.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "rpc/errors.hpp"

namespace stepccl::agent {

using nlohmann::json;

Params::Params(const json &object, std::initializer_list<std::string_view> known, std::string path)
	: object_(object), path_(std::move(path))
{
	if (!object.is_object())
		throw bad_param(path_, "must be an object");
	if (!path_.empty())
		path_ += '.';
	for (const auto &item : object.items()) {
		if (std::find(known.begin(), known.end(), item.key()) == known.end())
			throw bad_param(path_ + item.key(), "is not known here");
	}
}

std::string Params::path(std::string_view name, std::size_t index) const
{
	return path(name) + '[' + std::to_string(index) + ']';
}

bool Params::has(std::string_view name) const { return object_.contains(name); }

bool Params::is_null(std::string_view name) const
{
	const auto found = object_.find(name);
	return found == object_.end() || found->is_null();
}

const json &Params::member(std::string_view name) const
{
	const auto found = object_.find(name);
	if (found == object_.end())
		throw bad_param(path(name), "is missing");
	return *found;
}

std::int64_t Params::integer(std::string_view name, std::int64_t low, std::int64_t high) const
{
	const json &value = member(name);
	const auto refuse = [&] {
		return bad_param(path(name),
				 "must be an integer from " + std::to_string(low) + " to " + std::to_string(high));
	};
	if (!value.is_number_integer())
		throw refuse();
	if (value.is_number_unsigned() &&
	    value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
		throw refuse();
	const auto number = value.get<std::int64_t>();
	if (number < low || number > high)
		throw refuse();
	return number;
}

bool Params::boolean(std::string_view name) const
{
	const json &value = member(name);
	if (!value.is_boolean())
		throw bad_param(path(name), "must be true or false");
	return value.get<bool>();
}

std::string Params::text(std::string_view name, std::size_t min_bytes, std::size_t max_bytes) const
{
	const json &value = member(name);
	if (!value.is_string())
		throw bad_param(path(name), "must be a string");
	const auto &string = value.get_ref<const std::string &>();
	if (string.size() < min_bytes || string.size() > max_bytes)
		throw bad_param(path(name), "must be a string of " + std::to_string(min_bytes) + " to " +
						    std::to_string(max_bytes) + " bytes");
	if (printable(string, max_bytes) != string)
		throw bad_param(path(name), "must not hold control characters");
	return string;
}

std::string Params::token(std::string_view name, std::size_t max_bytes, std::string_view also) const
{
	std::string value = text(name, 1, max_bytes);
	if (!is_token(value, max_bytes, also))
		throw bad_param(path(name), "may hold only letters, digits and \"" + std::string(also) + "\"");
	return value;
}

std::string Params::one_of(std::string_view name, std::initializer_list<std::string_view> choices) const
{
	const json &value = member(name);
	if (value.is_string() &&
	    std::find(choices.begin(), choices.end(), value.get_ref<const std::string &>()) != choices.end())
		return value.get<std::string>();
	std::string list;
	for (const std::string_view choice : choices) {
		list += list.empty() ? "" : ", ";
		list += choice;
	}
	throw bad_param(path(name), "must be one of " + list);
}

std::string Params::ip_address(std::string_view name) const
{
	std::string value = text(name, 2, 45);
	if (!is_ip_address(value))
		throw bad_param(path(name), "must be an IPv4 or IPv6 address");
	return value;
}

const json &Params::array(std::string_view name, std::size_t min_items, std::size_t max_items) const
{
	const json &value = member(name);
	if (!value.is_array() || value.size() < min_items || value.size() > max_items)
		throw bad_param(path(name), "must be an array of " + std::to_string(min_items) + " to " +
						    std::to_string(max_items) + " items");
	return value;
}

const json &Params::object(std::string_view name) const
{
	const json &value = member(name);
	if (!value.is_object())
		throw bad_param(path(name), "must be an object");
	return value;
}

} // namespace stepccl::agent
