// SPDX-License-Identifier: Apache-2.0
#include "facts/sys_tree.hpp"

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/log.hpp"
#include "base/text.hpp"

namespace stepccl::agent {

namespace {

bool is_pci_address(std::string_view text) noexcept
{
	// domain:bus:device.function, the domain of 4 to 8 digits.
	const auto parts = split(text, ':');
	if (parts.size() != 3 || parts[0].size() < 4 || parts[0].size() > 8 || parts[1].size() != 2 ||
	    parts[2].size() != 4 || parts[2][2] != '.')
		return false;
	return parse_u64(parts[0], 16) && parse_u64(parts[1], 16) && parse_u64(parts[2].substr(0, 2), 16) &&
	       parts[2][3] >= '0' && parts[2][3] <= '7';
}

bool is_absence(int error) noexcept
{
	return error == ENOENT || error == ENOTDIR || error == EINVAL || error == EOPNOTSUPP || error == ENODEV;
}

} // namespace

void SysTree::note_unreadable(std::string_view what, int error, std::string_view message)
{
	if (unreadable_.size() >= kMaxUnreadable)
		return;
	unreadable_.push_back({{"what", printable(what, 256)},
			       {"errno", error},
			       {"message", message.empty() ? errno_text(error) : printable(message, 256)}});
}

nlohmann::json SysTree::take_unreadable()
{
	nlohmann::json taken = nlohmann::json::array();
	taken.swap(unreadable_);
	return taken;
}

std::optional<std::string> SysTree::whole(std::string_view file, bool must_exist)
{
	FileText read = read_file(path(file), 1024 * 1024);
	if (read.ok())
		return std::move(read.text);
	if (must_exist || !is_absence(read.error))
		note_unreadable(file, read.error);
	return std::nullopt;
}

std::optional<std::string> SysTree::text(std::string_view file, bool must_exist)
{
	const auto content = whole(file, must_exist);
	if (!content)
		return std::nullopt;
	return printable(trim(*content), 4096);
}

std::optional<std::int64_t> SysTree::number(std::string_view file, bool must_exist)
{
	const auto content = whole(file, must_exist);
	if (!content)
		return std::nullopt;
	const auto value = parse_i64(trim(*content));
	if (!value)
		note_unreadable(file, ERANGE, "it does not hold one decimal number");
	return value;
}

std::vector<std::string> SysTree::list(std::string_view folder, std::size_t max)
{
	Listing listing = list_directory(path(folder), max);
	if (listing.error != 0 && !is_absence(listing.error))
		note_unreadable(folder, listing.error);
	if (listing.truncated)
		note_unreadable(folder, E2BIG, "it has more than " + std::to_string(max) + " entries; the rest is left out");
	return std::move(listing.names);
}

std::optional<std::string> SysTree::link_name(std::string_view link) const
{
	const auto name = link_target_name(path(link));
	if (!name)
		return std::nullopt;
	return printable(*name, 256);
}

std::optional<std::string> SysTree::pci_address(std::string_view device_link) const
{
	char resolved[PATH_MAX];
	if (!::realpath(path(device_link).c_str(), resolved))
		return std::nullopt;
	const std::string full(resolved);
	const auto parts = split(full, '/');
	for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
		if (is_pci_address(*part))
			return std::string(*part);
	}
	return std::nullopt;
}

} // namespace stepccl::agent
