// SPDX-License-Identifier: Apache-2.0
#include "runs/run.hpp"

#include <signal.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "rpc/json_text.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::int64_t kEventBurst = 1000;
constexpr std::int64_t kEventsPerRefill = 200;
constexpr auto kRefillInterval = std::chrono::milliseconds(100);
constexpr int kMaxGarbageLines = 20;

void wipe(std::string &secret) noexcept
{
	::explicit_bzero(secret.data(), secret.size());
	secret.clear();
}

RpcError not_started(const std::string &path, int rank, int error)
{
	return {kServerError, "A204",
		"The worker of rank " + std::to_string(rank) + " could not be started: " + path + ": " + errno_text(error) + ".",
		error == ENOENT ? "Bring the node up again: its runtime is not installed whole."
		: error == EACCES ? "Check that the daemon's user may execute the file."
				  : "Free memory or processes on the node and try again.",
		{{"rank", rank}, {"path", path}, {"errno", error}}};
}

constexpr int kStatusWrongResults = 3; // stepccl-perf's own, see native/README.md

RpcError ended_without_result(int rank, const ExitStatus &status, const std::string &told)
{
	const std::string worker = "The worker of rank " + std::to_string(rank);
	std::string message = worker + " ended with " +
			      (status.signal != 0 ? signal_name(status.signal) : "status " + std::to_string(status.code));
	message += told.empty() ? " and without a result." : " and without a result: " + told;
	std::string next = "Read the rank's stderr lines among the run's events.";
	if (status.signal == SIGKILL) {
		next = "Look for the kernel's out-of-memory killer in the node's log, or for who ended it.";
	} else if (status.signal == 0 && status.code == kStatusWrongResults) {
		message = worker + " found wrong results.";
		next = "See the column #wrong of the run's rows for the sizes, and repeat them over another transport.";
	}
	return {kServerError, "A205", message, next,
		{{"rank", rank},
		 {"status", status.signal != 0 ? json(nullptr) : json(status.code)},
		 {"signal", status.signal != 0 ? json(signal_name(status.signal)) : json(nullptr)}}};
}

} // namespace

std::string_view to_string(RunState state) noexcept
{
	static constexpr std::string_view kNames[] = {"running", "succeeded", "failed", "stopped"};
	return kNames[static_cast<std::size_t>(state)];
}

Run::Run(EventLoop &loop, ProcessReaper &reaper, const WorkerSettings &settings, RunRequest request, EventHandler on_event,
	 std::function<void()> on_end)
	: loop_(loop), reaper_(reaper), settings_(settings), request_(std::move(request)), on_event_(std::move(on_event)),
	  on_end_(std::move(on_end)), event_credit_(kEventBurst)
{
	secret_.swap(request_.unique_id);
}

Run::~Run()
{
	kill_all(SIGKILL);
	for (const auto &worker : workers_) {
		if (!worker->ended && worker->process.pid > 0)
			reaper_.forget(worker->process.pid);
		for (const UniqueFd *fd : {&worker->process.stdout_pipe, &worker->process.stderr_pipe}) {
			if (fd->valid())
				loop_.remove(fd->get());
		}
	}
	for (const auto timer : {listen_timer_, kill_timer_, grace_timer_, credit_timer_})
		loop_.cancel(timer);
	wipe(secret_);
}

void Run::start(ListenHandler on_listen)
{
	started_at_ms_ = realtime_ms();
	for (const int rank : request_.ranks) {
		ProcessSpec spec;
		spec.path = settings_.perf_path;
		spec.arguments = worker_arguments(request_, rank);
		spec.environment = worker_environment(request_, settings_.rings_directory, settings_.control_file, settings_.environment());
		spec.with_stdin = rank != 0;
		spec.with_stderr = true;
		auto worker = std::make_unique<Worker>();
		worker->rank = rank;
		worker->process = start_process(spec);
		if (worker->process.error != 0)
			throw not_started(spec.path, rank, worker->process.error); // The destructor ends the others.
		workers_.push_back(std::move(worker));
	}
	for (const auto &worker : workers_)
		record(worker->rank, {{"event", "spawned"}, {"pid", worker->process.pid}});
	if (request_.has_rank_zero()) {
		on_listen_ = std::move(on_listen);
		listen_timer_ = loop_.after(settings_.first_words, [this] {
			listen_timer_ = 0;
			failed_ = true;
			const RpcError error(kServerError, "A206",
					     "Rank 0 did not listen within " + std::to_string(settings_.first_words.count()) + " ms.",
					     "Read the rank's stderr lines among the run's events, and check the load of the node.",
					     {{"rank", 0}});
			json event = error.to_event();
			event["event"] = "error";
			record(0, event);
			not_listening(error);
			terminate();
		});
	}
	for (const auto &worker : workers_)
		watch(*worker);
}

