// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace stepccl {

// Page-aligned memory that grows and is kept, touched once so that no operation pays for page faults.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  ~ScratchMemory() { release(); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  // False when memory has run out. The old content is lost.
  [[nodiscard]] bool resize(std::size_t bytes) noexcept {
    constexpr std::size_t kGranule = 64u << 10;
    const std::size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
    release();
    void* map = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (map == MAP_FAILED) return false;
    data_ = static_cast<std::byte*>(map);
    bytes_ = rounded;
    return true;
  }

 private:
  void release() noexcept {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace stepccl
