// SPDX-License-Identifier: Apache-2.0
#include "runs/run_manager.hpp"

#include <algorithm>
#include <limits>

#include "base/log.hpp"
#include "rpc/json_text.hpp"
#include "rpc/params.hpp"
#include "rpc/request.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxSeq = 9'007'199'254'740'991;
constexpr std::size_t kMaxEventsInOneAnswer = 2048;
constexpr std::size_t kMaxAnswerBytes = 768 * 1024;

RpcError too_many(const std::string &what)
{
	return {kServerError, "A203", what, "Wait for a run to end, or stop one, and start this one again."};
}

} // namespace

RunManager::RunManager(EventLoop &loop, ProcessReaper &reaper, WorkerSettings settings)
	: loop_(loop), reaper_(reaper), settings_(std::move(settings))
{
}

std::size_t RunManager::running() const
{
	return static_cast<std::size_t>(std::count_if(runs_.begin(), runs_.end(), [](const auto &item) {
		return item.second.run->state() == RunState::kRunning;
	}));
}

std::size_t RunManager::running_ranks() const
{
	std::size_t ranks = 0;
	for (const auto &[id, entry] : runs_) {
		if (entry.run->state() == RunState::kRunning)
			ranks += entry.run->request().ranks.size();
	}
	return ranks;
}

RunManager::Entry &RunManager::find(const std::string &run_id)
{
	const auto found = runs_.find(run_id);
	if (found == runs_.end())
		throw RpcError(kServerError, "A201", "There is no run \"" + run_id + "\" on this node.",
			       "List the runs with run.list; the node keeps the last " + std::to_string(kMaxKept) + ".", {{"run_id", run_id}});
	return found->second;
}

void RunManager::start(Call &call)
{
	RunRequest request = parse_run_start(call.params);
	const std::string run_id = request.run_id;
	if (runs_.contains(run_id))
		throw RpcError(kServerError, "A202", "A run \"" + run_id + "\" exists already on this node.",
			       "Start the run under another id.", {{"run_id", run_id}});
	if (closing_)
		throw too_many("The daemon is ending and takes no new run.");
	if (running() >= kMaxRunning)
		throw too_many("This node runs " + std::to_string(kMaxRunning) + " runs already.");
	if (running_ranks() + request.ranks.size() > kMaxRanks)
		throw too_many("This node would run more than " + std::to_string(kMaxRanks) + " ranks.");

	auto run = std::make_unique<Run>(
		loop_, reaper_, settings_, std::move(request), [this, run_id](std::uint64_t, const std::string &text) { publish(run_id, text); },
		[this, run_id] { loop_.defer([this, run_id] { ended(run_id); }); });
	Run *const started = run.get();
	const auto answer = [run_id, started](const std::string &unique_id) {
		json workers = json::array();
		for (const auto &[rank, pid] : started->workers())
			workers.push_back({{"rank", rank}, {"pid", pid}});
		return json{{"run_id", run_id}, {"unique_id", unique_id.empty() ? json(nullptr) : json(unique_id)}, {"workers", std::move(workers)}};
	};
	started->start([reply = call.reply, answer](const std::string &unique_id, const std::optional<RpcError> &error) {
		if (error)
			reply.error(*error);
		else
			reply.result(answer(unique_id));
	});
	log_info({{"event", "run_started"}, {"run", run_id}, {"collective", started->request().collective},
		  {"transport", started->request().transport}, {"world_size", started->request().world_size},
		  {"ranks", started->request().ranks.size()}, {"client", call.client->id()}});
	const bool answers_later = started->request().has_rank_zero();
	runs_[run_id].run = std::move(run);
	order_.push_back(run_id);
	make_room();
	if (!answers_later)
		call.reply.result(answer({}));
}

void RunManager::stop(Call &call)
{
	const Params params(call.params, {"run_id"});
	Entry &entry = find(params.token("run_id", 64));
	const int stopped = entry.run->stop();
	log_info({{"event", "run_stop"}, {"run", entry.run->request().run_id}, {"workers", stopped}, {"client", call.client->id()}});
	call.reply.result({{"stopped", stopped}});
}

