// SPDX-License-Identifier: Apache-2.0
// RAII for the verbs objects that the RDMA transport holds, and the opened device they belong to.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transport/rdma.hpp"
#include "transport/rdma_wire.hpp"
#include "transport/transport.hpp"
#include "transport/verbs.hpp"

namespace stepccl::transport {

[[nodiscard]] Error rdma_error(stepccl_result_t code, stepccl_phase_t phase, std::string cause, std::int32_t peer = -1);

struct VerbsDeleter {
  const VerbsApi* api = nullptr;
  void operator()(ibv_context* x) const noexcept { api->close_device(x); }
  void operator()(ibv_pd* x) const noexcept { api->dealloc_pd(x); }
  void operator()(ibv_mr* x) const noexcept { api->dereg_mr(x); }
  void operator()(ibv_comp_channel* x) const noexcept { api->destroy_comp_channel(x); }
  void operator()(ibv_cq* x) const noexcept { api->destroy_cq(x); }
  void operator()(ibv_qp* x) const noexcept { api->destroy_qp(x); }
};
template <class T>
using Verbs = std::unique_ptr<T, VerbsDeleter>;

// An open port with a protection domain and the channel that completions are announced on.
class OpenDevice {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<OpenDevice>> open(const RdmaDevice& device);

  [[nodiscard]] const VerbsApi& api() const noexcept { return *api_; }
  [[nodiscard]] const RdmaDevice& device() const noexcept { return device_; }
  [[nodiscard]] const ibv_port_attr& port() const noexcept { return port_; }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }
  [[nodiscard]] ibv_comp_channel* channel() const noexcept { return channel_.get(); }
  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }

  // MEMLOCK where the kernel refuses to pin that much.
  [[nodiscard]] Expected<Verbs<ibv_mr>> register_memory(std::byte* data, std::size_t bytes) const;
  [[nodiscard]] Expected<Verbs<ibv_cq>> create_cq(int entries) const;
  [[nodiscard]] Expected<Verbs<ibv_qp>> create_qp(ibv_cq* cq, std::uint32_t sends, std::uint32_t receives) const;

 private:
  OpenDevice() = default;
  const VerbsApi* api_ = nullptr;
  RdmaDevice device_;
  ibv_port_attr port_{};
  Verbs<ibv_context> context_;  // declared first, so destroyed last
  Verbs<ibv_pd> pd_;
  Verbs<ibv_comp_channel> channel_;
};

// INIT, before the peer is known: receives may be posted.
[[nodiscard]] Status to_init(const OpenDevice& device, ibv_qp* qp, const RdmaOptions& options);
// RTR and RTS, towards the peer.
[[nodiscard]] Status to_ready(const OpenDevice& device, ibv_qp* qp, const ConnectionInfo& own, const QueuePairEnd& own_end,
                              const ConnectionInfo& peer, const QueuePairEnd& peer_end, const RdmaOptions& options);

}  // namespace stepccl::transport
