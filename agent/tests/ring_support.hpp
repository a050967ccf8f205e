// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdio>

#include "base/fd.hpp"
#include "support.hpp"
#include "telemetry/ring_reader.hpp"

namespace stepccl::agent::testing {

/// A rank's side of a ring: the file, mapped, and removed at the end.
class FakeRing {
public:
	FakeRing(const std::string &directory, pid_t pid, std::uint32_t rank, std::uint64_t comm_id, std::uint32_t slots)
		: name_{pid, rank, comm_id}, slots_(slots)
	{
		char file[64];
		std::snprintf(file, sizeof file, "%d.%u.%016llx.ring", pid, rank, static_cast<unsigned long long>(comm_id));
		path_ = directory + "/" + file;
		bytes_ = sizeof(stepccl_ring_header) + STEPCCL_RING_FLOWS * sizeof(stepccl_flow) + slots * sizeof(stepccl_op);
		const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0660));
		REQUIRE(fd.valid());
		REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes_)) == 0);
		map_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
		REQUIRE(map_ != MAP_FAILED);
		stepccl_ring_header &h = header();
		h.magic = STEPCCL_RING_MAGIC;
		h.version = STEPCCL_RING_VERSION;
		h.header_bytes = sizeof h;
		h.op_slots = slots;
		h.pid = static_cast<std::uint32_t>(pid);
		h.rank = rank;
		h.world_size = 4;
		h.comm_id = comm_id;
	}
	FakeRing(const FakeRing &) = delete;
	FakeRing &operator=(const FakeRing &) = delete;
	~FakeRing()
	{
		::munmap(map_, bytes_);
		::unlink(path_.c_str());
	}

	[[nodiscard]] const std::string &path() const { return path_; }
	[[nodiscard]] RingName name() const { return name_; }
	stepccl_ring_header &header() { return *static_cast<stepccl_ring_header *>(map_); }
	stepccl_flow &flow(std::size_t i)
	{
		return reinterpret_cast<stepccl_flow *>(static_cast<char *>(map_) + sizeof(stepccl_ring_header))[i];
	}

	void write_ops(int count)
	{
		auto *ops = reinterpret_cast<stepccl_op *>(static_cast<char *>(map_) + sizeof(stepccl_ring_header) +
							   STEPCCL_RING_FLOWS * sizeof(stepccl_flow));
		for (int i = 0; i < count; i++) {
			stepccl_op &op = ops[header().op_head & (slots_ - 1)];
			op = {};
			op.sequence = header().op_head + 1;
			op.bytes = 1024;
			op.state = STEPCCL_OP_COMPLETED;
			op.transport = STEPCCL_TRANSPORT_TCP;
			header().op_head++;
		}
	}

private:
	RingName name_;
	std::uint32_t slots_;
	std::string path_;
	std::size_t bytes_ = 0;
	void *map_ = nullptr;
};

} // namespace stepccl::agent::testing
