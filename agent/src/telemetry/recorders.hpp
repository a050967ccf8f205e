// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "facts/sys_tree.hpp"

namespace stepccl::agent {

/// The flight recorders of this node's ranks: those that run, and those that failed or were killed.
class Recorders {
public:
	/// A file of an ended process is kept this long after it was first seen so, and no more than kMaxLeft of them.
	static constexpr std::uint64_t kKeepNs = 3'600'000'000'000;
	static constexpr std::size_t kMaxLeft = 64;
	/// So many operations fit into one message, whatever they are.
	static constexpr std::size_t kMaxOperations = 1792;

	/// `proc` is where processes are looked up ("/proc").
	Recorders(SysTree tree, std::string directory, std::string proc);

	/// `recorder.get`. Throws RpcError.
	[[nodiscard]] nlohmann::json get(const nlohmann::json &params);

	/// Removes what ended processes left, when its time has come.
	void remove_old(std::uint64_t now_ns);

private:
	SysTree tree_;
	std::string directory_;
	std::string proc_;
	std::map<std::string, std::uint64_t> left_; ///< files of ended processes, and when they were first seen so
};

} // namespace stepccl::agent
