// SPDX-License-Identifier: Apache-2.0
// What the flight recorder is told of tasks. The public operations are recorded: of a fused task each part.
#pragma once

#include <optional>
#include <span>

#include "core/task.hpp"
#include "telemetry/flight_recorder.hpp"

namespace stepccl {

class OperationLog {
 public:
  OperationLog(telemetry::FlightRecorder& recorder, std::uint32_t world) : recorder_(recorder), world_(world) {}

  // What a call says of itself, for the recorder.
  [[nodiscard]] static stepccl_flight_op describe(const bootstrap::Call& call, std::uint64_t bytes) noexcept;
  [[nodiscard]] telemetry::FlightRecorder& recorder() noexcept { return recorder_; }
  [[nodiscard]] bool is_on() const noexcept { return recorder_.is_open(); }
  // The task stands in line, before another thread can see it.
  void queued(Task& task) noexcept;
  // It begins, at task.begin_ns, with the sequence number and algorithm that it has now.
  void started(Task& task, stepccl_transport slowest) noexcept;
  void waits_for(const Task& task, std::span<const std::uint32_t> ranks) noexcept;
  // It ended at now_ns; one that never began is recorded with it. Before Task::end, after which the task may be gone.
  void ended(Task& task, std::uint64_t now_ns, const std::optional<Error>& error) noexcept;

 private:
  void record(Task& task, std::uint64_t queued_ns, stepccl_flight_state state) noexcept;

  telemetry::FlightRecorder& recorder_;
  const std::uint32_t world_;
};

}  // namespace stepccl
