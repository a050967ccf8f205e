// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "rpc/errors.hpp"

namespace stepccl::agent {

/// A JSON-RPC 2.0 request that passed its checks.
struct Request {
	nlohmann::json id; ///< string, integer or null
	bool notification = false; ///< no "id": nothing is answered
	std::string method;
	nlohmann::json params = nlohmann::json::object(); ///< always an object
};

struct BadRequest {
	nlohmann::json id; ///< null where none could be read
	RpcError error;
};

/// Reads one line as a request.
std::variant<Request, BadRequest> parse_request(std::string_view line);

/// Answers and notifications as lines, with their '\n'. `result` and `params` are JSON texts.
std::string result_line(const nlohmann::json &id, std::string_view result);
std::string error_line(const nlohmann::json &id, const RpcError &error);
std::string notification_line(std::string_view method, std::string_view params);

} // namespace stepccl::agent
