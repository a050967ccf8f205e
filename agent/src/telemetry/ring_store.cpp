// SPDX-License-Identifier: Apache-2.0
#include "telemetry/ring_store.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "facts/key_values.hpp"

namespace stepccl::agent {

namespace {

constexpr std::size_t kMaxFiles = 4096;
constexpr std::size_t kMaxRejected = 1024;
constexpr std::int64_t kStartSlackSeconds = 2;

/// When the process started, in seconds since the epoch. 0 where it can't be told.
std::int64_t start_seconds(const std::string &proc, const ProcessIdentity &process)
{
	const auto stat = read_file(proc + "/stat", 1024 * 1024);
	const auto boot = find_value(stat.text, "btime", ' ');
	const auto boot_seconds = boot ? parse_i64(*boot) : std::nullopt;
	const long ticks = ::sysconf(_SC_CLK_TCK);
	if (!boot_seconds || ticks <= 0)
		return 0;
	return *boot_seconds + static_cast<std::int64_t>(process.started_ticks / static_cast<std::uint64_t>(ticks));
}

} // namespace

std::optional<ProcessIdentity> process_identity(const std::string &proc, pid_t pid)
{
	const std::string base = proc + "/" + std::to_string(pid);
	const FileText status = read_file(base + "/status");
	const FileText stat = read_file(base + "/stat");
	if (!status.ok() || !stat.ok())
		return std::nullopt;
	const auto state = find_value(status.text, "State");
	if (!state || state->starts_with('Z') || state->starts_with('X'))
		return std::nullopt;
	// "Uid:  real  effective  saved  filesystem"
	const auto uids = find_value(status.text, "Uid");
	if (!uids)
		return std::nullopt;
	const auto fields = split(*uids, '\t');
	const auto uid = fields.size() == 4 ? parse_u64(trim(fields[3])) : std::nullopt;
	// The name in parentheses may hold anything; the fields after the last ')' are numbers. Field 22 is the start.
	const auto close = stat.text.rfind(')');
	if (!uid || close == std::string::npos)
		return std::nullopt;
	const auto rest = split(trim(std::string_view(stat.text).substr(close + 1)), ' ');
	const auto start = rest.size() > 19 ? parse_u64(rest[19]) : std::nullopt;
	if (!start)
		return std::nullopt;
	return ProcessIdentity{static_cast<std::uint32_t>(*uid), *start};
}

bool maker_is_gone(const std::string &proc, pid_t pid, const struct stat &file)
{
	const auto process = process_identity(proc, pid);
	return !process || file.st_mtim.tv_sec + kStartSlackSeconds < start_seconds(proc, *process);
}

RingStore::RingStore(EventLoop &loop, std::string directory, std::string proc)
	: loop_(loop), directory_(std::move(directory)), proc_(std::move(proc))
{
}

RingStore::~RingStore()
{
	if (inotify_.valid())
		loop_.remove(inotify_.get());
}

void RingStore::watch_begins()
{
	if (watchers_++ > 0)
		return;
	inotify_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	if (inotify_.valid() &&
	    ::inotify_add_watch(inotify_.get(), directory_.c_str(), IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE) >= 0) {
		loop_.add(inotify_.get(), EPOLLIN, [this](std::uint32_t) { on_inotify(); });
	} else {
		// Each sample scans the folder all the same: only rings of very short jobs are missed.
		log_warn({{"event", "ring_watch_failed"}, {"directory", directory_}, {"error", errno_text(errno)}});
		inotify_.reset();
	}
	scan();
}

void RingStore::watch_ends()
{
	if (--watchers_ > 0)
		return;
	if (inotify_.valid())
		loop_.remove(inotify_.get());
	inotify_.reset();
	rings_.clear();
}

void RingStore::on_inotify()
{
	alignas(inotify_event) std::array<char, 16 * 1024> buffer;
	const ssize_t got = ::read(inotify_.get(), buffer.data(), buffer.size());
	bool lost = false;
	for (std::size_t at = 0; got > 0 && at + sizeof(inotify_event) <= static_cast<std::size_t>(got);) {
		inotify_event event;
		std::memcpy(&event, buffer.data() + at, sizeof event);
		const char *name = buffer.data() + at + sizeof event;
		at += sizeof event + event.len;
		if (event.mask & IN_Q_OVERFLOW)
			lost = true;
		if (event.len == 0)
			continue;
		const std::string file_name(name, ::strnlen(name, event.len));
		if (event.mask & IN_DELETE) {
			const auto found = rings_.find(file_name);
			if (found != rings_.end() && found->second->gone_at_ns == 0)
				found->second->gone_at_ns = monotonic_ns();
		} else {
			open_ring(file_name);
		}
	}
	if (lost)
		scan();
}

void RingStore::scan()
{
	for (const std::string &name : list_directory(directory_, kMaxFiles).names)
		open_ring(name);
}

void RingStore::reject(const std::string &file_name, std::uint64_t inode, std::string_view why)
{
	if (rejected_.size() >= kMaxRejected || !rejected_.insert(inode).second)
		return;
	log_warn({{"event", "ring_rejected"}, {"file", file_name}, {"why", why}});
}

void RingStore::open_ring(const std::string &file_name)
{
	const auto name = parse_ring_name(file_name);
	if (!name || rings_.contains(file_name) || rings_.size() >= kMaxRings)
		return;
	const std::string path = directory_ + "/" + file_name;
	UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	struct stat info{};
	if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
		return;
	const auto process = process_identity(proc_, name->pid);
	if (!process)
		return;
	if (info.st_uid != process->file_uid) {
		reject(file_name, info.st_ino, "its owner is not the process's user");
		return;
	}
	if (info.st_nlink > 1) {
		reject(file_name, info.st_ino, "it has a second name");
		return;
	}
	std::string problem;
	auto reader = RingReader::open(std::move(fd), *name, problem);
	if (!reader) {
		// The library may be in the middle of making it: the next sample looks again.
		if (info.st_ctim.tv_sec + 5 < ::time(nullptr))
			reject(file_name, info.st_ino, problem);
		return;
	}
	rings_.emplace(file_name, std::make_shared<OpenRing>(OpenRing{std::move(*reader), name->pid, 0}));
}

void RingStore::update(std::uint64_t drained_ns)
{
	scan();
	for (auto it = rings_.begin(); it != rings_.end();) {
		OpenRing &ring = *it->second;
		if (ring.gone_at_ns != 0 && ring.gone_at_ns < drained_ns) {
			it = rings_.erase(it);
			continue;
		}
		if (!ring.reader.refresh()) {
			log_warn({{"event", "ring_rejected"}, {"file", it->first}, {"why", "it shrank or its header changed"}});
			(void)::unlink((directory_ + "/" + it->first).c_str());
			it = rings_.erase(it);
			continue;
		}
		if (ring.gone_at_ns == 0 && !process_identity(proc_, ring.pid))
			ring.gone_at_ns = monotonic_ns();
		++it;
	}
}

void RingStore::remove_stale()
{
	std::size_t removed = 0;
	for (const std::string &file_name : list_directory(directory_, kMaxFiles).names) {
		const auto name = parse_ring_name(file_name);
		if (!name)
			continue;
		const std::string path = directory_ + "/" + file_name;
		struct stat info{};
		if (::lstat(path.c_str(), &info) != 0)
			continue;
		if (!maker_is_gone(proc_, name->pid, info))
			continue;
		if (::unlink(path.c_str()) == 0)
			removed++;
		else if (errno != ENOENT)
			reject(file_name, info.st_ino, errno_text(errno));
	}
	if (removed > 0)
		log_info({{"event", "stale_rings_removed"}, {"count", removed}});
}

} // namespace stepccl::agent
