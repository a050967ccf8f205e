// SPDX-License-Identifier: Apache-2.0
// A rank's flight recorder: any bytes, with a header that passes the first checks in one half of the runs.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "telemetry/flight_reader.hpp"

using namespace stepccl::agent;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	static const int file = ::memfd_create("flight", MFD_CLOEXEC);
	if (size < 2)
		return 0;
	(void)parse_flight_name({reinterpret_cast<const char *>(data), size});
	std::string bytes(reinterpret_cast<const char *>(data + 2), size - 2);
	if ((data[0] & 1) != 0) {
		stepccl_flight_header header{};
		std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
		header.magic = STEPCCL_FLIGHT_MAGIC;
		header.version = STEPCCL_FLIGHT_VERSION;
		header.header_bytes = sizeof header;
		header.op_slots = 1u << (data[1] % 6);
		header.pid = 1;
		header.rank = 2;
		header.comm_id = 3;
		bytes.resize(std::max(bytes.size(), sizeof header));
		std::memcpy(bytes.data(), &header, sizeof header);
	}
	if (::ftruncate(file, 0) != 0 || ::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
		std::abort();
	std::string problem;
	const std::size_t most = data[1];
	const auto recording = read_flight(UniqueFd(::dup(file)), {1, 2, 3}, most, problem);
	if (recording ? recording->ops.size() > most : problem.empty())
		std::abort();
	return 0;
}
