// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "base/loop.hpp"
#include "base/process.hpp"
#include "cluster/membership.hpp"
#include "cluster/routes.hpp"
#include "facts/gpu_helper.hpp"
#include "facts/sys_tree.hpp"
#include "options.hpp"
#include "rpc/dispatcher.hpp"
#include "rpc/server.hpp"
#include "runs/run_manager.hpp"
#include "telemetry/gpu_boards.hpp"
#include "telemetry/recorders.hpp"
#include "telemetry/ring_store.hpp"
#include "telemetry/service.hpp"
#include "telemetry/settings.hpp"

namespace stepccl::agent {

/// All the parts, and the methods of the protocol that join them.
class Daemon {
public:
	/// Makes the folders, loads what is kept. Throws std::runtime_error with a sentence.
	explicit Daemon(Options options);
	Daemon(const Daemon &) = delete;
	Daemon &operator=(const Daemon &) = delete;
	~Daemon();

	/// Listens, then calls `ready`, then serves until SIGTERM or SIGINT. Workers are ended before it returns.
	void serve(const std::function<void()> &ready);

private:
	void add_methods();
	void hello(Call &call);
	void get_facts(Call &call);
	void add_telemetry_methods();
	void begin_shutdown(int signal);

	Options options_;
	EventLoop loop_;
	ProcessReaper reaper_;
	SysTree tree_;
	RdmaPorts links_;
	Membership membership_;
	Settings settings_;
	RouteTable routes_;
	GpuHelper gpus_;
	RingStore rings_;
	Recorders recorders_;
	GpuBoards gpu_boards_;
	TelemetryService telemetry_;
	RunManager runs_;
	Dispatcher dispatcher_;
	Server server_;
	UniqueFd end_signals_;
	std::int64_t started_at_ms_;
	std::uint64_t started_ns_;
	bool ending_ = false;
};

} // namespace stepccl::agent
