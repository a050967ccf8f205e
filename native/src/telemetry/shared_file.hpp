// SPDX-License-Identifier: Apache-2.0
// A file of the telemetry directory that this rank makes, maps and shows to the node's daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace stepccl::telemetry {

class SharedFile {
 public:
  SharedFile() = default;
  ~SharedFile() { close(true); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  // Makes <directory>/<pid>.<rank>.<comm id>.<ending> with real blocks, zeroed. Where the directory is missing or can't be
  // written: false, nothing left behind, and no error.
  bool create(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, const char* ending, std::size_t bytes);
  // Unmaps; `remove` takes the name away too.
  void close(bool remove) noexcept;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::string path_;
};

}  // namespace stepccl::telemetry
