// SPDX-License-Identifier: Apache-2.0
#include "telemetry/control_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace stepccl::agent {

ControlPage::~ControlPage()
{
	if (page_)
		(void)::munmap(page_, sizeof *page_);
}

int ControlPage::open(const std::string &file)
{
	const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
	if (!fd.valid())
		return errno;
	struct stat info{};
	if (::fstat(fd.get(), &info) != 0)
		return errno;
	if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid())
		return EPERM; // Another's file could be truncated under the mapping.
	if (::fchmod(fd.get(), 0640) != 0 || ::ftruncate(fd.get(), sizeof(stepccl_control)) != 0)
		return errno;
	void *mapped = ::mmap(nullptr, sizeof(stepccl_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
	if (mapped == MAP_FAILED)
		return errno;
	page_ = static_cast<stepccl_control *>(mapped);
	return 0;
}

void ControlPage::publish(const stepccl_control &values) noexcept
{
	if (!page_)
		return;
	std::atomic_ref<std::uint64_t> sequence(page_->seq);
	// Odd already: an earlier daemon died while it wrote.
	const std::uint64_t writing = sequence.load(std::memory_order_relaxed) | 1u;
	sequence.store(writing, std::memory_order_relaxed);
	std::atomic_thread_fence(std::memory_order_release);
	page_->magic = STEPCCL_CONTROL_MAGIC;
	page_->version = 1;
	constexpr std::size_t kBody = offsetof(stepccl_control, seq) + sizeof(values.seq);
	std::memcpy(reinterpret_cast<char *>(page_) + kBody, reinterpret_cast<const char *>(&values) + kBody,
		    sizeof values - kBody);
	sequence.store(writing + 1, std::memory_order_release);
}

} // namespace stepccl::agent
