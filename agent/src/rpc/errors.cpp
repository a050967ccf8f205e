// SPDX-License-Identifier: Apache-2.0
#include "rpc/errors.hpp"

#include "base/log.hpp"
#include "base/text.hpp"

namespace stepccl::agent {

RpcError::RpcError(int rpc_code, std::string code, std::string message, std::string next, nlohmann::json detail)
	: rpc_code_(rpc_code), code_(std::move(code)), message_(std::move(message)), next_(std::move(next)),
	  detail_(std::move(detail))
{
}

nlohmann::json RpcError::to_json() const
{
	return {{"code", rpc_code_},
		{"message", message_},
		{"data", {{"code", code_}, {"next", next_}, {"detail", detail_}}}};
}

nlohmann::json RpcError::to_event() const
{
	return {{"code", code_}, {"message", message_}, {"next", next_}, {"detail", detail_}};
}

RpcError not_json(std::string_view why)
{
	return {kParseError, "A101", "The line is not JSON: " + std::string(why) + ".",
		"Send one JSON-RPC 2.0 request as one line."};
}

RpcError message_too_long(std::size_t limit_bytes)
{
	return {kParseError, "A103", "The message is longer than " + std::to_string(limit_bytes) + " bytes.",
		"Send a shorter message; this connection is closed.", {{"limit_bytes", limit_bytes}}};
}

RpcError not_json_rpc(std::string_view why)
{
	return {kInvalidRequest, "A101", "The message is not a JSON-RPC 2.0 request: " + std::string(why) + ".",
		"Send an object with jsonrpc \"2.0\", an id, a method and its parameters by name."};
}

RpcError unknown_method(std::string_view method)
{
	return {kMethodNotFound, "A102", "There is no method \"" + printable(method, 64) + "\".",
		"Compare the versions of console and daemon with hello."};
}

RpcError bad_param(std::string_view member, std::string_view why)
{
	const std::string name = printable(member, 64);
	return {kInvalidParams, "A101", "The parameter \"" + name + "\" " + std::string(why) + ".",
		"Correct the parameter and send the request again.", {{"member", name}}};
}

RpcError not_kept(std::string_view path, int error)
{
	return {kServerError, "A402",
		"The change could not be kept in " + std::string(path) + " (" + errno_text(error) +
			"); nothing was changed.",
		error == ENOSPC ? "Free space on the node's file system and try again."
				: "Check the file system and its permissions on the node and try again.",
		{{"path", path}, {"errno", error}}};
}

} // namespace stepccl::agent