void Run::watch(Worker &worker)
{
	Worker *const target = &worker;
	watch_pipe(worker, true);
	watch_pipe(worker, false);
	if (!secret_.empty())
		give_unique_id(worker);
	reaper_.watch(worker.process.pid, [this, target](ExitStatus status) { worker_ended(*target, status); });
}

void Run::watch_pipe(Worker &worker, bool is_stdout)
{
	const UniqueFd &pipe = is_stdout ? worker.process.stdout_pipe : worker.process.stderr_pipe;
	loop_.add(pipe.get(), EPOLLIN, [this, target = &worker, is_stdout](std::uint32_t) { read_pipe(*target, is_stdout, false); });
}

void Run::give_unique_id(Worker &worker)
{
	if (!worker.process.stdin_pipe.valid())
		return;
	// Far less than a pipe holds, so it is written at once. A worker that has died already is told by its end.
	std::string line = secret_ + "\n";
	(void)write_all(worker.process.stdin_pipe.get(), line);
	wipe(line);
	worker.process.stdin_pipe.reset();
}

std::vector<std::pair<int, pid_t>> Run::workers() const
{
	std::vector<std::pair<int, pid_t>> out;
	for (const auto &worker : workers_)
		out.emplace_back(worker->rank, worker->process.pid);
	return out;
}

void Run::read_pipe(Worker &worker, bool is_stdout, bool to_the_end)
{
	UniqueFd &pipe = is_stdout ? worker.process.stdout_pipe : worker.process.stderr_pipe;
	LineReader &reader = is_stdout ? worker.out : worker.err;
	const auto take = [&](LineReader::Kind kind, std::string_view line) {
		const bool cut = kind == LineReader::Kind::kCut;
		if (is_stdout)
			take_stdout(worker, line, cut);
		else
			take_stderr(worker, line, cut);
		return true;
	};
	std::array<char, 16 * 1024> buffer;
	while (pipe.valid()) {
		if (!to_the_end && event_credit_ <= 0) {
			// The worker floods: its pipe fills and holds it up until there is credit again.
			loop_.remove(pipe.get());
			(is_stdout ? worker.stdout_paused : worker.stderr_paused) = true;
			if (credit_timer_ == 0)
				credit_timer_ = loop_.after(kRefillInterval, [this] { resume_output(); });
			return;
		}
		const ssize_t got = ::read(pipe.get(), buffer.data(), buffer.size());
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			reader.finish(take);
			loop_.remove(pipe.get());
			pipe.reset();
			return;
		}
		reader.feed({buffer.data(), static_cast<std::size_t>(got)}, take);
		if (!to_the_end)
			return;
	}
}

void Run::resume_output()
{
	credit_timer_ = 0;
	event_credit_ = std::min(event_credit_ + kEventsPerRefill, kEventBurst);
	for (const auto &worker : workers_) {
		if (std::exchange(worker->stdout_paused, false) && worker->process.stdout_pipe.valid())
			watch_pipe(*worker, true);
		if (std::exchange(worker->stderr_paused, false) && worker->process.stderr_pipe.valid())
			watch_pipe(*worker, false);
	}
}

void Run::take_stdout(Worker &worker, std::string_view line, bool cut)
{
	WorkerLine read = read_stdout_line(line, cut, secret_);
	if (read.is_garbage && ++worker.garbage > kMaxGarbageLines)
		return; // The number is told at the end.
	worker.told_end = worker.told_end || read.is_end;
	if (read.is_error) {
		worker.told_error = true;
		const auto message = read.event.find("message");
		if (message != read.event.end() && message->is_string() && worker.first_error.empty())
			worker.first_error = printable(message->get_ref<const std::string &>(), 1024);
	}
	record(worker.rank, read.event);
	if (read.unique_id && worker.rank == 0 && secret_.empty())
		listening(*read.unique_id);
}

void Run::take_stderr(Worker &worker, std::string_view line, bool cut)
{
	const json event = read_stderr_line(line, cut, secret_);
	if (worker.first_stderr.empty())
		worker.first_stderr = printable(event["line"].get_ref<const std::string &>(), 256);
	record(worker.rank, event);
}

