// SPDX-License-Identifier: Apache-2.0
#include "telemetry/ring_reader.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/text.hpp"

namespace stepccl::agent {

namespace {

// More than any producer writes between two samples: a head that runs so far ahead is torn or a lie.
constexpr std::uint64_t kMaxHeadStep = std::uint64_t{1} << 40;

} // namespace

bool read_exactly(int fd, std::uint64_t offset, void *into, std::size_t bytes) noexcept
{
	auto *at = static_cast<char *>(into);
	while (bytes > 0) {
		const ssize_t got = ::pread(fd, at, bytes, static_cast<off_t>(offset));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		offset += static_cast<std::uint64_t>(got);
		bytes -= static_cast<std::size_t>(got);
	}
	return true;
}

std::optional<RingName> parse_ring_name(std::string_view file_name) noexcept { return parse_rank_file_name(file_name, ".ring"); }

std::optional<RingName> parse_rank_file_name(std::string_view file_name, std::string_view ending) noexcept
{
	if (file_name.size() > 64 || !file_name.ends_with(ending))
		return std::nullopt;
	file_name.remove_suffix(ending.size());
	const auto first = file_name.find('.');
	const auto second = first == std::string_view::npos ? first : file_name.find('.', first + 1);
	if (second == std::string_view::npos)
		return std::nullopt;
	const auto pid = parse_u64(file_name.substr(0, first));
	const auto rank = parse_u64(file_name.substr(first + 1, second - first - 1));
	const std::string_view hex = file_name.substr(second + 1);
	// Digits only: parse_u64 takes an "0x" with base 16, a ring's name has none.
	const bool digits = hex.size() == 16 && hex.find_first_not_of("0123456789abcdef") == std::string_view::npos;
	const auto comm = digits ? parse_u64(hex, 16) : std::nullopt;
	if (!pid || !rank || !comm || *pid == 0 || *pid > 0x7fffffff || *rank > 0xffffffff)
		return std::nullopt;
	return RingName{static_cast<pid_t>(*pid), static_cast<std::uint32_t>(*rank), *comm};
}

std::optional<RingReader> RingReader::open(UniqueFd fd, const RingName &name, std::string &problem)
{
	stepccl_ring_header header{};
	struct stat info{};
	if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
		problem = "not a regular file";
		return std::nullopt;
	}
	if (!read_exactly(fd.get(), 0, &header, sizeof header)) {
		problem = "shorter than a header";
		return std::nullopt;
	}
	if (header.magic != STEPCCL_RING_MAGIC || header.version != STEPCCL_RING_VERSION) {
		problem = "wrong magic or version";
		return std::nullopt;
	}
	if (header.header_bytes < sizeof header || header.header_bytes > 4096 || header.header_bytes % 8 != 0 ||
	    !std::has_single_bit(header.op_slots) || header.op_slots > kMaxOpSlots) {
		problem = "wrong sizes in its header";
		return std::nullopt;
	}
	if (header.pid != static_cast<std::uint32_t>(name.pid) || header.rank != name.rank || header.comm_id != name.comm_id) {
		problem = "its header and its name differ";
		return std::nullopt;
	}
	RingReader reader(std::move(fd), header);
	const std::uint64_t wanted = reader.ops_offset() + std::uint64_t{header.op_slots} * sizeof(stepccl_op);
	if (static_cast<std::uint64_t>(info.st_size) < wanted) {
		problem = "shorter than its header says";
		return std::nullopt;
	}
	return reader;
}

bool RingReader::read_at(std::uint64_t offset, void *into, std::size_t bytes) const noexcept
{
	return read_exactly(fd_.get(), offset, into, bytes);
}

bool RingReader::refresh()
{
	// A copy may be torn while the producer stores: such a head is implausible, and the next one is not.
	for (int attempt = 0; attempt < 3; attempt++) {
		stepccl_ring_header now{};
		if (!read_at(0, &now, sizeof now))
			return false;
		if (now.magic != header_.magic || now.version != header_.version ||
		    now.header_bytes != header_.header_bytes || now.op_slots != header_.op_slots ||
		    now.pid != header_.pid || now.rank != header_.rank || now.comm_id != header_.comm_id)
			return false;
		if (now.op_head >= header_.op_head && now.op_head - header_.op_head <= kMaxHeadStep) {
			header_ = now;
			return true;
		}
	}
	return false;
}

std::vector<stepccl_flow> RingReader::flows() const
{
	std::vector<stepccl_flow> flows(std::min(header_.flow_count, STEPCCL_RING_FLOWS));
	if (!flows.empty() && !read_at(header_.header_bytes, flows.data(), flows.size() * sizeof(stepccl_flow)))
		flows.clear();
	return flows;
}

RingOps RingReader::ops_since(std::uint64_t &tail, std::size_t max_ops) const
{
	RingOps out;
	const std::uint64_t head = header_.op_head;
	const std::uint64_t slots = header_.op_slots;
	if (tail > head)
		tail = head;
	if (head - tail > slots) {
		out.lost = head - tail - slots;
		tail = head - slots;
	}
	const std::uint64_t begin = tail;
	const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(head - begin, max_ops));
	out.ops.resize(count);
	for (std::size_t done = 0; done < count;) {
		const std::uint64_t slot = (begin + done) & (slots - 1);
		const std::size_t run = std::min<std::size_t>(count - done, static_cast<std::size_t>(slots - slot));
		if (!read_at(ops_offset() + slot * sizeof(stepccl_op), &out.ops[done], run * sizeof(stepccl_op))) {
			out.ops.resize(done);
			out.lost += count - done;
			break;
		}
		done += run;
	}
	tail = begin + count;
	// The producer may have gone round meanwhile. It writes the slot of number op_head before it counts it,
	// so the copy of number n is whole only while op_head - n < slots.
	stepccl_ring_header now{};
	const bool known = read_at(0, &now, sizeof now) && now.op_head >= head && now.op_head - head <= kMaxHeadStep;
	if (!known) {
		out.lost += out.ops.size();
		out.ops.clear();
		return out;
	}
	const std::uint64_t whole_from = now.op_head >= slots ? now.op_head - slots + 1 : 0;
	if (whole_from > begin) {
		const auto dropped = static_cast<std::size_t>(std::min<std::uint64_t>(whole_from - begin, out.ops.size()));
		out.ops.erase(out.ops.begin(), out.ops.begin() + static_cast<std::ptrdiff_t>(dropped));
		out.lost += dropped;
	}
	return out;
}

} // namespace stepccl::agent
