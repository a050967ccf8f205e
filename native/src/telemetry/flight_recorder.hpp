// SPDX-License-Identifier: Apache-2.0
// Keeps the last operations of this rank where the daemon can read them after the rank hangs or dies: the writer's side of
// telemetry.h, section 4. No lock and no system call after opening; one thread at a time.
#pragma once

#include <span>
#include <string>

#include "stepccl/telemetry.h"
#include "telemetry/shared_file.hpp"

namespace stepccl::telemetry {

class FlightRecorder {
 public:
  FlightRecorder() = default;
  ~FlightRecorder() { file_.close(!keep_); }

  // Where the directory is missing or can't be written the recorder stays closed: false, and no error.
  bool open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name);
  [[nodiscard]] bool is_open() const noexcept { return header_ != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  // An operation was called. `op` holds what the caller asked for; sequence numbers rise by one. Its state decides whether it
  // waits (STEPCCL_FLIGHT_QUEUED) or runs (STEPCCL_FLIGHT_STARTED).
  void called(const stepccl_flight_op& op) noexcept;
  // The operation of this number begins, with the algorithm and transport that were chosen.
  void started(std::uint64_t sequence, std::uint64_t now_ns, std::uint8_t algorithm, std::uint8_t transport) noexcept;
  // It stands still and lacks something of these ranks, ascending. Empty: it moves again.
  void waits_for(std::uint64_t sequence, std::span<const std::uint32_t> ranks) noexcept;
  // It ended; 0 = without an error. After an error the file outlives the communicator, for whoever asks why.
  void ended(std::uint64_t sequence, std::uint64_t now_ns, std::uint16_t error) noexcept;

 private:
  [[nodiscard]] stepccl_flight_op* find(std::uint64_t sequence) noexcept;

  SharedFile file_;
  stepccl_flight_header* header_ = nullptr;
  stepccl_flight_op* ops_ = nullptr;
  std::uint64_t head_ = 0;
  std::uint64_t first_sequence_ = 0;  // of operation number 0
  bool keep_ = false;
};

}  // namespace stepccl::telemetry
