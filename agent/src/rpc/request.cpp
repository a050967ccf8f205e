// SPDX-License-Identifier: Apache-2.0
#include "rpc/request.hpp"

#include "rpc/json_text.hpp"

namespace stepccl::agent {

namespace {

constexpr std::size_t kMaxIdBytes = 256;

bool is_valid_id(const nlohmann::json &id)
{
	if (id.is_string())
		return id.get_ref<const std::string &>().size() <= kMaxIdBytes;
	return id.is_number_integer() || id.is_null();
}

} // namespace

std::variant<Request, BadRequest> parse_request(std::string_view line)
{
	std::string why;
	std::optional<nlohmann::json> message = parse_json(line, &why);
	if (!message)
		return BadRequest{nullptr, not_json(why)};
	if (message->is_array())
		return BadRequest{nullptr, not_json_rpc("batches are not taken")};
	if (!message->is_object())
		return BadRequest{nullptr, not_json_rpc("it is not an object")};

	Request request;
	const auto id = message->find("id");
	if (id == message->end())
		request.notification = true;
	else if (!is_valid_id(*id))
		return BadRequest{nullptr, not_json_rpc("its id is no integer, no null and no short string")};
	else
		request.id = std::move(*id);

	const auto fail = [&](std::string_view reason) {
		return BadRequest{request.id, not_json_rpc(reason)};
	};
	const auto version = message->find("jsonrpc");
	if (version == message->end() || *version != "2.0")
		return fail("its jsonrpc is not \"2.0\"");
	const auto method = message->find("method");
	if (method == message->end() || !method->is_string())
		return fail("its method is not a string");
	request.method = method->get<std::string>();
	for (const auto &member : message->items()) {
		const std::string &key = member.key();
		if (key != "jsonrpc" && key != "id" && key != "method" && key != "params")
			return fail("it has a member besides jsonrpc, id, method and params");
	}
	const auto params = message->find("params");
	if (params != message->end()) {
		if (!params->is_object())
			return BadRequest{request.id, bad_param("params", "must be an object of named parameters")};
		request.params = std::move(*params);
	}
	return request;
}

std::string result_line(const nlohmann::json &id, std::string_view result)
{
	std::string line = R"({"jsonrpc":"2.0","id":)" + to_line(id) + R"(,"result":)";
	line += result;
	line += "}\n";
	return line;
}

std::string error_line(const nlohmann::json &id, const RpcError &error)
{
	return R"({"jsonrpc":"2.0","id":)" + to_line(id) + R"(,"error":)" + to_line(error.to_json()) + "}\n";
}

std::string notification_line(std::string_view method, std::string_view params)
{
	std::string line = R"({"jsonrpc":"2.0","method":")";
	line += method;
	line += R"(","params":)";
	line += params;
	line += "}\n";
	return line;
}

} // namespace stepccl::agent
