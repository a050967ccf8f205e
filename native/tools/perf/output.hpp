// SPDX-License-Identifier: Apache-2.0
// What stepccl-perf prints: a table for people, or one JSON object a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "perf/arguments.hpp"

namespace perf {

struct Timing {
  double time_us = 0;
  double algbw_gbps = 0;  // GB/s, decimal
  double busbw_gbps = 0;
  std::optional<std::uint64_t> wrong;  // nothing: not checked
};

struct Row {
  stepccl_collective_t collective{};
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  stepccl_datatype_t datatype{};
  stepccl_redop_t redop{};
  std::int32_t root = -1;
  stepccl_algorithm_t algorithm{};
  stepccl_transport transport{};
  Timing out_of_place;
  Timing in_place;
};

class Output {
 public:
  Output(const Arguments& arguments, std::uint32_t rank, std::uint32_t world) : arguments_(arguments), rank_(rank), world_(world) {}

  void unique_id(const stepccl_unique_id_t& id) const;
  void start(const stepccl_comm_info_t& info) const;
  void row(const Row& row) const;
  // Why an algorithm was chosen, with --explain.
  void explanation(stepccl_collective_t collective, std::uint64_t bytes, stepccl_algorithm_t algorithm, const std::string& text) const;
  void calibrated(stepccl_transport transport, double alpha_us, double beta_us_per_byte, double gamma_us_per_byte, std::size_t points) const;
  void summary(std::optional<std::uint64_t> wrong, double average_busbw_gbps) const;
  void error(const stepccl_error_info_t& error) const;
  void end(int status) const;

 private:
  const Arguments& arguments_;
  std::uint32_t rank_;
  std::uint32_t world_;
};

// 128 bytes as 256 hexadecimal digits, and back. false for anything else.
[[nodiscard]] std::string to_hex(const stepccl_unique_id_t& id);
[[nodiscard]] bool from_hex(const std::string& text, stepccl_unique_id_t& id);

}  // namespace perf
