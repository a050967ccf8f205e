// SPDX-License-Identifier: Apache-2.0
// Keeps the last operations of this rank where the daemon can read them after the rank hangs or dies: the writer's side of
// telemetry.h, section 4. No system call after opening. Any thread: the one that calls an operation and the one that runs it.
#pragma once

#include <array>
#include <atomic>
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

  // An operation was called. `op` holds what the caller asked for; its state decides whether it waits (STEPCCL_FLIGHT_QUEUED) or
  // runs (STEPCCL_FLIGHT_STARTED). Returns its number in the recorder, for the functions below; 0 where the recorder is closed
  // or full of operations that have not ended: those are never overwritten.
  [[nodiscard]] std::uint64_t called(const stepccl_flight_op& op) noexcept;
  // The operation begins: its number in the communicator, and the algorithm and transport that were chosen.
  void started(std::uint64_t number, std::uint64_t now_ns, std::uint64_t sequence, std::uint8_t algorithm, std::uint8_t transport) noexcept;
  // It stands still and lacks something of these ranks, ascending. Empty: it moves again.
  void waits_for(std::uint64_t number, std::span<const std::uint32_t> ranks) noexcept;
  // It ended; 0 = without an error. After an error that the communicator does not survive the file outlives it too, for
  // whoever asks why.
  void ended(std::uint64_t number, std::uint64_t now_ns, std::uint16_t error) noexcept;

 private:
  class Guard;
  [[nodiscard]] stepccl_flight_op* find(std::uint64_t number) noexcept;

  SharedFile file_;
  stepccl_flight_header* header_ = nullptr;
  stepccl_flight_op* ops_ = nullptr;
  std::atomic_flag lock_;  // held for the length of one record's change
  std::uint64_t head_ = 0;
  std::array<std::uint64_t, STEPCCL_FLIGHT_OP_SLOTS> open_{};  // by slot: the number of the operation in it, 0 when that has ended
  bool keep_ = false;
};

}  // namespace stepccl::telemetry
