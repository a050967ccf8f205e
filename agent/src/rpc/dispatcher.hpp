// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rpc/client.hpp"
#include "rpc/reply.hpp"

namespace stepccl::agent {

/// One request as a method's handler sees it.
struct Call {
	std::shared_ptr<Client> client;
	nlohmann::json params; ///< an object
	Reply reply;
};

/// The table of methods. Turns lines into calls, and what a handler throws into errors.
class Dispatcher {
public:
	using Handler = std::function<void(Call &call)>;

	void add(std::string method, Handler handler) { methods_[std::move(method)] = std::move(handler); }

	/// Takes one line of a client; whatever it holds, it is answered or (a notification) done.
	void handle_line(const std::shared_ptr<Client> &client, std::string_view line) const;

private:
	std::map<std::string, Handler, std::less<>> methods_;
};

} // namespace stepccl::agent
