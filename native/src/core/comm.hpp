// SPDX-License-Identifier: Apache-2.0
// One rank's membership in a job: who the others are, how to reach them, and what runs on it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/control_plane.hpp"
#include "core/engine.hpp"
#include "core/engine_settings.hpp"
#include "core/env.hpp"
#include "core/queue.hpp"
#include "telemetry/flight_recorder.hpp"
#include "transport/rdma.hpp"

namespace stepccl {

constexpr std::uint64_t kLeastPageBytes = 4096;
constexpr std::uint32_t kMostPrefetch = 64;

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
  transport::RdmaOptions rdma;
  bool ib_disable = false;
  bool encryption = false;   // TLS on TCP, no RDMA. Rank 0's counts
  std::uint8_t sockets = 1;  // between two ranks over TCP. Rank 0's counts
  bool single_copy = true;   // ranks of a node may read each other's memory where the kernel allows it
  std::string host_id;       // ranks with different ones share no memory
  std::int64_t spin_us = -1;  // -1 = the library's
  std::string calibration_file;
  std::uint32_t bandwidth_MBps = 0;
  std::uint32_t priority = STEPCCL_PRIORITY_NORMAL;
  EngineSettings engine;      // rank 0's count

  [[nodiscard]] static Expected<Settings> resolve(const stepccl_config_t* config);
};

class Comm {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Comm>> init(std::uint32_t world, bootstrap::UniqueId id, std::uint32_t rank, Settings settings);
  ~Comm();

  // What a call leaves open: timeout, algorithm, paging and compression of the communicator.
  [[nodiscard]] Status complete(Request& request, const stepccl_call_t& call) const;
  [[nodiscard]] Queue& queue() noexcept { return *queue_; }
  // The data path of a priority; nullptr where the communicator has none.
  [[nodiscard]] Comm* of_priority(std::uint32_t priority) noexcept;

  // Collective. `out` stays empty for a negative color.
  [[nodiscard]] Status split(std::int32_t color, std::int32_t key, Settings settings, std::unique_ptr<Comm>& out);
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] Status tune_depth(std::uint32_t& depth, double& latency_us);
  void set_pipeline_depth(std::uint32_t depth) noexcept { engine_->set_pipeline_depth(depth != 0 ? depth : settings_.pipeline_depth); }
  [[nodiscard]] Status enable_paging(std::uint64_t page_bytes, std::uint32_t prefetch_depth);
  [[nodiscard]] Expected<stepccl_algorithm_t> explain(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed, std::string& text);

  // Any thread.
  void abort();
  void query(stepccl_comm_info_t& info) const;
  // INVALID_USAGE while an operation runs or has not ended; otherwise leaves the job.
  [[nodiscard]] Status leave();

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t world() const noexcept { return world_; }
  void set_last_error(const Error& error);
  [[nodiscard]] std::optional<Error> last_error() const;

 private:
  Comm(std::uint32_t world, std::uint32_t rank, Settings settings) : rank_(rank), world_(world), settings_(std::move(settings)) {}
  [[nodiscard]] Status start(bootstrap::UniqueId id);
  void apply_page();
  [[nodiscard]] Status join(bootstrap::UniqueId id, Deadline deadline);
  [[nodiscard]] Status choose_transports(Deadline deadline);
  [[nodiscard]] Expected<stepccl_transport> transport_between(std::uint32_t a, std::uint32_t b) const;
  [[nodiscard]] Status open_transport(stepccl_transport kind, Deadline deadline);
  [[nodiscard]] Status make_engine();
  // A blocking operation of the library's own on bytes.
  [[nodiscard]] Status gather_bytes(const void* own, void* all, std::size_t bytes);

  const std::uint32_t rank_;
  const std::uint32_t world_;
  Settings settings_;
  EngineSettings engine_settings_;  // rank 0's
  std::uint64_t comm_id_ = 0;
  telemetry::RingWriter ring_;
  telemetry::FlightRecorder flight_;
  OperationLog log_{flight_, world_};
  telemetry::ControlPage control_page_;
  transport::Poller poller_;
  std::unique_ptr<bootstrap::ControlPlane> control_;
  std::vector<stepccl_transport> transport_of_;  // by peer
  stepccl_transport slowest_ = STEPCCL_TRANSPORT_NONE;
  std::array<std::unique_ptr<transport::Transport>, kTransportKinds> transports_;
  Engine::TransportTable transport_table_{};
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Queue> queue_;  // last: its thread uses all of the above
  std::array<std::unique_ptr<Comm>, STEPCCL_PRIORITY_LEVELS> siblings_;  // by priority; this one's own place is empty

  std::uint64_t splits_ = 0;
  std::atomic<std::uint64_t> page_bytes_{0};
  std::atomic<std::uint32_t> prefetch_{2};
  mutable std::mutex error_mutex_;
  std::optional<Error> last_error_;
};

}  // namespace stepccl
