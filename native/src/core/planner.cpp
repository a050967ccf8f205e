// SPDX-License-Identifier: Apache-2.0
#include "core/planner.hpp"

#include <algorithm>
#include <cstdio>

namespace stepccl {
namespace {

constexpr std::size_t kMaxPlans = 128;

void find_peers(Plan& plan) {
  for (const auto& lane : plan.schedule.lanes) plan.peers.push_back(lane.peer);
  std::sort(plan.peers.begin(), plan.peers.end());
  plan.peers.erase(std::unique(plan.peers.begin(), plan.peers.end()), plan.peers.end());
}

}  // namespace

void Planner::set_topology(std::vector<std::uint32_t> node_of, stepccl_transport slowest, stepccl_transport slowest_inside) {
  node_of_ = std::move(node_of);
  slowest_ = slowest;
  const LinkFigures& far = settings_.links[slowest];
  const LinkFigures& near = settings_.links[slowest_inside];
  std::map<std::uint32_t, std::uint32_t> ranks_of;
  for (const std::uint32_t node : node_of_) ++ranks_of[node];
  model_ = {.alpha = far.alpha_us,
            .beta = far.beta_us_per_byte,
            .gamma = settings_.gamma_us_per_byte,
            .overhead = far.overhead_us,
            .chunk = static_cast<double>(chunk_bytes_),
            .local_alpha = near.alpha_us,
            .local_beta = near.beta_us_per_byte,
            .nodes = static_cast<std::uint32_t>(std::max<std::size_t>(1, ranks_of.size()))};
  for (const auto& [node, ranks] : ranks_of) model_.per_node = std::max(model_.per_node, ranks);
}

std::uint32_t Planner::allowed_for(stepccl_collective_t collective, std::uint32_t allowed) const {
  const std::uint32_t policy = settings_.policy.algorithms[collective];
  // A call that names its algorithm wins over the environment.
  return allowed != ~0u || policy == 0 ? allowed : policy;
}

stepccl_algorithm_t Planner::on_node(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed) const {
  const stepccl_algorithm_t algorithm = node_ != nullptr ? node_->algorithm_for(collective, bytes) : STEPCCL_ALGORITHM_AUTO;
  return (allowed_for(collective, allowed) & (1u << algorithm)) != 0 ? algorithm : STEPCCL_ALGORITHM_AUTO;
}

double Planner::predict_us(const schedule::AlgorithmRow& row, double bytes) const {
  return row.cost(world_, bytes, model_) * settings_.correction(row.collective, row.algorithm, slowest_, bytes);
}

Expected<stepccl_algorithm_t> Planner::choose(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed) {
  const std::uint32_t may = allowed_for(collective, allowed);
  Choice& last = last_choice_[collective];
  if (last.algorithm != STEPCCL_ALGORITHM_AUTO && last.bytes == bytes && last.allowed == may) return last.algorithm;
  const auto* best = schedule::choose_algorithm(collective, world_, model_, may,
                                                [&](const schedule::AlgorithmRow& row) { return predict_us(row, static_cast<double>(bytes)); });
  if (best != nullptr) {
    last = {bytes, may, best->algorithm};
    return best->algorithm;
  }
  std::string names;
  for (std::uint32_t a = 1; a < STEPCCL_ALGORITHM_COUNT; ++a) {
    if ((may & (1u << a)) != 0 && may != ~0u) names += (names.empty() ? "" : " or ") + std::string(stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(a)));
  }
  return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, std::string("no ") + stepccl_collective_name(collective) + " by " + names);
}

Expected<stepccl_algorithm_t> Planner::explain(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed, std::string& text) {
  auto chosen = choose(collective, bytes, allowed);
  const stepccl_algorithm_t inside = on_node(collective, bytes, allowed);
  if (inside != STEPCCL_ALGORITHM_AUTO) chosen = inside;
  if (!chosen.ok()) return chosen;
  const std::uint32_t may = allowed_for(collective, allowed);
  char line[256];
  std::snprintf(line, sizeof line, "%s of %llu bytes, %u rank(s) on %u node(s): %s\n", stepccl_collective_name(collective), static_cast<unsigned long long>(bytes),
                world_, model_.nodes, stepccl_algorithm_name(chosen.value()));
  text += line;
  std::snprintf(line, sizeof line, "  %s, slowest path %s: alpha %.3g us, beta %.3g us/byte, gamma %.3g us/byte, %.3g us per further message, chunks of %u bytes\n",
                settings_.calibrated != 0 ? "calibrated" : "assumed (stepccl-perf --calibrate measures)", stepccl_transport_name(slowest_), model_.alpha, model_.beta,
                model_.gamma, model_.overhead, chunk_bytes_);
  text += line;
  if (inside != STEPCCL_ALGORITHM_AUTO) text += "  all ranks share this node's memory: it runs there, without the messages that are timed below\n";
  for (const auto& row : schedule::algorithms()) {
    if (row.collective != collective) continue;
    const double factor = settings_.correction(row.collective, row.algorithm, slowest_, static_cast<double>(bytes));
    const bool out = (may & (1u << row.algorithm)) == 0;
    const char* why = row.algorithm == chosen.value()                  ? "chosen"
                      : out && allowed != ~0u                          ? "not asked for by the call"
                      : out                                            ? "excluded by STEPCCL_ALGO or NCCL_ALGO"
                      : schedule::suits(row, world_, model_)           ? "slower"
                      : row.algorithm == STEPCCL_ALGORITHM_HIERARCHICAL ? "needs several nodes with several ranks"
                                                                       : "joins every pair: for at most 16 ranks";
    std::snprintf(line, sizeof line, "  %-20s %12.2f us  (model %.2f us x %.2f)  %s\n", stepccl_algorithm_name(row.algorithm), predict_us(row, static_cast<double>(bytes)),
                  row.cost(world_, static_cast<double>(bytes), model_), factor, why);
    text += line;
  }
  return chosen;
}

Plan& Planner::plan(const Task& task, std::uint64_t count, std::uint64_t stride, std::size_t element_bytes, bool in_place, std::uint32_t depth) {
  const std::uint64_t kind = std::uint64_t{task.call.collective} << 8 | task.call.algorithm;
  const Key key{kind, count, stride, task.call.root, element_bytes, depth, in_place ? 1u : 0u};
  if (last_ != nullptr && key == last_key_) return *last_;
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() >= kMaxPlans && !keep_) plans_.clear();
    const auto* row = schedule::find_algorithm(task.collective(), static_cast<stepccl_algorithm_t>(task.call.algorithm));
    Plan made;
    made.schedule = row->make({.rank = rank_,
                               .world = world_,
                               .count = count,
                               .chunk_elements = std::max<std::uint64_t>(1, chunk_bytes_ / element_bytes),
                               .depth = depth,
                               .in_place = in_place,
                               .root = task.call.root,
                               .stride = stride,
                               .nodes = &node_of_});
    find_peers(made);
    found = plans_.emplace(key, std::move(made)).first;
  }
  last_key_ = key;
  last_ = &found->second;
  return *last_;
}

Plan Planner::vector_plan(const Task& task, std::uint32_t depth) const {
  const std::size_t* arrays = task.arrays.data();
  Plan made;
  made.schedule = schedule::vector_all_to_all({.rank = rank_,
                                               .world = world_,
                                               .chunk_elements = std::max<std::uint64_t>(1, chunk_bytes_ / task.element_bytes),
                                               .depth = depth,
                                               .in_place = task.in_place},
                                              {arrays, arrays + world_, arrays + 2 * world_, arrays + 3 * world_});
  find_peers(made);
  return made;
}

}  // namespace stepccl