void Run::listening(const std::string &unique_id)
{
	secret_ = unique_id;
	loop_.cancel(listen_timer_);
	listen_timer_ = 0;
	for (const auto &worker : workers_)
		give_unique_id(*worker);
	if (const ListenHandler handler = std::exchange(on_listen_, nullptr))
		handler(unique_id, std::nullopt);
}

void Run::not_listening(const RpcError &error)
{
	loop_.cancel(listen_timer_);
	listen_timer_ = 0;
	if (const ListenHandler handler = std::exchange(on_listen_, nullptr))
		handler({}, error);
}

void Run::worker_ended(Worker &worker, ExitStatus status)
{
	read_pipe(worker, true, true);
	read_pipe(worker, false, true);
	// Whoever holds the pipes' other ends is not of the worker's group: nothing more is taken from there.
	for (UniqueFd *fd : {&worker.process.stdout_pipe, &worker.process.stderr_pipe}) {
		if (fd->valid())
			loop_.remove(fd->get());
		fd->reset();
	}
	worker.process.stdin_pipe.reset();
	worker.ended = true;
	const bool ok = status.signal == 0 && status.code == 0 && worker.told_end;
	json exited = {{"event", "exited"}};
	if (status.signal != 0)
		exited["signal"] = signal_name(status.signal);
	else
		exited["status"] = status.code;
	if (worker.garbage > 0)
		exited["invalid_lines"] = worker.garbage;
	const RpcError error = ended_without_result(worker.rank, status, worker.told_error ? worker.first_error : worker.first_stderr);
	const bool told_to_end = stop_asked_ || terminating_;
	if (!ok && !worker.told_error && !told_to_end) {
		json event = error.to_event();
		event["event"] = "error";
		record(worker.rank, event);
	}
	record(worker.rank, exited);
	log_info({{"event", "worker_ended"}, {"run", request_.run_id}, {"rank", worker.rank}, {"pid", worker.process.pid},
		  {"status", status.code}, {"signal", status.signal == 0 ? "none" : signal_name(status.signal)}});
	if ((!ok || worker.told_error) && !told_to_end) {
		failed_ = true;
		if (alive() > 0 && grace_timer_ == 0 && kill_timer_ == 0)
			grace_timer_ = loop_.after(settings_.failure_grace, [this] {
				grace_timer_ = 0;
				terminate();
			});
	}
	if (worker.rank == 0)
		not_listening(error);
	end_if_done();
}

int Run::alive() const
{
	return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [](const auto &worker) { return !worker->ended; }));
}

void Run::kill_all(int signal) const
{
	for (const auto &worker : workers_) {
		if (!worker->ended && worker->process.pid > 0)
			(void)::kill(-worker->process.pid, signal);
	}
}

void Run::terminate()
{
	if (alive() == 0 || kill_timer_ != 0)
		return;
	terminating_ = true;
	kill_all(SIGTERM);
	kill_timer_ = loop_.after(settings_.kill_after, [this] {
		kill_timer_ = 0;
		kill_all(SIGKILL);
	});
}

int Run::stop()
{
	if (state_ != RunState::kRunning)
		return 0;
	const int told = alive();
	stop_asked_ = true;
	if (on_listen_)
		not_listening(RpcError(kServerError, "A205", "The run was stopped before rank 0 listened.", "Start it again.", {{"rank", 0}}));
	terminate();
	return told;
}

void Run::record(std::optional<int> rank, const json &event)
{
	event_credit_--;
	std::string text = R"({"run_id":")" + request_.run_id + R"(","seq":)" + std::to_string(log_.next_seq()) + R"(,"at_ms":)" +
			   std::to_string(realtime_ms()) + R"(,"rank":)" + (rank ? std::to_string(*rank) : "null") + R"(,"event":)" +
			   to_line(event) + "}";
	const std::uint64_t seq = log_.add(text);
	on_event_(seq, text);
}

void Run::end_if_done()
{
	if (alive() > 0 || state_ != RunState::kRunning)
		return;
	for (EventLoop::TimerId *timer : {&listen_timer_, &kill_timer_, &grace_timer_, &credit_timer_}) {
		loop_.cancel(*timer);
		*timer = 0;
	}
	state_ = failed_ ? RunState::kFailed : stop_asked_ ? RunState::kStopped : RunState::kSucceeded;
	ended_at_ms_ = realtime_ms();
	wipe(secret_);
	record(std::nullopt, {{"event", "run_end"}, {"state", to_string(state_)}});
	log_info({{"event", "run_ended"}, {"run", request_.run_id}, {"state", to_string(state_)}});
	on_end_();
}

} // namespace stepccl::agent
