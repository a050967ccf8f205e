// SPDX-License-Identifier: Apache-2.0
#include "runs/worker_output.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "rpc/json_text.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxShownGarbage = 512;
constexpr std::size_t kMaxUniqueIdBytes = 8192;

/// Names that only the daemon itself may use: a worker must not be able to say that a run has ended.
constexpr std::array<std::string_view, 5> kDaemonEvents{"spawned", "exited", "stderr", "run_end", "invalid_output"};

bool is_unique_id(const std::string &text)
{
	return text.size() >= 2 && text.size() <= kMaxUniqueIdBytes && text.size() % 2 == 0 &&
	       text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

} // namespace

std::string redact(std::string_view text, const std::string &secret)
{
	std::string out(text);
	if (secret.empty())
		return out;
	for (std::size_t at = out.find(secret); at != std::string::npos; at = out.find(secret, at))
		out.replace(at, secret.size(), "[redacted]");
	return out;
}

WorkerLine read_stdout_line(std::string_view line, bool cut, const std::string &secret)
{
	WorkerLine out;
	auto value = cut ? std::nullopt : parse_json(line);
	const auto garbage = [&] {
		WorkerLine bad;
		bad.is_garbage = true;
		bad.event = {{"event", "invalid_output"}, {"line", printable(redact(line, secret), kMaxShownGarbage)}};
		return bad;
	};
	if (!value || !value->is_object())
		return garbage();
	const auto name = value->find("event");
	if (name == value->end() || !name->is_string())
		return garbage();
	const auto &event_name = name->get_ref<const std::string &>();
	if (std::find(kDaemonEvents.begin(), kDaemonEvents.end(), event_name) != kDaemonEvents.end())
		return garbage();
	out.is_error = event_name == "error";
	out.is_end = event_name == "end";
	if (event_name == "unique_id") {
		const auto id = value->find("id");
		if (id == value->end() || !id->is_string() || !is_unique_id(id->get_ref<const std::string &>()))
			return garbage();
		out.unique_id = id->get<std::string>();
		value->erase(id);
	}
	const std::string &hidden = out.unique_id ? *out.unique_id : secret;
	// Looked for in the value as it will be written: in the line it may be spelt with escapes.
	const std::string text = to_line(*value);
	if (!hidden.empty() && text.find(hidden) != std::string::npos) {
		auto clean = parse_json(redact(text, hidden));
		if (!clean)
			return garbage();
		value = std::move(clean);
	}
	out.event = std::move(*value);
	return out;
}

json read_stderr_line(std::string_view line, bool cut, const std::string &secret)
{
	json event = {{"event", "stderr"}, {"line", printable(redact(line, secret))}};
	if (cut)
		event["cut"] = true;
	return event;
}

} // namespace stepccl::agent
