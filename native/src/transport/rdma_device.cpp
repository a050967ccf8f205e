// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma_device.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace stepccl::transport {

Error rdma_error(stepccl_result_t code, stepccl_phase_t phase, std::string cause, std::int32_t peer) {
  return make_error(code, phase, std::move(cause), peer, STEPCCL_TRANSPORT_RDMA);
}

Expected<std::unique_ptr<OpenDevice>> OpenDevice::open(const RdmaDevice& device) {
  auto api = load_verbs();
  if (!api.ok()) return api.take_error();
  std::unique_ptr<OpenDevice> opened(new OpenDevice);
  opened->api_ = api.value();
  opened->device_ = device;
  const auto refuse = [&](const std::string& call) {
    return rdma_error(STEPCCL_ERROR_TRANSPORT_UNAVAILABLE, STEPCCL_PHASE_CONNECT, call + " of " + device.name + ": " + errno_text(errno));
  };
  int count = 0;
  errno = 0;
  ibv_device** list = opened->api_->get_device_list(&count);
  if (list == nullptr) return refuse("ibv_get_device_list in search");  // NULL must not be freed
  ibv_context* context = nullptr;
  errno = ENODEV;
  for (int i = 0; i < count; ++i) {
    if (device.name == opened->api_->get_device_name(list[i])) context = opened->api_->open_device(list[i]);
  }
  opened->api_->free_device_list(list);
  if (context == nullptr) return refuse("ibv_open_device");
  opened->context_ = Verbs<ibv_context>(context, {opened->api_});
  if (opened->api_->query_port(context, device.port, reinterpret_cast<_compat_ibv_port_attr*>(&opened->port_)) != 0) return refuse("ibv_query_port");
  opened->pd_ = Verbs<ibv_pd>(opened->api_->alloc_pd(context), {opened->api_});
  if (!opened->pd_) return refuse("ibv_alloc_pd");
  opened->channel_ = Verbs<ibv_comp_channel>(opened->api_->create_comp_channel(context), {opened->api_});
  if (!opened->channel_) return refuse("ibv_create_comp_channel");
  const int flags = ::fcntl(opened->channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(opened->channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) return refuse("fcntl of the completion channel");
  return opened;
}

Expected<Verbs<ibv_mr>> OpenDevice::register_memory(std::byte* data, std::size_t bytes) const {
  errno = 0;
  Verbs<ibv_mr> mr(api_->reg_mr(pd_.get(), data, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), {api_});
  if (mr) return mr;
  const bool limit = errno == ENOMEM || errno == EAGAIN || errno == EPERM;
  return rdma_error(limit ? STEPCCL_ERROR_MEMLOCK : STEPCCL_ERROR_TRANSPORT_FAILED, STEPCCL_PHASE_REGISTER,
                    "ibv_reg_mr of " + std::to_string(bytes) + " bytes with " + device_.name + ": " + errno_text(errno));
}

Expected<Verbs<ibv_cq>> OpenDevice::create_cq(int entries) const {
  Verbs<ibv_cq> cq(api_->create_cq(context_.get(), entries, nullptr, channel_.get(), 0), {api_});
  if (cq) return cq;
  return rdma_error(errno == ENOMEM ? STEPCCL_ERROR_MEMLOCK : STEPCCL_ERROR_TRANSPORT_FAILED, STEPCCL_PHASE_CONNECT, "ibv_create_cq: " + errno_text(errno));
}

Expected<Verbs<ibv_qp>> OpenDevice::create_qp(ibv_cq* cq, std::uint32_t sends, std::uint32_t receives) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq;
  attributes.recv_cq = cq;
  attributes.cap.max_send_wr = sends;
  attributes.cap.max_recv_wr = receives;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  Verbs<ibv_qp> qp(api_->create_qp(pd_.get(), &attributes), {api_});
  if (qp) return qp;
  return rdma_error(errno == ENOMEM ? STEPCCL_ERROR_MEMLOCK : STEPCCL_ERROR_TRANSPORT_FAILED, STEPCCL_PHASE_CONNECT, "ibv_create_qp: " + errno_text(errno));
}

Status to_init(const OpenDevice& device, ibv_qp* qp, const RdmaOptions& options) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = options.pkey_index;
  attributes.port_num = device.device().port;
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const int error = device.api().modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return rdma_error(STEPCCL_ERROR_TRANSPORT_FAILED, STEPCCL_PHASE_CONNECT, "ibv_modify_qp to INIT: " + errno_text(error));
  return {};
}

Status to_ready(const OpenDevice& device, ibv_qp* qp, const ConnectionInfo& own, const QueuePairEnd& own_end, const ConnectionInfo& peer,
                const QueuePairEnd& peer_end, const RdmaOptions& options) {
  const auto failed = [&](const char* state, int error) {
    return rdma_error(STEPCCL_ERROR_TRANSPORT_FAILED, STEPCCL_PHASE_CONNECT,
                      std::string("ibv_modify_qp to ") + state + " with GID index " + std::to_string(device.device().gid_index) + " of " +
                          device.device().name + ": " + errno_text(error));
  };
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.mtu));
  attributes.dest_qp_num = peer_end.number;
  attributes.rq_psn = peer_end.packet_number;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.port_num = device.device().port;
  if (device.device().ethernet || peer.lid == 0) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device.device().gid_index);
    attributes.ah_attr.grh.hop_limit = 255;
    attributes.ah_attr.grh.traffic_class = options.traffic_class;
  }
  attributes.ah_attr.dlid = peer.lid;
  attributes.ah_attr.sl = options.service_level;
  int error = device.api().modify_qp(qp, &attributes,
                                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                         IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return failed("RTR", error);

  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = own_end.packet_number;
  attributes.timeout = options.timeout;
  attributes.retry_cnt = options.retry_count;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  error = device.api().modify_qp(qp, &attributes,
                                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return failed("RTS", error);
  return {};
}

}  // namespace stepccl::transport
