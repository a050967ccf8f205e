// SPDX-License-Identifier: Apache-2.0
// One rank's membership in a job: who the others are, how to reach them, and the operation that runs.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/control_plane.hpp"
#include "core/env.hpp"
#include "core/scratch.hpp"
#include "schedule/schedule.hpp"
#include "schedule/tracker.hpp"
#include "telemetry/control_page.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/transport.hpp"

namespace stepccl {

// stepccl_config_t with its defaults and the environment applied.
struct Settings {
  std::uint32_t timeout_ms = 30'000;
  std::uint32_t heartbeat_timeout_ms = 10'000;  // 0 = never
  std::uint32_t transports = 0;
  stepccl_algorithm_t algorithm = STEPCCL_ALGORITHM_AUTO;
  std::uint32_t chunk_bytes = 256u << 10;
  std::uint32_t pipeline_depth = 4;
  std::string telemetry_dir;
  std::string control_file;
  std::string job_name;
  std::string net_interface;
  std::string ib_hca;
  std::int32_t ib_gid_index = -1;
  std::uint8_t ib_timeout = 20;
  std::uint8_t ib_retry_count = 7;
  std::int64_t spin_us = -1;  // -1 = by the number of CPUs

  [[nodiscard]] static Expected<Settings> resolve(const stepccl_config_t* config);
};

class Comm {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Comm>> init(std::uint32_t world, bootstrap::UniqueId id, std::uint32_t rank, Settings settings);
  ~Comm();

  [[nodiscard]] Status all_reduce(const void* send, void* recv, std::size_t count, stepccl_datatype_t datatype,
                                  stepccl_redop_t redop, const stepccl_call_t& call);
  // Any thread.
  void abort();
  void query(stepccl_comm_info_t& info) const;
  // INVALID_USAGE while an operation runs; otherwise leaves the job.
  [[nodiscard]] Status leave();

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t world() const noexcept { return world_; }
  void set_last_error(const Error& error);
  [[nodiscard]] std::optional<Error> last_error() const;

 private:
  struct Operation;
  struct Buffers;

  Comm(std::uint32_t world, std::uint32_t rank, Settings settings) : rank_(rank), world_(world), settings_(std::move(settings)) {}
  [[nodiscard]] Status start(bootstrap::UniqueId id);
  [[nodiscard]] Status choose_transports(Deadline deadline);
  [[nodiscard]] Expected<stepccl_transport> transport_between(std::uint32_t a, std::uint32_t b) const;
  [[nodiscard]] Status open_transport(stepccl_transport kind, Deadline deadline);

  [[nodiscard]] const schedule::Schedule& schedule_for(const Operation& operation, bool in_place);
  [[nodiscard]] Status execute(Operation& operation);
  [[nodiscard]] Status connect_peers(const schedule::Schedule& schedule, Operation& operation);
  [[nodiscard]] Status drive(Operation& operation, const schedule::Schedule& schedule, const Buffers& buffers);
  [[nodiscard]] Expected<bool> turn(Operation& operation, schedule::Tracker& tracker, const schedule::Schedule& schedule, const Buffers& buffers);
  void run_local(const Operation& operation, const schedule::Step& step, const Buffers& buffers) const noexcept;
  [[nodiscard]] Status rest(Operation& operation, const schedule::Tracker& tracker);
  // Asks now and then what the others are in, once this operation stands still, and compares.
  [[nodiscard]] Status watch_states(Operation& operation);
  [[nodiscard]] Status look_for_mismatch(const Operation& operation, const std::vector<bootstrap::OperationState>& states) const;
  [[nodiscard]] Error explain_mismatch(const Operation& operation, Error error);
  [[nodiscard]] Error explain_timeout(const Operation& operation, const std::vector<std::uint32_t>& waiting, stepccl_phase_t phase);
  void publish(const Operation& operation, stepccl_op_state state, stepccl_result_t error);

  const std::uint32_t rank_;
  const std::uint32_t world_;
  Settings settings_;
  std::uint64_t comm_id_ = 0;
  telemetry::RingWriter ring_;
  telemetry::ControlPage control_page_;
  transport::Poller poller_;
  std::unique_ptr<bootstrap::ControlPlane> control_;
  std::vector<stepccl_transport> transport_of_;  // by peer
  stepccl_transport slowest_ = STEPCCL_TRANSPORT_NONE;
  std::map<stepccl_transport, std::unique_ptr<transport::Transport>> transports_;
  ScratchMemory scratch_;
  std::map<std::array<std::uint64_t, 5>, schedule::Schedule> schedules_;
  std::vector<std::uint32_t> finished_;  // reused between turns
  bootstrap::Call last_call_;

  std::atomic<bool> busy_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint32_t> last_algorithm_{0};
  mutable std::mutex error_mutex_;
  std::optional<Error> last_error_;
};

}  // namespace stepccl
