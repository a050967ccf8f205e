// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stepccl::agent {

/// A refusal as PROTOCOL.md describes it: JSON-RPC's number, the stable code, one sentence, the next step.
class RpcError : public std::exception {
public:
	RpcError(int rpc_code, std::string code, std::string message, std::string next,
		 nlohmann::json detail = nlohmann::json::object());

	[[nodiscard]] int rpc_code() const noexcept { return rpc_code_; }
	[[nodiscard]] const std::string &code() const noexcept { return code_; }
	[[nodiscard]] const std::string &message() const noexcept { return message_; }
	[[nodiscard]] const char *what() const noexcept override { return message_.c_str(); }

	/// The member "error" of an answer.
	[[nodiscard]] nlohmann::json to_json() const;
	/// {code, message, next, detail}: how an error stands inside a run's event.
	[[nodiscard]] nlohmann::json to_event() const;

private:
	int rpc_code_;
	std::string code_;
	std::string message_;
	std::string next_;
	nlohmann::json detail_;
};

inline constexpr int kParseError = -32700;
inline constexpr int kInvalidRequest = -32600;
inline constexpr int kMethodNotFound = -32601;
inline constexpr int kInvalidParams = -32602;
inline constexpr int kServerError = -32000;

RpcError not_json(std::string_view why);
RpcError message_too_long(std::size_t limit_bytes);
RpcError not_json_rpc(std::string_view why);
RpcError unknown_method(std::string_view method);
/// `member` is the parameter, `why` what it has to be ("must be an integer from 1 to 64").
RpcError bad_param(std::string_view member, std::string_view why);
/// A change could not be written to `path`; nothing was changed.
RpcError not_kept(std::string_view path, int error);

} // namespace stepccl::agent
