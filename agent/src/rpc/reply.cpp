// SPDX-License-Identifier: Apache-2.0
#include "rpc/reply.hpp"

#include "base/log.hpp"
#include "rpc/client.hpp"
#include "rpc/json_text.hpp"
#include "rpc/request.hpp"

namespace stepccl::agent {

struct Reply::State {
	std::weak_ptr<Client> client;
	nlohmann::json id;
	bool notification;
	bool answered = false;

	State(const std::shared_ptr<Client> &c, nlohmann::json i, bool n) : client(c), id(std::move(i)), notification(n)
	{
		c->request_began();
	}
	State(const State &) = delete;
	State &operator=(const State &) = delete;

	~State()
	{
		if (answered)
			return;
		log_error({{"event", "unanswered_request"}});
		send(error_line(id, RpcError(kServerError, "A901", "The daemon ended this request without an answer.",
					     "Send the node's log (log.tail) with a report of this fault.")));
	}

	void send(std::string line)
	{
		answered = true;
		const auto target = client.lock();
		if (!target)
			return;
		if (!notification)
			target->send_line(std::move(line));
		target->request_ended();
	}
};

Reply::Reply(std::shared_ptr<Client> client, nlohmann::json id, bool notification)
	: state_(std::make_shared<State>(client, std::move(id), notification))
{
}

void Reply::result(const nlohmann::json &value) const { result_text(to_line(value)); }

void Reply::result_text(std::string_view text) const
{
	if (state_->answered)
		return;
	std::string line = result_line(state_->id, text);
	if (line.size() > Client::kMaxLineBytes + 1) {
		error(RpcError(kServerError, "A103", "The answer is longer than one message may be.",
			       "Ask for a part of it.", {{"answer_bytes", line.size()}}));
		return;
	}
	state_->send(std::move(line));
}

void Reply::error(const RpcError &error) const
{
	if (!state_->answered)
		state_->send(error_line(state_->id, error));
}

} // namespace stepccl::agent
