// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/comm.hpp"
#include "core/names.hpp"

namespace stepccl {
namespace {

Error refuse(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

Expected<std::uint32_t> transports_from(const std::string& list) {
  std::uint32_t mask = 0;
  for (const std::string& name : split_list(list)) {
    const auto transport = transport_from_name(name);
    if (!transport || name == "none") return refuse("STEPCCL_TRANSPORT: \"" + name + "\" is no transport");
    if (*transport == STEPCCL_TRANSPORT_NONE) return std::uint32_t{0};  // auto
    mask |= STEPCCL_TRANSPORT_BIT(*transport);
  }
  return mask;
}

// "4K" and the like are the tools' affair: here sizes are bytes.
Status resolve_engine(const stepccl_config_t& config, const Environment& env, Settings& settings) {
  EngineSettings& engine = settings.engine;
  if (settings.algorithm != STEPCCL_ALGORITHM_AUTO) {
    if (Status status = read_algorithms("config.algorithm", stepccl_algorithm_name(settings.algorithm), false, engine.policy); !status.ok()) return status;
  } else if (env.algorithm && !env.algorithm->empty()) {
    if (Status status = read_algorithms("STEPCCL_ALGO", *env.algorithm, false, engine.policy); !status.ok()) return status;
  } else if (env.nccl_algorithm) {
    if (Status status = read_algorithms("NCCL_ALGO", *env.nccl_algorithm, true, engine.policy); !status.ok()) return status;
  }
  if (env.protocol) {
    if (Status status = read_protocols("STEPCCL_PROTO", *env.protocol, engine.policy); !status.ok()) return status;
  }
  const auto either = [](std::uint64_t own, const std::optional<std::int64_t>& fallback) { return own != 0 ? own : static_cast<std::uint64_t>(fallback.value_or(0)); };
  engine.fusion_bytes = either(config.fusion_bytes, env.fusion_bytes);
  engine.page_bytes = either(config.page_bytes, env.page_bytes);
  if (engine.page_bytes != 0 && engine.page_bytes < kLeastPageBytes) return refuse("page_bytes must be 0 or at least " + std::to_string(kLeastPageBytes));
  engine.prefetch_depth = config.prefetch_depth == 0 ? 2 : config.prefetch_depth;
  if (engine.prefetch_depth > kMostPrefetch) return refuse("prefetch_depth must be at most " + std::to_string(kMostPrefetch));
  if (config.priority_levels > STEPCCL_PRIORITY_LEVELS) return refuse("priority_levels must be at most 3");
  engine.priority_levels = static_cast<std::uint8_t>(std::max(1u, config.priority_levels));
  if (config.compression >= STEPCCL_COMPRESSION_COUNT) return refuse("config.compression is outside its enumeration");
  if (config.compression != STEPCCL_COMPRESSION_DEFAULT) {
    engine.compression = static_cast<std::uint8_t>(config.compression);
  } else if (env.compression && !env.compression->empty()) {
    const std::string& name = *env.compression;
    if (name != "none" && name != "bf16" && name != "fp16") return refuse("STEPCCL_COMPRESSION is \"" + name + "\": use none, bf16 or fp16");
    engine.compression = name == "none" ? STEPCCL_COMPRESSION_NONE : name == "bf16" ? STEPCCL_COMPRESSION_BFLOAT16 : STEPCCL_COMPRESSION_FLOAT16;
  }
  settings.calibration_file = config.calibration_file != nullptr ? config.calibration_file : env.calibration_file.value_or("");
  settings.bandwidth_MBps = static_cast<std::uint32_t>(either(config.bandwidth_MBps, env.bandwidth_MBps));
  return {};
}

}  // namespace

Expected<Settings> Settings::resolve(const stepccl_config_t* given) {
  stepccl_config_t config = STEPCCL_CONFIG_INIT;
  if (given != nullptr) {
    if (given->size < offsetof(stepccl_config_t, transports)) {
      return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "config.size is smaller than any version of the struct");
    }
    std::memcpy(&config, given, std::min<std::size_t>(given->size, sizeof config));
  }
  auto read = Environment::read();
  if (!read.ok()) return read.take_error();
  const Environment& env = read.value();

