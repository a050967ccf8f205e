// SPDX-License-Identifier: Apache-2.0
// Shows the node's daemon what this rank's GPU engine is like: the writer's side of telemetry.h, section 5. One thread at a time.
#pragma once

#include <string>

#include "stepccl/telemetry.h"
#include "telemetry/shared_file.hpp"

namespace stepccl::telemetry {

class GpuBoard {
 public:
  // Where the directory is missing or can't be written the board stays closed: false, and no error.
  bool open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name);
  [[nodiscard]] bool is_open() const noexcept { return board_ != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  // Everything from `error` on but what open() wrote (comm_id, job_name).
  void publish(const stepccl_gpu_board& now) noexcept;

 private:
  SharedFile file_;
  stepccl_gpu_board* board_ = nullptr;
};

}  // namespace stepccl::telemetry
