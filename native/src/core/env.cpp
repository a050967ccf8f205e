// SPDX-License-Identifier: Apache-2.0
#include "core/env.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace stepccl {
namespace {

std::optional<std::string> text(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr) return std::string(value);
  }
  return std::nullopt;
}

struct NumberRule {
  const char* own;
  const char* nccl;  // nullptr where NCCL has none
  std::int64_t least;
  std::int64_t most;
};

Expected<std::optional<std::int64_t>> number(const NumberRule& rule) {
  for (const char* name : {rule.own, rule.nccl}) {
    const char* value = name == nullptr ? nullptr : std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string written(value);
    std::int64_t parsed = 0;
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), parsed);
    if (error != std::errc{} || end != written.data() + written.size() || parsed < rule.least || parsed > rule.most) {
      return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS,
                        std::string(name) + " is \"" + written + "\", not a whole number from " + std::to_string(rule.least) +
                            " to " + std::to_string(rule.most));
    }
    return std::optional<std::int64_t>(parsed);
  }
  return std::optional<std::int64_t>();
}

}  // namespace

Expected<Environment> Environment::read() {
  Environment env;
  env.socket_ifname = text({"STEPCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"});
  env.ib_hca = text({"STEPCCL_IB_HCA", "NCCL_IB_HCA"});
  env.transport = text({"STEPCCL_TRANSPORT"});
  env.algorithm = text({"STEPCCL_ALGO"});
  env.nccl_algorithm = text({"NCCL_ALGO"});
  env.protocol = text({"STEPCCL_PROTO", "NCCL_PROTO"});
  env.calibration_file = text({"STEPCCL_CALIBRATION_FILE"});
  env.compression = text({"STEPCCL_COMPRESSION"});
  env.telemetry_dir = text({"STEPCCL_TELEMETRY_DIR"});
  env.control_file = text({"STEPCCL_CONTROL_FILE"});
  env.job_name = text({"STEPCCL_JOB_NAME"});
  env.single_copy = text({"STEPCCL_SINGLE_COPY"});
  env.host_id = text({"STEPCCL_HOSTID", "NCCL_HOSTID"});
  env.encryption = text({"STEPCCL_ENCRYPTION"});

  const std::pair<std::optional<std::int64_t>*, NumberRule> numbers[] = {
      {&env.ib_gid_index, {"STEPCCL_IB_GID_INDEX", "NCCL_IB_GID_INDEX", -1, 65535}},
      {&env.ib_timeout, {"STEPCCL_IB_TIMEOUT", "NCCL_IB_TIMEOUT", 0, 31}},
      {&env.ib_retry_count, {"STEPCCL_IB_RETRY_CNT", "NCCL_IB_RETRY_CNT", 0, 7}},
      {&env.ib_queue_pairs, {"STEPCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_QPS_PER_CONNECTION", 1, 128}},
      {&env.ib_split, {"STEPCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_SPLIT_DATA_ON_QPS", 0, 1}},
      {&env.ib_traffic_class, {"STEPCCL_IB_TC", "NCCL_IB_TC", 0, 255}},
      {&env.ib_service_level, {"STEPCCL_IB_SL", "NCCL_IB_SL", 0, 15}},
      {&env.ib_pkey_index, {"STEPCCL_IB_PKEY", "NCCL_IB_PKEY", 0, 65535}},
      {&env.ib_disable, {"STEPCCL_IB_DISABLE", "NCCL_IB_DISABLE", 0, 1}},
      {&env.sockets, {"STEPCCL_SOCKETS", "NCCL_NSOCKS_PERTHREAD", 1, 16}},
      {&env.timeout_ms, {"STEPCCL_TIMEOUT_MS", nullptr, 1, 86'400'000}},
      {&env.heartbeat_timeout_ms, {"STEPCCL_HEARTBEAT_TIMEOUT_MS", nullptr, 0, 86'400'000}},
      {&env.fusion_bytes, {"STEPCCL_FUSION_BYTES", nullptr, 0, INT64_MAX}},
      {&env.page_bytes, {"STEPCCL_PAGE_BYTES", nullptr, 0, INT64_MAX}},
      {&env.bandwidth_MBps, {"STEPCCL_BANDWIDTH_MBPS", nullptr, 0, UINT32_MAX}},
      {&env.spin_us, {"STEPCCL_SPIN_US", nullptr, 0, 1'000'000}},
  };
  for (const auto& [field, rule] : numbers) {
    auto value = number(rule);
    if (!value.ok()) return value.take_error();
    *field = value.value();
  }
  return env;
}

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool list_selects(const std::string& list, const std::string& name) {
  std::string rest = list;
  const bool exclude = !rest.empty() && rest[0] == '^';
  if (exclude) rest.erase(0, 1);
  const bool exact = !rest.empty() && rest[0] == '=';
  if (exact) rest.erase(0, 1);
  const auto parts = split_list(rest);
  if (parts.empty()) return true;
  for (const std::string& part : parts) {
    const bool match = exact ? name == part : name.compare(0, part.size(), part) == 0;
    if (match) return !exclude;
  }
  return exclude;
}

}  // namespace stepccl
