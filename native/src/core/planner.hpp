// SPDX-License-Identifier: Apache-2.0
// From a call to a schedule: the choice of algorithm, and the schedules that have been made.
#pragma once

#include <array>
#include <map>
#include <string>

#include "core/engine_settings.hpp"
#include "core/task.hpp"
#include "schedule/schedule.hpp"
#include "transport/node_engine.hpp"

namespace stepccl {

// A schedule, and what the engine has found out about it.
struct Plan {
  schedule::Schedule schedule;
  std::vector<std::uint32_t> peers;  // ascending
  std::uint32_t transports = 0;      // STEPCCL_TRANSPORT_BIT set that its peers are on; 0 = not connected yet
};

class Planner {
 public:
  Planner(std::uint32_t rank, std::uint32_t world, const EngineSettings& settings) : rank_(rank), world_(world), settings_(settings) {}

  // Who runs where, and over what: the slowest path between any two ranks, and the slowest inside a node.
  void set_topology(std::vector<std::uint32_t> node_of, stepccl_transport slowest, stepccl_transport slowest_inside);
  void set_chunk_bytes(std::uint32_t bytes) noexcept { chunk_bytes_ = bytes; }

  // What runs collectives in the memory of one node, where all ranks share it; may be null.
  void set_node_engine(transport::NodeEngine* engine) noexcept { node_ = engine; }
  [[nodiscard]] bool has_node_engine() const noexcept { return node_ != nullptr; }
  [[nodiscard]] transport::NodeEngine* node_engine() const noexcept { return node_; }
  // The algorithm by which the node engine would run a call, AUTO where it would not. The same on every rank.
  [[nodiscard]] stepccl_algorithm_t on_node(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed) const;

  // The algorithm for a call, the same on every rank. UNSUPPORTED where nothing that is allowed exists.
  [[nodiscard]] Expected<stepccl_algorithm_t> choose(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed);
  // The same with one line per algorithm that says why.
  [[nodiscard]] Expected<stepccl_algorithm_t> explain(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed, std::string& text);
  // Model times correction, in us.
  [[nodiscard]] double predict_us(const schedule::AlgorithmRow& row, double bytes) const;

  // The schedule of `count` elements per block, `stride` to the next, of a collective task; kept for the next time. The
  // reference holds until the next call.
  [[nodiscard]] Plan& plan(const Task& task, std::uint64_t count, std::uint64_t stride, std::size_t element_bytes, bool in_place, std::uint32_t depth);
  // A vector exchange is made anew each time.
  [[nodiscard]] Plan vector_plan(const Task& task, std::uint32_t depth) const;

  [[nodiscard]] std::uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
  // kProtocol bits that may be used.
  [[nodiscard]] std::uint8_t protocols(stepccl_collective_t collective) const noexcept {
    const std::uint8_t listed = settings_.policy.protocols[collective];
    return listed == 0 ? static_cast<std::uint8_t>(kProtocolAll) : listed;
  }
  [[nodiscard]] const schedule::CostModel& model() const noexcept { return model_; }
  // Plans may not be dropped while an execution refers to them.
  void keep_plans(bool keep) noexcept { keep_ = keep; }

 private:
  using Key = std::array<std::uint64_t, 7>;
  struct Choice {
    std::uint64_t bytes = 0;
    std::uint32_t allowed = 0;
    stepccl_algorithm_t algorithm = STEPCCL_ALGORITHM_AUTO;
  };
  [[nodiscard]] std::uint32_t allowed_for(stepccl_collective_t collective, std::uint32_t allowed) const;

  const std::uint32_t rank_;
  const std::uint32_t world_;
  const EngineSettings& settings_;
  std::uint32_t chunk_bytes_ = 256u << 10;
  std::vector<std::uint32_t> node_of_;
  stepccl_transport slowest_ = STEPCCL_TRANSPORT_NONE;
  schedule::CostModel model_;
  std::map<Key, Plan> plans_;
  std::array<Choice, STEPCCL_COLLECTIVE_COUNT> last_choice_{};
  Key last_key_{};
  Plan* last_ = nullptr;
  bool keep_ = false;
  transport::NodeEngine* node_ = nullptr;
};

}  // namespace stepccl
