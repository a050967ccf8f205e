// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace stepccl::agent {

FileText read_file(const std::string &path, std::size_t max_bytes)
{
	FileText out;
	// O_NONBLOCK: a FIFO in a file's place must not hold the daemon up.
	const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	if (!fd.valid()) {
		out.error = errno;
		return out;
	}
	char buffer[4096];
	for (;;) {
		const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			out.error = errno;
			out.text.clear();
			return out;
		}
		if (got == 0)
			return out;
		out.text.append(buffer, static_cast<std::size_t>(got));
		if (out.text.size() > max_bytes) {
			out.text.clear();
			out.error = EFBIG;
			return out;
		}
	}
}

int write_all(int fd, std::string_view bytes) noexcept
{
	while (!bytes.empty()) {
		const ssize_t put = ::write(fd, bytes.data(), bytes.size());
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno;
		bytes.remove_prefix(static_cast<std::size_t>(put));
	}
	return 0;
}

int write_file_atomically(const std::string &path, std::string_view content, mode_t mode)
{
	const auto slash = path.rfind('/');
	const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
	const std::string temporary = path + ".tmp." + std::to_string(::getpid());
	(void)::unlink(temporary.c_str());
	UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
	if (!fd.valid())
		return errno;
	int error = write_all(fd.get(), content);
	if (error == 0 && ::fchmod(fd.get(), mode) != 0)
		error = errno;
	if (error == 0 && ::fsync(fd.get()) != 0)
		error = errno;
	if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0)
		error = errno;
	if (error != 0) {
		(void)::unlink(temporary.c_str());
		return error;
	}
	// The new file is in place. Where the folder can't be synced (overlay, 9p) a crash may bring the old
	// one back, which is still a whole file.
	const UniqueFd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (dir.valid())
		(void)::fsync(dir.get());
	return 0;
}

Listing list_directory(const std::string &path, std::size_t max_names)
{
	Listing out;
	const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		out.error = errno;
		return out;
	}
	const std::unique_ptr<DIR, int (*)(DIR *)> dir(::fdopendir(fd), ::closedir);
	if (!dir) {
		out.error = errno;
		::close(fd);
		return out;
	}
	for (;;) {
		errno = 0;
		const dirent *entry = ::readdir(dir.get());
		if (!entry) {
			out.error = errno;
			break;
		}
		if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0)
			continue;
		if (out.names.size() == max_names) {
			out.truncated = true;
			break;
		}
		out.names.emplace_back(entry->d_name);
	}
	std::sort(out.names.begin(), out.names.end());
	return out;
}

std::optional<std::string> link_target_name(const std::string &path)
{
	char buffer[4096];
	const ssize_t length = ::readlink(path.c_str(), buffer, sizeof buffer);
	if (length <= 0 || static_cast<std::size_t>(length) == sizeof buffer)
		return std::nullopt;
	const std::string_view target(buffer, static_cast<std::size_t>(length));
	const auto slash = target.rfind('/');
	return std::string(slash == std::string_view::npos ? target : target.substr(slash + 1));
}

int ensure_directory(const std::string &path, mode_t mode)
{
	if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
		return errno;
	const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (!fd.valid())
		return errno;
	struct stat info{};
	if (::fstat(fd.get(), &info) != 0)
		return errno;
	if ((info.st_mode & 07777) == mode)
		return 0;
	if (info.st_uid != ::geteuid() && ::geteuid() != 0)
		return 0; // Another's folder: its owner decides about the mode, and a use of it tells.
	return ::fchmod(fd.get(), mode) == 0 ? 0 : errno;
}

std::optional<gid_t> group_id(std::string_view name)
{
	const FileText file = read_file("/etc/group", 1024 * 1024);
	for (const std::string_view line : split(file.text, '\n')) {
		const auto fields = split(line, ':');
		if (fields.size() < 3 || fields[0] != name)
			continue;
		if (const auto id = parse_u64(fields[2]))
			return static_cast<gid_t>(*id);
	}
	return std::nullopt;
}

} // namespace stepccl::agent
