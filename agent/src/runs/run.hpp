// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/loop.hpp"
#include "base/process.hpp"
#include "rpc/errors.hpp"
#include "rpc/line_reader.hpp"
#include "runs/event_log.hpp"
#include "runs/run_request.hpp"
#include "runs/worker_output.hpp"

namespace stepccl::agent {

enum class RunState { kRunning, kSucceeded, kFailed, kStopped };
std::string_view to_string(RunState state) noexcept;

/// What the workers of all runs need.
struct WorkerSettings {
	std::string perf_path;
	std::string rings_directory;
	std::string control_file;
	/// Environment that the node's settings ask for; read at the start of each run.
	std::function<std::map<std::string, std::string>()> environment = [] { return std::map<std::string, std::string>{}; };
	std::chrono::milliseconds first_words{20'000}; ///< rank 0 must listen within it
	std::chrono::milliseconds kill_after{3'000};   ///< from SIGTERM to SIGKILL
	std::chrono::milliseconds failure_grace{2'000}; ///< for the others to tell what they saw when a rank has failed
};

/// One collective: its workers on this node, from their start to the last one's end.
class Run {
public:
	/// Called with each event's number and text.
	using EventHandler = std::function<void(std::uint64_t seq, const std::string &text)>;
	/// Rank 0 listens (unique id), or the run failed before it did.
	using ListenHandler = std::function<void(const std::string &unique_id, const std::optional<RpcError> &error)>;

	Run(EventLoop &loop, ProcessReaper &reaper, const WorkerSettings &settings, RunRequest request, EventHandler on_event,
	    std::function<void()> on_end);
	Run(const Run &) = delete;
	Run &operator=(const Run &) = delete;
	~Run();

	/// Starts all workers or none. Throws RpcError (A204). On the node of rank 0 `on_listen` is called once,
	/// later; elsewhere never.
	void start(ListenHandler on_listen);

	/// Ends the run: SIGTERM now, SIGKILL later. Returns how many workers were told.
	int stop();

	[[nodiscard]] const RunRequest &request() const noexcept { return request_; }
	[[nodiscard]] RunState state() const noexcept { return state_; }
	[[nodiscard]] std::int64_t started_at_ms() const noexcept { return started_at_ms_; }
	[[nodiscard]] std::int64_t ended_at_ms() const noexcept { return ended_at_ms_; }
	[[nodiscard]] const EventLog &events() const noexcept { return log_; }
	[[nodiscard]] std::vector<std::pair<int, pid_t>> workers() const;

private:
	struct Worker {
		int rank = 0;
		Process process;
		LineReader out{16 * 1024};
		LineReader err{4 * 1024};
		bool ended = false;
		bool told_error = false;
		bool told_end = false;
		bool stdout_paused = false; ///< not watched while the run has no credit
		bool stderr_paused = false;
		std::string first_error; ///< its message
		std::string first_stderr;
		int garbage = 0;
	};

	void watch(Worker &worker);
	void watch_pipe(Worker &worker, bool is_stdout);
	void give_unique_id(Worker &worker);
	void read_pipe(Worker &worker, bool is_stdout, bool to_the_end);
	void take_stdout(Worker &worker, std::string_view line, bool cut);
	void take_stderr(Worker &worker, std::string_view line, bool cut);
	void worker_ended(Worker &worker, ExitStatus status);
	void listening(const std::string &unique_id);
	void not_listening(const RpcError &error);
	void record(std::optional<int> rank, const nlohmann::json &event);
	void terminate();
	void kill_all(int signal) const;
	[[nodiscard]] int alive() const;
	void end_if_done();
	void resume_output();

	EventLoop &loop_;
	ProcessReaper &reaper_;
	const WorkerSettings &settings_;
	RunRequest request_;
	EventHandler on_event_;
	std::function<void()> on_end_;
	ListenHandler on_listen_;
	std::vector<std::unique_ptr<Worker>> workers_;
	EventLog log_;
	RunState state_ = RunState::kRunning;
	bool stop_asked_ = false;
	bool terminating_ = false; ///< the workers that are left have been told to end
	bool failed_ = false;
	std::string secret_;
	std::int64_t started_at_ms_ = 0;
	std::int64_t ended_at_ms_ = 0;
	std::int64_t event_credit_ = 0; ///< events that may still be taken before the workers' pipes are left full
	EventLoop::TimerId listen_timer_ = 0;
	EventLoop::TimerId kill_timer_ = 0;
	EventLoop::TimerId grace_timer_ = 0;
	EventLoop::TimerId credit_timer_ = 0;
};

} // namespace stepccl::agent
