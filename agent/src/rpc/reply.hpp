// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "rpc/errors.hpp"

namespace stepccl::agent {

class Client;

/// The answer to one request. It may be copied and given later (within the loop's thread); the first
/// result or error counts, and a request that nobody answered is answered with A901 when the last copy
/// goes, so that no client waits for ever.
class Reply {
public:
	Reply(std::shared_ptr<Client> client, nlohmann::json id, bool notification);

	void result(const nlohmann::json &value) const;
	/// The result as a JSON text that is already written.
	void result_text(std::string_view text) const;
	void error(const RpcError &error) const;

private:
	struct State;
	std::shared_ptr<State> state_;
};

} // namespace stepccl::agent
