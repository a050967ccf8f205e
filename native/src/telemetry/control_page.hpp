// SPDX-License-Identifier: Apache-2.0
// The daemon's live settings: the reader's side of telemetry.h, section 2.
#pragma once

#include <string>

#include "stepccl/telemetry.h"

namespace stepccl::telemetry {

class ControlPage {
 public:
  ControlPage() = default;
  ~ControlPage();
  ControlPage(const ControlPage&) = delete;
  ControlPage& operator=(const ControlPage&) = delete;

  // Where the file is missing, too short or of another version, all settings stay 0 ("not set").
  void open(const std::string& path) noexcept;
  [[nodiscard]] bool is_open() const noexcept { return page_ != nullptr; }
  // The settings now; the old ones while the daemon is writing. One cache line read when nothing changed.
  [[nodiscard]] const stepccl_control& read() noexcept;

 private:
  const stepccl_control* page_ = nullptr;
  stepccl_control copy_{};
};

}  // namespace stepccl::telemetry