void RunManager::list(Call &call)
{
	const Params params(call.params, {});
	json runs = json::array();
	for (const std::string &id : order_) {
		const Run &run = *runs_.at(id).run;
		runs.push_back({{"run_id", id},
				{"state", to_string(run.state())},
				{"ranks", run.request().ranks},
				{"started_at_ms", run.started_at_ms()},
				{"ended_at_ms", run.ended_at_ms() == 0 ? json(nullptr) : json(run.ended_at_ms())},
				{"next_seq", run.events().next_seq()}});
	}
	call.reply.result({{"runs", std::move(runs)}});
}

void RunManager::events(Call &call)
{
	const Params params(call.params, {"run_id", "from_seq"});
	const EventLog &log = find(params.token("run_id", 64)).run->events();
	auto seq = static_cast<std::uint64_t>(params.integer("from_seq", 0, kMaxSeq));
	seq = std::max(seq, log.first_seq());
	std::string text = R"({"events":[)";
	std::size_t count = 0;
	for (; seq < log.next_seq() && count < kMaxEventsInOneAnswer && text.size() < kMaxAnswerBytes; seq++, count++) {
		if (count > 0)
			text += ',';
		text += log.text(seq);
	}
	text += R"(],"next_seq":)" + std::to_string(std::min(seq, log.next_seq())) + R"(,"first_seq":)" + std::to_string(log.first_seq()) + "}";
	call.reply.result_text(text);
}

void RunManager::subscribe(Call &call)
{
	const Params params(call.params, {"run_id", "from_seq"});
	const std::string run_id = params.token("run_id", 64);
	Entry &entry = find(run_id);
	const auto from = static_cast<std::uint64_t>(params.integer("from_seq", 0, kMaxSeq));
	const EventLog &log = entry.run->events();
	const std::uint64_t next = log.next_seq();
	call.reply.result({{"next_seq", next}});
	for (std::uint64_t seq = std::max(from, log.first_seq()); seq < next; seq++)
		call.client->send_line(notification_line("run.event", log.text(seq)));
	if (entry.run->state() != RunState::kRunning || !call.client->is_open())
		return;
	const std::uint64_t client_id = call.client->id();
	if (entry.subscribers.contains(client_id))
		return;
	const std::uint64_t key = call.client->on_end([this, run_id, client_id] {
		const auto found = runs_.find(run_id);
		if (found != runs_.end())
			found->second.subscribers.erase(client_id);
	});
	entry.subscribers.emplace(client_id, Subscriber{call.client, key});
}

void RunManager::publish(const std::string &run_id, const std::string &text)
{
	const auto found = runs_.find(run_id);
	if (found == runs_.end())
		return; // The first events come before the run is in the table, and so before anybody can subscribe.
	const std::string line = notification_line("run.event", text);
	const auto subscribers = found->second.subscribers;
	for (const auto &[id, subscriber] : subscribers) {
		if (const auto target = subscriber.client.lock())
			target->send_line(line);
	}
}

void RunManager::ended(const std::string &run_id)
{
	const auto found = runs_.find(run_id);
	if (found != runs_.end()) {
		const auto subscribers = std::exchange(found->second.subscribers, {});
		for (const auto &[id, subscriber] : subscribers) {
			if (const auto client = subscriber.client.lock())
				client->forget_end(subscriber.end_key);
		}
	}
	make_room();
	if (run_end_task_)
		run_end_task_();
	if (all_stopped_ && running() == 0)
		std::exchange(all_stopped_, nullptr)();
}

void RunManager::make_room()
{
	std::size_t bytes = 0;
	for (const auto &[id, entry] : runs_)
		bytes += entry.run->events().bytes();
	for (auto it = order_.begin(); it != order_.end() && (order_.size() > kMaxKept || bytes > kMaxKeptBytes);) {
		const auto found = runs_.find(*it);
		if (found->second.run->state() == RunState::kRunning) {
			++it;
			continue;
		}
		bytes -= found->second.run->events().bytes();
		runs_.erase(found);
		it = order_.erase(it);
	}
}

void RunManager::stop_all(std::function<void()> done)
{
	closing_ = true;
	for (const auto &[id, entry] : runs_)
		(void)entry.run->stop();
	if (running() == 0)
		done();
	else
		all_stopped_ = std::move(done);
}

} // namespace stepccl::agent
