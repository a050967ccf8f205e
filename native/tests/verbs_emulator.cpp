// SPDX-License-Identifier: Apache-2.0
#include "verbs_emulator.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace stepccl::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMtuBytes = 1024;
constexpr auto kRetryAfter = std::chrono::microseconds(300);
constexpr auto kNotReadyAfter = std::chrono::microseconds(100);

VerbsEmulator::Device* current = nullptr;  // the verbs carry no pointer of ours

struct Channel : ibv_comp_channel {
  std::deque<ibv_cq*> events;
};
struct Queue : ibv_cq {
  std::deque<ibv_wc> completions;
  bool armed = false;
};
struct Request {
  std::uint64_t id = 0;
  ibv_sge part{};
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t immediate = 0;
};
struct Pair : ibv_qp {
  ibv_qp_attr attributes{};
  std::deque<std::uint64_t> receives;  // wr_ids
  std::deque<Request> sends;
  std::uint32_t tries = 0;
  Clock::time_point not_before{};
  bool carried = false;
};

}  // namespace

struct VerbsEmulator::Device {
  explicit Device(const VerbsFaults& given) : faults(given), random(given.seed) {
    char name[] = "/tmp/stepccl-verbs-XXXXXX";
    sysfs = mkdtemp(name);
    const auto put = [&](const std::string& file, const std::string& text) {
      const std::filesystem::path path = sysfs + "/emu0/ports/1/" + file;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text << "\n";
    };
    put("link_layer", "Ethernet");
    put("state", "4: ACTIVE");
    put("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001");
    put("gid_attrs/types/0", "IB/RoCE v1");
    put("gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001");
    put("gid_attrs/types/1", "RoCE v2");
  }
  ~Device() { std::filesystem::remove_all(sysfs); }

  void run();
  bool deliver(Pair& pair);
  void finish(Pair& pair, ibv_wc_status status);
  void fail(Pair& pair, ibv_wc_status status);
  void complete(ibv_cq* queue, const ibv_wc& completion);
  const ibv_mr* find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes) const;
  [[nodiscard]] double chance() { return std::uniform_real_distribution<>(0, 1)(random); }

  VerbsFaults faults;
  std::mutex mutex;
  std::condition_variable changed;
  std::mt19937 random;
  std::string sysfs;
  transport::VerbsApi api;
  std::map<std::uint32_t, Pair*> pairs;
  std::map<std::uint32_t, std::unique_ptr<ibv_mr>> regions;
  std::uint32_t next_number = 17;
  std::size_t alive = 0;
  Counters counters;
  bool stop = false;
  std::thread wire;
};

using Device = VerbsEmulator::Device;

void Device::complete(ibv_cq* queue, const ibv_wc& completion) {
  auto* own = static_cast<Queue*>(queue);
  own->completions.push_back(completion);
  if (!own->armed) return;
  own->armed = false;
  static_cast<Channel*>(own->channel)->events.push_back(own);
  const std::uint64_t one = 1;
  (void)!::write(own->channel->fd, &one, sizeof one);
}

void Device::finish(Pair& pair, ibv_wc_status status) {
  ibv_wc completion{};
  completion.wr_id = pair.sends.front().id;
  completion.status = status;
  completion.opcode = IBV_WC_RDMA_WRITE;
  completion.qp_num = pair.qp_num;
  pair.sends.pop_front();
  pair.tries = 0;
  complete(pair.send_cq, completion);
}

// The first request of a queue pair has failed: it and all behind it are flushed, and the pair is dead.
void Device::fail(Pair& pair, ibv_wc_status status) {
  pair.attributes.qp_state = IBV_QPS_ERR;
  while (!pair.sends.empty()) {
    finish(pair, status);
    status = IBV_WC_WR_FLUSH_ERR;
  }
}

const ibv_mr* Device::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes) const {
  const auto found = regions.find(key);
  if (found == regions.end()) return nullptr;
  const auto begin = reinterpret_cast<std::uint64_t>(found->second->addr);
  return address >= begin && address + bytes <= begin + found->second->length ? found->second.get() : nullptr;
}

