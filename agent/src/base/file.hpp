// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepccl::agent {

struct FileText {
	std::string text;
	int error = 0; ///< errno; 0 when the text was read
	[[nodiscard]] bool ok() const noexcept { return error == 0; }
};

/// Reads at most `max_bytes` of a file (proc and sysfs files included). A longer file gives EFBIG.
FileText read_file(const std::string &path, std::size_t max_bytes = 64 * 1024);

/// Replaces a file so that a reader, or a crash at any moment, sees the old content or the new one:
/// temporary file beside it, fsync, rename, fsync of the folder. Returns errno, 0 when done; on an
/// error the old file is as it was.
int write_file_atomically(const std::string &path, std::string_view content, mode_t mode);

struct Listing {
	std::vector<std::string> names; ///< sorted, without "." and ".."
	int error = 0;
	bool truncated = false; ///< more than `max_names` were there
};

/// The names in a folder.
Listing list_directory(const std::string &path, std::size_t max_names = 1024);

/// The last component of what a symbolic link points to.
std::optional<std::string> link_target_name(const std::string &path);

/// Makes a folder with exactly this mode where it is missing, or sets the mode of an own one.
/// A symbolic link in its place gives ENOTDIR. Returns errno, 0 when done.
int ensure_directory(const std::string &path, mode_t mode);

/// Writes everything to a blocking descriptor. Returns errno, 0 when done.
int write_all(int fd, std::string_view bytes) noexcept;

/// The group's id from /etc/group: a static executable has no name service to ask.
std::optional<gid_t> group_id(std::string_view name);

} // namespace stepccl::agent
