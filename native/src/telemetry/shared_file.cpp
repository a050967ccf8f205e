// SPDX-License-Identifier: Apache-2.0
#include "telemetry/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "core/fd.hpp"

namespace stepccl::telemetry {

bool SharedFile::create(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, const char* ending, std::size_t bytes) {
  char name[64];
  std::snprintf(name, sizeof name, "/%d.%u.%016llx.%s", static_cast<int>(getpid()), rank, static_cast<unsigned long long>(comm_id), ending);
  const std::string path = directory + name;
  // Not followed and not reused: the directory may be writable for others.
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0660));
  if (!fd) return false;
  // The umask may have cut the group's bits; without real blocks a full file system would be a SIGBUS later.
  void* map = MAP_FAILED;
  if (::fchmod(fd.get(), 0660) == 0 && ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == 0) {
    map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  }
  if (map == MAP_FAILED) {
    ::unlink(path.c_str());
    return false;
  }
  data_ = static_cast<std::byte*>(map);
  bytes_ = bytes;
  path_ = path;
  return true;
}

void SharedFile::close(bool remove) noexcept {
  if (data_ == nullptr) return;
  ::munmap(data_, bytes_);
  data_ = nullptr;
  if (remove) ::unlink(path_.c_str());
}

}  // namespace stepccl::telemetry
