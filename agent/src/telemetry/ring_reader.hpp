// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "stepccl/telemetry.h"

namespace stepccl::agent {

/// What a ring's file name says: <pid>.<rank>.<comm id, 16 hex digits>.ring
struct RingName {
	pid_t pid = 0;
	std::uint32_t rank = 0;
	std::uint64_t comm_id = 0;
};
std::optional<RingName> parse_ring_name(std::string_view file_name) noexcept;
/// The same with another ending.
std::optional<RingName> parse_rank_file_name(std::string_view file_name, std::string_view ending) noexcept;

/// Reads exactly so many bytes; false where the file is shorter or can't be read.
bool read_exactly(int fd, std::uint64_t offset, void *into, std::size_t bytes) noexcept;

/// Operations a reader has not seen yet, and how many it never will.
struct RingOps {
	std::vector<stepccl_op> ops;
	std::uint64_t lost = 0;
};

/// Reads one rank's ring file. The file is the rank's and hostile: it is read with pread (a mapping of a
/// file that shrinks would kill the daemon), every size is checked, and nothing in it is trusted twice.
class RingReader {
public:
	static constexpr std::uint32_t kMaxOpSlots = 1u << 16;

	/// Takes an open descriptor. On failure `problem` says why in a few words.
	static std::optional<RingReader> open(UniqueFd fd, const RingName &name, std::string &problem);

	/// Reads the header anew; false when it no longer says what it said (the ring is then to be dropped).
	bool refresh();

	/// The header as last refreshed.
	[[nodiscard]] const stepccl_ring_header &header() const noexcept { return header_; }

	/// The flows in use. Empty when they can't be read.
	[[nodiscard]] std::vector<stepccl_flow> flows() const;

	/// At most `max_ops` of the operations since `tail`, oldest first; moves `tail` behind them.
	[[nodiscard]] RingOps ops_since(std::uint64_t &tail, std::size_t max_ops) const;

private:
	RingReader(UniqueFd fd, const stepccl_ring_header &header) : fd_(std::move(fd)), header_(header) {}

	bool read_at(std::uint64_t offset, void *into, std::size_t bytes) const noexcept;
	[[nodiscard]] std::uint64_t ops_offset() const noexcept
	{
		return header_.header_bytes + std::uint64_t{STEPCCL_RING_FLOWS} * sizeof(stepccl_flow);
	}

	UniqueFd fd_;
	stepccl_ring_header header_;
};

} // namespace stepccl::agent
