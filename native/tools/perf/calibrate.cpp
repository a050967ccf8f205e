// SPDX-License-Identifier: Apache-2.0
#include "perf/calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/calibration.hpp"
#include "core/reduce.hpp"
#include "perf/bench.hpp"
#include "schedule/schedule.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;
using stepccl::schedule::AlgorithmRow;
using stepccl::schedule::CostModel;

constexpr std::uint32_t kSizes[] = {3, 7, 11, 15, 19, 22};  // log2 of bytes
constexpr std::uint64_t kLargest = 1ull << 22;
constexpr double kEnoughUs = 3'000;                          // of iterations at one point
constexpr std::uint32_t kMostIterations = 200;

class Calibration {
 public:
  Calibration(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, Bench& bench, const Buffers& buffers)
      : arguments_(arguments), comm_(comm), rank_(rank), world_(world), bench_(bench), buffers_(buffers) {}

  stepccl_result_t measure() {
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    if (stepccl_result_t result = stepccl_comm_query(comm_, &info); result != STEPCCL_SUCCESS) return result;
    transport_ = static_cast<stepccl_transport>(info.transport);
    model_.chunk = arguments_.chunk_bytes != 0 ? arguments_.chunk_bytes : 262144;
    if (stepccl_result_t result = measure_gamma(); result != STEPCCL_SUCCESS) return result;
    if (stepccl_result_t result = measure_link(); result != STEPCCL_SUCCESS) return result;
    for (const AlgorithmRow& row : stepccl::schedule::algorithms()) {
      if (!stepccl::schedule::suits(row, world_, model_)) continue;
      if (stepccl_result_t result = measure_row(row); result != STEPCCL_SUCCESS) return result;
    }
    return STEPCCL_SUCCESS;
  }

  // The whole file, with what `before` holds of other transports.
  [[nodiscard]] Json file(const Json& before) const {
    Json links = Json::object();
    Json corrections = Json::array();
    const std::string own = stepccl_transport_name(transport_);
    if (before.is_object()) {
      for (const auto& [name, link] : before.at("links").items()) {
        if (name != own) links[name] = link;
      }
      for (const auto& item : before.at("corrections")) {
        if (item.at("transport") != own) corrections.push_back(item);
      }
    }
    links[own] = {{"alpha_us", model_.alpha}, {"beta_us_per_byte", model_.beta}, {"overhead_us", model_.overhead}};
    for (const auto& item : corrections_) corrections.push_back(item);
    return {{"version", 1}, {"gamma_us_per_byte", model_.gamma}, {"links", links}, {"corrections", corrections}};
  }

  [[nodiscard]] const CostModel& model() const { return model_; }
  [[nodiscard]] stepccl_transport transport() const { return transport_; }
  [[nodiscard]] std::size_t points() const { return corrections_.size(); }

 private:
  // The slowest rank's value counts on all.
  stepccl_result_t agree(double& value) { return stepccl_all_reduce(comm_, &value, &value, 1, STEPCCL_FLOAT64, STEPCCL_MAX, nullptr); }

