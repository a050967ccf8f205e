// SPDX-License-Identifier: Apache-2.0
// libibverbs, loaded at run time: a node without it runs everything but RDMA.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <optional>
#include <string>

#include "bootstrap/unique_id.hpp"
#include "core/error.hpp"

// The header wraps these in macros that would need the library at link time.
#undef ibv_reg_mr
#undef ibv_query_port

namespace stepccl::transport {

// The calls that are used. Posting and polling go through the context's own table.
struct VerbsApi {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_port)(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access) = nullptr;
  int (*dereg_mr)(ibv_mr* mr) = nullptr;
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel* channel) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* tag, ibv_comp_channel* channel, int vector) = nullptr;
  int (*destroy_cq)(ibv_cq* cq) = nullptr;
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** tag) = nullptr;
  void (*ack_cq_events)(ibv_cq* cq, unsigned count) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes) = nullptr;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*destroy_qp)(ibv_qp* qp) = nullptr;
  const char* (*wc_status_str)(ibv_wc_status status) = nullptr;
  const char* sysfs = "/sys/class/infiniband";  // where the kernel describes devices, ports and GIDs
};

// Loads libibverbs.so.1 once. TRANSPORT_UNAVAILABLE where it is missing.
[[nodiscard]] Expected<const VerbsApi*> load_verbs();
// Another table instead, for the tests' emulator; nullptr = libibverbs again. What was opened before keeps its own.
void use_verbs(const VerbsApi* api) noexcept;

// The user's choice, in NCCL's grammar.
struct RdmaChoice {
  std::string hca;              // [^][=]name[:port],...; empty = by the data address
  std::int32_t gid_index = -1;  // -1 = automatic
};

struct RdmaDevice {
  std::string name;
  std::uint8_t port = 1;
  bool ethernet = true;  // RoCE; else InfiniBand
  std::uint16_t gid_index = 0;
  std::array<std::uint8_t, 16> gid{};
};

// The active port to use for data of this address: RoCE by the RoCE v2 GID that is the address, InfiniBand by the first
// active port. TRANSPORT_UNAVAILABLE says for each port why not.
[[nodiscard]] Expected<RdmaDevice> find_rdma_device(const bootstrap::Endpoint& data_address, const RdmaChoice& choice);

// Whether a list like "^=mlx5_0:1,mlx5_2" chooses this port.
[[nodiscard]] bool hca_selects(const std::string& list, const std::string& name, int port);

// "fe80:0000:..." as sysfs writes a GID; nullopt for anything else.
[[nodiscard]] std::optional<std::array<std::uint8_t, 16>> parse_gid(const std::string& text);

}  // namespace stepccl::transport
