// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/fd.hpp"
#include "base/loop.hpp"
#include "telemetry/ring_reader.hpp"

namespace stepccl::agent {

/// A ring that is open, with what its readers need to know.
struct OpenRing {
	RingReader reader;
	pid_t pid;
	std::uint64_t gone_at_ns = 0; ///< monotonic; its file was removed or its process ended, 0 while it lives
};

/// The rings of this node's ranks. While somebody watches, new files are opened at once (a short job's file
/// is gone again before the next sample), and stay readable until each watcher has drained them.
class RingStore {
public:
	static constexpr std::size_t kMaxRings = 256;
	using Rings = std::map<std::string, std::shared_ptr<OpenRing>, std::less<>>;

	/// `proc` is where processes are looked up ("/proc").
	RingStore(EventLoop &loop, std::string directory, std::string proc);
	RingStore(const RingStore &) = delete;
	RingStore &operator=(const RingStore &) = delete;
	~RingStore();

	void watch_begins();
	void watch_ends();

	/// Brings the set up to date. Rings that went before `drained_ns` have been read by all and are closed.
	void update(std::uint64_t drained_ns);

	[[nodiscard]] const Rings &rings() const noexcept { return rings_; }

	/// Removes files whose process is gone. (The library leaves one behind when it is killed.)
	void remove_stale();

private:
	void scan();
	void open_ring(const std::string &file_name);
	void on_inotify();
	void reject(const std::string &file_name, std::uint64_t inode, std::string_view why);

	EventLoop &loop_;
	std::string directory_;
	std::string proc_;
	UniqueFd inotify_;
	int watchers_ = 0;
	Rings rings_;
	std::set<std::uint64_t> rejected_; ///< inodes that were reported once
};

/// The user that a living process runs as, from its status file; nothing where there is no such process.
struct ProcessIdentity {
	std::uint32_t file_uid;         ///< fsuid: the owner of files it makes
	std::uint64_t started_ticks;    ///< since boot, in clock ticks
};
std::optional<ProcessIdentity> process_identity(const std::string &proc, pid_t pid);

/// True when the process that made this file has ended, also where its number has gone to a later one.
bool maker_is_gone(const std::string &proc, pid_t pid, const struct stat &file);

} // namespace stepccl::agent