  stepccl_result_t measure_gamma() {
    constexpr std::size_t kCount = 1u << 18;
    double best = 1e18;
    for (int i = 0; i < 8; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      stepccl::reduce(buffers_.recv, buffers_.recv, buffers_.send, kCount, STEPCCL_FLOAT32, STEPCCL_SUM);
      best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    model_.gamma = best / (kCount * sizeof(float));
    return agree(model_.gamma);
  }

  stepccl_result_t timed(const Work& work, const stepccl_call_t& options, double& time_us) {
    stepccl_result_t result = bench_.time(work, buffers_, options, 1, 2, time_us);
    if (result == STEPCCL_SUCCESS) result = agree(time_us);
    if (result != STEPCCL_SUCCESS) return result;
    const auto iterations = static_cast<std::uint32_t>(std::clamp(kEnoughUs / std::max(time_us, 0.1), 3.0, static_cast<double>(kMostIterations)));
    result = bench_.time(work, buffers_, options, 0, iterations, time_us);
    return result == STEPCCL_SUCCESS ? agree(time_us) : result;
  }

  // To the next rank and from the one before: one message each way per rank.
  stepccl_result_t measure_link() {
    const stepccl_call_t options = STEPCCL_CALL_INIT;
    double small = 0;
    double large = 0;
    const auto neighbours = [&](std::uint64_t bytes) { return work_of(STEPCCL_SEND_RECV, bytes, STEPCCL_FLOAT32, STEPCCL_SUM, 0, rank_, world_); };
    if (stepccl_result_t result = timed(neighbours(8), options, small); result != STEPCCL_SUCCESS) return result;
    if (stepccl_result_t result = timed(neighbours(kLargest), options, large); result != STEPCCL_SUCCESS) return result;
    model_.alpha = small;
    model_.beta = std::max(0.0, large - small) / (kLargest - 8);
    if (world_ > 2) {
      // All messages of a rank at once: what each further one adds.
      stepccl_call_t direct = options;
      direct.algorithm = STEPCCL_ALGORITHM_DIRECT_ONE_SHOT;
      double many = 0;
      const Work exchange = work_of(STEPCCL_ALL_TO_ALL, std::uint64_t{8} * world_, STEPCCL_FLOAT32, STEPCCL_SUM, 0, rank_, world_);
      if (stepccl_result_t result = timed(exchange, direct, many); result != STEPCCL_SUCCESS) return result;
      model_.overhead = std::max(0.0, many - small) / (2.0 * (world_ - 2));
    } else {
      model_.overhead = small / 8;
    }
    model_.local_alpha = model_.alpha;
    model_.local_beta = model_.beta;
    return STEPCCL_SUCCESS;
  }

  stepccl_result_t measure_row(const AlgorithmRow& row) {
    stepccl_call_t options = STEPCCL_CALL_INIT;
    options.algorithm = static_cast<std::uint32_t>(row.algorithm);
    for (const std::uint32_t log2_bytes : kSizes) {
      const Work work = work_of(row.collective, 1ull << log2_bytes, STEPCCL_FLOAT32, STEPCCL_SUM, 0, rank_, world_);
      if (row.collective != STEPCCL_BARRIER && work.count == 0) continue;
      double time_us = 0;
      if (stepccl_result_t result = timed(work, options, time_us); result != STEPCCL_SUCCESS) return result;
      const double predicted = row.cost(world_, static_cast<double>(work.bytes()), model_);
      if (predicted > 0 && time_us > 0) {
        corrections_.push_back({{"collective", stepccl_collective_name(row.collective)},
                                {"algorithm", stepccl_algorithm_name(row.algorithm)},
                                {"transport", stepccl_transport_name(transport_)},
                                {"log2_bytes", log2_bytes},
                                {"factor", std::clamp(time_us / predicted, 1e-3, 1e3)}});
      }
      if (row.collective == STEPCCL_BARRIER) break;
    }
    return STEPCCL_SUCCESS;
  }

  const Arguments& arguments_;
  stepccl_comm_t comm_;
  std::uint32_t rank_;
  std::uint32_t world_;
  Bench& bench_;
  Buffers buffers_;
  stepccl_transport transport_{};
  CostModel model_;
  std::vector<Json> corrections_;
};

// What stands in the file, if it is a calibration.
Json existing(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  stepccl::EngineSettings ignored;
  return stepccl::parse_calibration(text.str(), ignored).ok() ? Json::parse(text.str()) : Json();
}

// Whole or not at all.
bool write_file(const std::string& path, const std::string& text) {
  const std::string next = path + "." + std::to_string(::getpid());
  std::ofstream file(next, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.good() && std::rename(next.c_str(), path.c_str()) == 0) return true;
  std::remove(next.c_str());
  return false;
}

stepccl_error_info_t error_of(stepccl_comm_t comm) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm, &info);
  return info;
}

}  // namespace

bool calibrate(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, const Output& output) {
  const auto refuse = [&](stepccl_result_t code, const std::string& text) {
    stepccl_error_info_t error{};
    error.code = code;
    error.rank = static_cast<std::int32_t>(rank);
    error.peer = -1;
    std::snprintf(error.text, sizeof error.text, "%s %s: %s", stepccl_result_code(code), stepccl_result_name(code), text.c_str());
    output.error(error);
    return false;
  };
  if (world < 2) return refuse(STEPCCL_ERROR_INVALID_USAGE, "a calibration needs at least two ranks");
  const Memory send(kLargest);
  const Memory recv(kLargest);
  if (!send.ok() || !recv.ok()) return refuse(STEPCCL_ERROR_OUT_OF_MEMORY, "no memory for two buffers");
  Bench bench(arguments, comm, rank, world, send.data(), recv.data());
  Calibration calibration(arguments, comm, rank, world, bench, {send.data(), recv.data()});
  if (calibration.measure() != STEPCCL_SUCCESS) {
    output.error(error_of(comm));
    return false;
  }
  if (rank != 0) return true;
  const Json file = calibration.file(existing(arguments.calibrate_file));
  if (!write_file(arguments.calibrate_file, file.dump(1) + "\n")) {
    return refuse(STEPCCL_ERROR_SYSTEM, "the calibration can't be written to \"" + arguments.calibrate_file + "\"");
  }
  output.calibrated(calibration.transport(), calibration.model().alpha, calibration.model().beta, calibration.model().gamma, calibration.points());
  return true;
}

}  // namespace perf
