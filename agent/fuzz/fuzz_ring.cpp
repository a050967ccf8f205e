// SPDX-License-Identifier: Apache-2.0
// A rank's ring file: any bytes, and any bytes that it turns into while it is open. Two inputs, cut by the first
// two bytes; the header's magic and version are set, so that more than the first check is reached.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "telemetry/ring_reader.hpp"

using namespace stepccl::agent;

namespace {

constexpr std::uint32_t kSlots = 8;
constexpr std::size_t kFileBytes = sizeof(stepccl_ring_header) + STEPCCL_RING_FLOWS * sizeof(stepccl_flow) + kSlots * sizeof(stepccl_op);

void fill(int fd, std::string_view bytes, bool whole)
{
	std::string file(bytes.substr(0, kFileBytes));
	if (whole)
		file.resize(kFileBytes);
	if (file.size() >= 8) {
		const std::uint32_t start[2] = {STEPCCL_RING_MAGIC, STEPCCL_RING_VERSION};
		std::memcpy(file.data(), start, sizeof start);
	}
	if (whole && !bytes.empty() && bytes[0] % 2 == 0) {
		stepccl_ring_header header;
		std::memcpy(&header, file.data(), sizeof header);
		header.header_bytes = sizeof header;
		header.op_slots = kSlots;
		header.pid = 1;
		header.rank = 2;
		header.comm_id = 3;
		std::memcpy(file.data(), &header, sizeof header);
	}
	if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, file.data(), file.size(), 0) != static_cast<ssize_t>(file.size()))
		std::abort();
}

void read_all(const RingReader &reader, std::uint64_t &tail)
{
	if (reader.flows().size() > STEPCCL_RING_FLOWS)
		std::abort();
	const RingOps read = reader.ops_since(tail, 100);
	if (read.ops.size() > 100 || tail > reader.header().op_head)
		std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	if (size < 3)
		return 0;
	static const int file = ::memfd_create("ring", MFD_CLOEXEC);
	const std::string_view all(reinterpret_cast<const char *>(data), size);
	(void)parse_ring_name(all);
	const std::size_t cut = 2 + static_cast<std::size_t>(data[0]) * (size - 2) / 256;
	fill(file, all.substr(2, cut - 2), data[1] & 1);
	std::string problem;
	auto reader = RingReader::open(UniqueFd(::dup(file)), {1, 2, 3}, problem);
	if (!reader)
		return 0;
	std::uint64_t tail = data[1];
	read_all(*reader, tail);
	fill(file, all.substr(cut), data[1] & 2);
	read_all(*reader, tail);
	if (reader->refresh())
		read_all(*reader, tail);
	return 0;
}
