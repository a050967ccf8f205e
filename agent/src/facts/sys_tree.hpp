// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"

namespace stepccl::agent {

/// Reads /proc, /sys, /etc and /dev below a root ("" is the machine itself; tests put a fixture there),
/// and keeps a list of what should have been readable and was not.
class SysTree {
public:
	explicit SysTree(std::string root = {}) : root_(std::move(root)) {}

	[[nodiscard]] std::string path(std::string_view absolute) const { return root_ + std::string(absolute); }
	[[nodiscard]] bool is_machine() const noexcept { return root_.empty(); }

	/// First bytes of a file, trimmed and printable; nothing where it can't be read. ENOENT and what
	/// sysfs says for "has no value now" (EINVAL, EOPNOTSUPP) are not listed as unreadable unless
	/// `must_exist`.
	std::optional<std::string> text(std::string_view file, bool must_exist = false);
	std::optional<std::int64_t> number(std::string_view file, bool must_exist = false);
	/// The file as it is, up to 1 MiB.
	std::optional<std::string> whole(std::string_view file, bool must_exist = false);

	/// Names in a folder; empty where there is none. More than `max` are cut, and that is listed.
	std::vector<std::string> list(std::string_view folder, std::size_t max = 256);

	[[nodiscard]] std::optional<std::string> link_name(std::string_view link) const;

	/// The PCI address ("0000:3b:00.0") nearest to the device that a sysfs `device` link stands for.
	[[nodiscard]] std::optional<std::string> pci_address(std::string_view device_link) const;

	void note_unreadable(std::string_view what, int error, std::string_view message = {});

	/// [{what, errno, message}], and forgets it.
	nlohmann::json take_unreadable();

private:
	static constexpr std::size_t kMaxUnreadable = 64;

	std::string root_;
	nlohmann::json unreadable_ = nlohmann::json::array();
};

/// JSON null for an absent value.
template <typename T>
nlohmann::json or_null(const std::optional<T> &value)
{
	return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

} // namespace stepccl::agent
