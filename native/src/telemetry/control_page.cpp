// SPDX-License-Identifier: Apache-2.0
#include "telemetry/control_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>

#include "core/fd.hpp"

namespace stepccl::telemetry {

ControlPage::~ControlPage() {
  if (page_ != nullptr) ::munmap(const_cast<stepccl_control*>(page_), sizeof *page_);
}

void ControlPage::open(const std::string& path) noexcept {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_size < static_cast<off_t>(sizeof(stepccl_control))) return;
  void* map = ::mmap(nullptr, sizeof(stepccl_control), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return;
  page_ = static_cast<const stepccl_control*>(map);
  if (page_->magic != STEPCCL_CONTROL_MAGIC || page_->version != 1) {
    ::munmap(map, sizeof(stepccl_control));
    page_ = nullptr;
  }
}

const stepccl_control& ControlPage::read() noexcept {
  if (page_ == nullptr) return copy_;
  const std::uint64_t before = __atomic_load_n(&page_->seq, __ATOMIC_ACQUIRE);
  if (before == copy_.seq || (before & 1u) != 0) return copy_;
  stepccl_control fresh;
  std::memcpy(&fresh, page_, sizeof fresh);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (__atomic_load_n(&page_->seq, __ATOMIC_RELAXED) == before) copy_ = fresh;
  return copy_;
}

}  // namespace stepccl::telemetry