  Settings settings;
  const auto or_number = [](std::uint32_t own, const std::optional<std::int64_t>& fallback, std::uint32_t otherwise) {
    return own != 0 ? own : fallback ? static_cast<std::uint32_t>(*fallback) : otherwise;
  };
  const auto or_text = [](const char* own, const std::optional<std::string>& fallback, const char* otherwise) {
    return own != nullptr ? std::string(own) : fallback.value_or(otherwise);
  };
  settings.timeout_ms = or_number(config.timeout_ms, env.timeout_ms, 30'000);
  settings.heartbeat_timeout_ms = or_number(config.heartbeat_timeout_ms, env.heartbeat_timeout_ms, std::max<std::uint32_t>(10'000, settings.timeout_ms / 3));
  if (settings.heartbeat_timeout_ms == UINT32_MAX) settings.heartbeat_timeout_ms = 0;

  settings.transports = config.transports;
  if (settings.transports == 0 && env.transport) {
    auto mask = transports_from(*env.transport);
    if (!mask.ok()) return mask.take_error();
    settings.transports = mask.value();
  }
  constexpr std::uint32_t kHere =
      STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM) | STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP) | STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_RDMA);
  if ((settings.transports & ~kHere) != 0) {
    return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "this version carries host memory over shm, tcp and rdma only");
  }

  settings.algorithm = static_cast<stepccl_algorithm_t>(config.algorithm);
  if (config.algorithm >= STEPCCL_ALGORITHM_COUNT) return refuse("config.algorithm is outside its enumeration");
  if (Status status = resolve_engine(config, env, settings); !status.ok()) return status.take_error();

  if (config.chunk_bytes != 0) settings.chunk_bytes = config.chunk_bytes;
  constexpr std::uint32_t kLeastChunk = 64;
  constexpr std::uint32_t kMostChunk = 1u << 30;
  if (settings.chunk_bytes < kLeastChunk || settings.chunk_bytes > kMostChunk) return refuse("config.chunk_bytes must be from 64 to 2^30");
  if (config.pipeline_depth != 0) settings.pipeline_depth = config.pipeline_depth;
  if (settings.pipeline_depth > 256) return refuse("config.pipeline_depth must be at most 256");

  settings.telemetry_dir = or_text(config.telemetry_dir, env.telemetry_dir, STEPCCL_RING_DIR);
  settings.control_file = env.control_file.value_or(STEPCCL_CONTROL_FILE);
  settings.job_name = or_text(config.job_name, env.job_name, "");
  settings.net_interface = or_text(config.net_interface, env.socket_ifname, "");
  settings.rdma.choice.hca = or_text(config.ib_hca, env.ib_hca, "");
  settings.rdma.choice.gid_index = config.ib_gid_index >= 0 ? config.ib_gid_index : static_cast<std::int32_t>(env.ib_gid_index.value_or(-1));
  settings.rdma.timeout = static_cast<std::uint8_t>(env.ib_timeout.value_or(20));
  settings.rdma.retry_count = static_cast<std::uint8_t>(env.ib_retry_count.value_or(7));
  settings.rdma.queue_pairs = static_cast<std::uint32_t>(env.ib_queue_pairs.value_or(1));
  settings.rdma.split = env.ib_split.value_or(0) != 0;
  settings.rdma.traffic_class = static_cast<std::uint8_t>(env.ib_traffic_class.value_or(0));
  settings.rdma.service_level = static_cast<std::uint8_t>(env.ib_service_level.value_or(0));
  settings.rdma.pkey_index = static_cast<std::uint16_t>(env.ib_pkey_index.value_or(0));
  settings.ib_disable = env.ib_disable.value_or(0) != 0;
  const std::string encryption = env.encryption.value_or("off");
  if (encryption != "off" && encryption != "tls") return refuse("STEPCCL_ENCRYPTION is \"" + encryption + "\": use off or tls");
  settings.encryption = encryption == "tls";
  settings.sockets = static_cast<std::uint8_t>(env.sockets.value_or(1));
  const std::string single_copy = env.single_copy.value_or("auto");
  if (single_copy != "auto" && single_copy != "off") return refuse("STEPCCL_SINGLE_COPY is \"" + single_copy + "\": use auto or off");
  settings.single_copy = single_copy == "auto";
  settings.host_id = env.host_id.value_or("");
  settings.spin_us = env.spin_us.value_or(-1);
  return settings;
}

}  // namespace stepccl
