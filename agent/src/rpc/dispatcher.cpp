// SPDX-License-Identifier: Apache-2.0
#include "rpc/dispatcher.hpp"

#include "base/log.hpp"
#include "rpc/request.hpp"

namespace stepccl::agent {

void Dispatcher::handle_line(const std::shared_ptr<Client> &client, std::string_view line) const
{
	auto parsed = parse_request(line);
	if (const auto *bad = std::get_if<BadRequest>(&parsed)) {
		client->send_line(error_line(bad->id, bad->error));
		client->note_line(bad->error.rpc_code() == kInvalidParams);
		return;
	}
	client->note_line(true);
	auto &request = std::get<Request>(parsed);
	Call call{client, std::move(request.params), Reply(client, std::move(request.id), request.notification)};
	const auto method = methods_.find(request.method);
	if (method == methods_.end()) {
		call.reply.error(unknown_method(request.method));
		return;
	}
	try {
		method->second(call);
	} catch (const RpcError &error) {
		call.reply.error(error);
	} catch (const std::exception &error) {
		log_error({{"event", "internal_fault"}, {"method", method->first}, {"what", error.what()}});
		call.reply.error(RpcError(kServerError, "A901",
					  "The daemon met an internal fault in " + method->first + ".",
					  "Send the node's log (log.tail) with a report of this fault."));
	}
}

} // namespace stepccl::agent
