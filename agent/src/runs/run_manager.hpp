// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/loop.hpp"
#include "base/process.hpp"
#include "rpc/client.hpp"
#include "rpc/dispatcher.hpp"
#include "runs/run.hpp"

namespace stepccl::agent {

/// The node's runs: those that go on and the last ones that ended.
class RunManager {
public:
	static constexpr std::size_t kMaxRunning = 8;
	static constexpr std::size_t kMaxRanks = 64; ///< of all running runs
	static constexpr std::size_t kMaxKept = 32;
	static constexpr std::size_t kMaxKeptBytes = 4 * 1024 * 1024; ///< events of ended runs

	RunManager(EventLoop &loop, ProcessReaper &reaper, WorkerSettings settings);

	void start(Call &call);
	void stop(Call &call);
	void list(Call &call);
	void events(Call &call);
	void subscribe(Call &call);

	/// Ends every run; `done` is called when the last worker is gone (at once where there is none).
	void stop_all(std::function<void()> done);

	/// Called after each run's end.
	void on_run_end(std::function<void()> task) { run_end_task_ = std::move(task); }

private:
	struct Subscriber {
		std::weak_ptr<Client> client;
		std::uint64_t end_key;
	};
	struct Entry {
		std::unique_ptr<Run> run;
		std::map<std::uint64_t, Subscriber> subscribers; ///< by client
	};

	Entry &find(const std::string &run_id);
	void publish(const std::string &run_id, const std::string &text);
	void ended(const std::string &run_id);
	void make_room();
	[[nodiscard]] std::size_t running() const;
	[[nodiscard]] std::size_t running_ranks() const;

	EventLoop &loop_;
	ProcessReaper &reaper_;
	WorkerSettings settings_;
	std::map<std::string, Entry, std::less<>> runs_;
	std::deque<std::string> order_; ///< oldest first
	std::function<void()> run_end_task_;
	std::function<void()> all_stopped_;
	bool closing_ = false;
};

} // namespace stepccl::agent