// One try of the first request of a queue pair. True when it left the queue.
bool Device::deliver(Pair& pair) {
  const Request request = pair.sends.front();
  const bool dead = faults.port_dies_after != 0 && counters.delivered >= faults.port_dies_after;
  const auto peer = pairs.find(pair.attributes.dest_qp_num);
  const bool heard = !dead && peer != pairs.end() && peer->second->attributes.qp_state >= IBV_QPS_RTR && peer->second->attributes.qp_state != IBV_QPS_ERR;
  if (!heard || chance() < faults.loss) {
    ++counters.lost;
    if (pair.tries++ >= pair.attributes.retry_cnt + (dead || !heard ? 0u : 1000u)) return fail(pair, IBV_WC_RETRY_EXC_ERR), true;
    pair.not_before = Clock::now() + kRetryAfter;
    return false;
  }
  Pair& target = *peer->second;
  if (target.receives.empty() || chance() < faults.not_ready) {
    ++(target.receives.empty() ? counters.no_receive : counters.not_ready);
    pair.not_before = Clock::now() + kNotReadyAfter;
    return false;
  }
  if (find(request.part.lkey, request.part.addr, request.part.length) == nullptr) return ++counters.refused, fail(pair, IBV_WC_LOC_PROT_ERR), true;
  if (find(request.key, request.address, request.part.length) == nullptr) return ++counters.refused, fail(pair, IBV_WC_REM_ACCESS_ERR), true;

  const auto* from = reinterpret_cast<const std::byte*>(request.part.addr);
  auto* to = reinterpret_cast<std::byte*>(request.address);
  std::vector<std::size_t> packets((request.part.length + kMtuBytes - 1) / kMtuBytes);
  std::iota(packets.begin(), packets.end(), 0u);
  if (faults.reorder) std::shuffle(packets.begin(), packets.end(), random);
  for (const std::size_t packet : packets) {
    const std::size_t at = packet * kMtuBytes;
    std::memcpy(to + at, from + at, std::min<std::size_t>(kMtuBytes, request.part.length - at));
  }
  ++counters.delivered;
  if (!pair.carried) pair.carried = true, ++counters.queue_pairs;
  ibv_wc arrived{};
  arrived.wr_id = target.receives.front();
  arrived.status = IBV_WC_SUCCESS;
  arrived.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  arrived.imm_data = request.immediate;
  arrived.byte_len = request.part.length;
  arrived.qp_num = target.qp_num;
  target.receives.pop_front();
  complete(target.recv_cq, arrived);
  finish(pair, IBV_WC_SUCCESS);
  return true;
}

