// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.hpp"
#include "base/process.hpp"
#include "facts/facts.hpp"

namespace stepccl::agent {

/// What became of a question to the helper.
struct GpuAnswer {
	GpuFacts facts;
	int error = 0;       ///< errno-like; 0 where the helper answered
	std::string message; ///< why it did not
};

/// Asks `stepccl-gpuinfo` (a dynamic executable: it loads NVML, which the static daemon can't) and keeps
/// its answer for a short while. Questions that come while it runs share one process.
class GpuHelper {
public:
	using Callback = std::function<void(const GpuAnswer &)>;

	GpuHelper(EventLoop &loop, ProcessReaper &reaper, std::string path);
	~GpuHelper();
	GpuHelper(const GpuHelper &) = delete;
	GpuHelper &operator=(const GpuHelper &) = delete;

	void ask(Callback callback);

private:
	struct Running;

	void start();
	void read_output();
	void finish(GpuAnswer answer);

	EventLoop &loop_;
	ProcessReaper &reaper_;
	std::string path_;
	std::unique_ptr<Running> running_;
	std::vector<Callback> waiting_;
	GpuAnswer kept_;
	std::uint64_t kept_until_ns_ = 0;
};

} // namespace stepccl::agent
