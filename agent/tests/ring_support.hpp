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

/// A file that a rank makes and maps, removed at the end.
class RankFile {
public:
	RankFile(const std::string &directory, const RingName &name, const char *ending, std::size_t bytes) : name_(name), bytes_(bytes)
	{
		char file[64];
		std::snprintf(file, sizeof file, "%d.%u.%016llx.%s", name.pid, name.rank, static_cast<unsigned long long>(name.comm_id), ending);
		path_ = directory + "/" + file;
		const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0660));
		REQUIRE(fd.valid());
		REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes_)) == 0);
		map_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
		REQUIRE(map_ != MAP_FAILED);
	}
	RankFile(const RankFile &) = delete;
	RankFile &operator=(const RankFile &) = delete;
	~RankFile()
	{
		::munmap(map_, bytes_);
		::unlink(path_.c_str());
	}

	[[nodiscard]] const std::string &path() const { return path_; }
	[[nodiscard]] RingName name() const { return name_; }

protected:
	template <class T>
	[[nodiscard]] T &at(std::size_t offset) const { return *reinterpret_cast<T *>(static_cast<char *>(map_) + offset); }
	/// What both kinds of header say.
	template <class Header>
	void fill(Header &h, std::uint32_t magic, std::uint32_t version, std::uint32_t slots) const
	{
		h.magic = magic;
		h.version = version;
		h.header_bytes = sizeof h;
		h.op_slots = slots;
		h.pid = static_cast<std::uint32_t>(name_.pid);
		h.rank = name_.rank;
		h.world_size = 4;
		h.comm_id = name_.comm_id;
	}

private:
	RingName name_;
	std::string path_;
	std::size_t bytes_ = 0;
	void *map_ = nullptr;
};

/// A rank's side of a ring.
class FakeRing : public RankFile {
public:
	FakeRing(const std::string &directory, pid_t pid, std::uint32_t rank, std::uint64_t comm_id, std::uint32_t slots)
		: RankFile(directory, {pid, rank, comm_id}, "ring", kOps + slots * sizeof(stepccl_op)), slots_(slots)
	{
		fill(header(), STEPCCL_RING_MAGIC, STEPCCL_RING_VERSION, slots);
	}

	stepccl_ring_header &header() { return at<stepccl_ring_header>(0); }
	stepccl_flow &flow(std::size_t i) { return at<stepccl_flow>(sizeof(stepccl_ring_header) + i * sizeof(stepccl_flow)); }

	void write_ops(int count)
	{
		for (int i = 0; i < count; i++) {
			auto &op = at<stepccl_op>(kOps + (header().op_head & (slots_ - 1)) * sizeof(stepccl_op));
			op = {};
			op.sequence = header().op_head + 1;
			op.bytes = 1024;
			op.state = STEPCCL_OP_COMPLETED;
			op.transport = STEPCCL_TRANSPORT_TCP;
			header().op_head++;
		}
	}

private:
	static constexpr std::size_t kOps = sizeof(stepccl_ring_header) + STEPCCL_RING_FLOWS * sizeof(stepccl_flow);
	std::uint32_t slots_;
};

} // namespace stepccl::agent::testing
