// SPDX-License-Identifier: Apache-2.0
// Every environment variable that the library reads. A STEPCCL_ name wins over NCCL's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace stepccl {

struct Environment {
  std::optional<std::string> socket_ifname;  // STEPCCL_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: prefixes, comma list, ^ excludes, = exact
  std::optional<std::string> ib_hca;         // STEPCCL_IB_HCA, NCCL_IB_HCA: [^][=]name[:port],...
  std::optional<std::int64_t> ib_gid_index;  // STEPCCL_IB_GID_INDEX, NCCL_IB_GID_INDEX: -1 = automatic
  std::optional<std::int64_t> ib_timeout;    // STEPCCL_IB_TIMEOUT, NCCL_IB_TIMEOUT: 4.096 us * 2^t per try, 0..31
  std::optional<std::int64_t> ib_retry_count;  // STEPCCL_IB_RETRY_CNT, NCCL_IB_RETRY_CNT: 0..7
  std::optional<std::int64_t> ib_queue_pairs;  // STEPCCL_IB_QPS_PER_CONNECTION, NCCL_IB_QPS_PER_CONNECTION: 1..128
  std::optional<std::int64_t> ib_split;        // STEPCCL_IB_SPLIT_DATA_ON_QPS, NCCL_IB_SPLIT_DATA_ON_QPS: 0 in turn, 1 cut every message
  std::optional<std::int64_t> ib_traffic_class;  // STEPCCL_IB_TC, NCCL_IB_TC: 0..255
  std::optional<std::int64_t> ib_service_level;  // STEPCCL_IB_SL, NCCL_IB_SL: 0..15
  std::optional<std::int64_t> ib_pkey_index;     // STEPCCL_IB_PKEY, NCCL_IB_PKEY
  std::optional<std::int64_t> ib_disable;        // STEPCCL_IB_DISABLE, NCCL_IB_DISABLE: 1 = no RDMA unless it is asked for by name
  std::optional<std::string> transport;      // STEPCCL_TRANSPORT: auto, shm, tcp, rdma, or a comma list
  std::optional<std::string> algorithm;      // STEPCCL_ALGO: NCCL_ALGO's grammar with this library's names
  std::optional<std::string> nccl_algorithm;  // NCCL_ALGO, where STEPCCL_ALGO is not set
  std::optional<std::string> protocol;       // STEPCCL_PROTO, NCCL_PROTO: ll, ll128, simple
  std::optional<std::string> calibration_file;  // STEPCCL_CALIBRATION_FILE
  std::optional<std::string> compression;    // STEPCCL_COMPRESSION: none, bf16, fp16
  std::optional<std::int64_t> fusion_bytes;  // STEPCCL_FUSION_BYTES; 0 = none
  std::optional<std::int64_t> page_bytes;    // STEPCCL_PAGE_BYTES; 0 = none
  std::optional<std::int64_t> bandwidth_MBps;  // STEPCCL_BANDWIDTH_MBPS; 0 = no limit
  std::optional<std::string> telemetry_dir;  // STEPCCL_TELEMETRY_DIR; empty = none
  std::optional<std::string> control_file;   // STEPCCL_CONTROL_FILE
  std::optional<std::string> job_name;       // STEPCCL_JOB_NAME
  std::optional<std::string> encryption;     // STEPCCL_ENCRYPTION: off, or tls = TLS 1.3 on every TCP connection that carries data
  std::optional<std::int64_t> sockets;       // STEPCCL_SOCKETS, NCCL_NSOCKS_PERTHREAD: TCP connections between two ranks, 1..16
  std::optional<std::string> single_copy;    // STEPCCL_SINGLE_COPY: auto, or off = no rank reads another's memory directly
  std::optional<std::string> host_id;        // STEPCCL_HOSTID, NCCL_HOSTID: ranks of one machine with different ones count as on different nodes
  std::optional<std::int64_t> timeout_ms;    // STEPCCL_TIMEOUT_MS
  std::optional<std::int64_t> heartbeat_timeout_ms;  // STEPCCL_HEARTBEAT_TIMEOUT_MS; 0 = never
  std::optional<std::int64_t> spin_us;       // STEPCCL_SPIN_US: how long to poll before sleeping

  // Error: a value that is no number or out of range, named.
  [[nodiscard]] static Expected<Environment> read();
};

// Whether `name` is chosen by a list in NCCL's grammar: comma-separated prefixes; a leading ^ excludes, a leading =
// wants whole names. An empty list chooses everything.
[[nodiscard]] bool list_selects(const std::string& list, const std::string& name);

// Parts of a comma-separated list, empty ones left out.
[[nodiscard]] std::vector<std::string> split_list(const std::string& list);

}  // namespace stepccl