void Device::run() {
  std::unique_lock lock(mutex);
  while (!stop) {
    std::vector<Pair*> busy;
    for (const auto& [number, pair] : pairs) {
      if (!pair->sends.empty()) busy.push_back(pair);
    }
    if (faults.reorder) std::shuffle(busy.begin(), busy.end(), random);
    bool moved = false;
    for (Pair* pair : busy) {
      if (pair->not_before <= Clock::now() && deliver(*pair)) {
        moved = true;
        if (faults.reorder) break;  // another one may go next
      }
    }
    if (!moved) changed.wait_for(lock, busy.empty() ? std::chrono::microseconds(50'000) : std::chrono::microseconds(100));
  }
}

namespace {

struct Context : ibv_context {
  ibv_device owner{};
};

int post_send(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) {
  auto* pair = static_cast<Pair*>(qp);
  const std::lock_guard lock(current->mutex);
  for (; work != nullptr; work = work->next) {
    *bad = work;
    if (pair->attributes.qp_state != IBV_QPS_RTS && pair->attributes.qp_state != IBV_QPS_ERR) return EINVAL;
    if (pair->sends.size() >= pair->attributes.cap.max_send_wr) return ENOMEM;
    if (work->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || work->num_sge != 1) return EINVAL;
    pair->sends.push_back({work->wr_id, work->sg_list[0], work->wr.rdma.remote_addr, work->wr.rdma.rkey, work->imm_data});
    if (pair->attributes.qp_state == IBV_QPS_ERR) current->fail(*pair, IBV_WC_WR_FLUSH_ERR);
  }
  current->changed.notify_all();
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr** bad) {
  auto* pair = static_cast<Pair*>(qp);
  const std::lock_guard lock(current->mutex);
  *bad = work;
  if (pair->receives.size() >= pair->attributes.cap.max_recv_wr) return ENOMEM;
  pair->receives.push_back(work->wr_id);
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* out) {
  auto* queue = static_cast<Queue*>(cq);
  const std::lock_guard lock(current->mutex);
  int count = 0;
  for (; count < most && !queue->completions.empty(); ++count) {
    out[count] = queue->completions.front();
    queue->completions.pop_front();
  }
  return count;
}

int req_notify_cq(ibv_cq* cq, int) {
  const std::lock_guard lock(current->mutex);
  static_cast<Queue*>(cq)->armed = true;
  return 0;
}

template <class Object>
Object* made(Object* object) {
  const std::lock_guard lock(current->mutex);
  ++current->alive;
  return object;
}
template <class Object>
int destroyed(Object* object) {
  const std::lock_guard lock(current->mutex);
  --current->alive;
  delete object;
  return 0;
}

transport::VerbsApi make_api() {
  transport::VerbsApi api;
  static ibv_device device{};
  api.get_device_list = [](int* count) -> ibv_device** {
    *count = 1;
    return new ibv_device* [2] { &device, nullptr };
  };
  api.free_device_list = [](ibv_device** list) { delete[] list; };
  api.get_device_name = [](ibv_device*) -> const char* { return "emu0"; };
  api.open_device = [](ibv_device*) -> ibv_context* {
    auto* context = new Context{};
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    return made(context);
  };
  api.close_device = [](ibv_context* context) { return destroyed(static_cast<Context*>(context)); };
  api.query_port = [](ibv_context*, std::uint8_t, _compat_ibv_port_attr* out) {
    auto* port = reinterpret_cast<ibv_port_attr*>(out);
    *port = {};
    port->state = IBV_PORT_ACTIVE;
    port->active_mtu = IBV_MTU_1024;
    port->max_msg_sz = 1u << 30;
    return 0;
  };
  api.alloc_pd = [](ibv_context* context) -> ibv_pd* { return made(new ibv_pd{context, 0}); };
  api.dealloc_pd = [](ibv_pd* pd) { return destroyed(pd); };
  api.reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int) -> ibv_mr* {
    const std::lock_guard lock(current->mutex);
    const std::uint32_t key = current->next_number++;
    auto& region = current->regions[key];
    region = std::make_unique<ibv_mr>(ibv_mr{pd->context, pd, address, bytes, key, key, key});
    ++current->alive;
    return region.get();
  };
  api.dereg_mr = [](ibv_mr* mr) {
    const std::lock_guard lock(current->mutex);
    --current->alive;
    current->regions.erase(mr->rkey);
    return 0;
  };
  api.create_comp_channel = [](ibv_context* context) -> ibv_comp_channel* {
    auto* channel = new Channel{};
    channel->context = context;
    channel->fd = ::eventfd(0, EFD_CLOEXEC);
    return made(channel);
  };
  api.destroy_comp_channel = [](ibv_comp_channel* channel) {
    ::close(channel->fd);
    return destroyed(static_cast<Channel*>(channel));
  };
  api.create_cq = [](ibv_context* context, int, void*, ibv_comp_channel* channel, int) -> ibv_cq* {
    auto* queue = new Queue{};
    queue->context = context;
    queue->channel = channel;
    return made(queue);
  };
  api.destroy_cq = [](ibv_cq* cq) { return destroyed(static_cast<Queue*>(cq)); };
  api.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void** tag) {
    const std::lock_guard lock(current->mutex);
    auto* own = static_cast<Channel*>(channel);
    std::uint64_t count = 0;
    (void)!::read(own->fd, &count, sizeof count);
    if (own->events.empty()) return -1;
    *cq = own->events.front();
    *tag = nullptr;
    own->events.pop_front();
    return 0;
  };
  api.ack_cq_events = [](ibv_cq*, unsigned) {};
  api.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* attributes) -> ibv_qp* {
    const std::lock_guard lock(current->mutex);
    auto* pair = new Pair{};
    pair->context = pd->context;
    pair->send_cq = attributes->send_cq;
    pair->recv_cq = attributes->recv_cq;
    pair->qp_num = current->next_number++;
    pair->attributes.cap = attributes->cap;
    current->pairs[pair->qp_num] = pair;
    ++current->alive;
    return pair;
  };
  api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    const std::lock_guard lock(current->mutex);
    auto* pair = static_cast<Pair*>(qp);
    if ((mask & IBV_QP_DEST_QPN) != 0) pair->attributes.dest_qp_num = attributes->dest_qp_num;
    if ((mask & IBV_QP_RETRY_CNT) != 0) pair->attributes.retry_cnt = attributes->retry_cnt;
    if ((mask & IBV_QP_AV) != 0 && attributes->ah_attr.grh.sgid_index != 1) return EINVAL;  // the RoCE v2 GID is number 1
    pair->attributes.qp_state = attributes->qp_state;
    return 0;
  };
  api.destroy_qp = [](ibv_qp* qp) {
    const std::lock_guard lock(current->mutex);
    current->pairs.erase(qp->qp_num);
    --current->alive;
    delete static_cast<Pair*>(qp);
    return 0;
  };
  api.wc_status_str = [](ibv_wc_status status) -> const char* {
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "error";
  };
  return api;
}

}  // namespace

VerbsEmulator::VerbsEmulator(const VerbsFaults& faults) : device_(std::make_unique<Device>(faults)) {
  current = device_.get();
  device_->api = make_api();
  device_->api.sysfs = device_->sysfs.c_str();
  transport::use_verbs(&device_->api);
  device_->wire = std::thread([this] { device_->run(); });
}

VerbsEmulator::~VerbsEmulator() {
  transport::use_verbs(nullptr);
  {
    const std::lock_guard lock(device_->mutex);
    device_->stop = true;
  }
  device_->changed.notify_all();
  device_->wire.join();
  current = nullptr;
}

VerbsEmulator::Counters VerbsEmulator::counters() {
  const std::lock_guard lock(device_->mutex);
  return device_->counters;
}

std::size_t VerbsEmulator::alive() {
  const std::lock_guard lock(device_->mutex);
  return device_->alive;
}

}  // namespace stepccl::testing
