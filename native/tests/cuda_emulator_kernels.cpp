// SPDX-License-Identifier: Apache-2.0
// The engine's kernels for the emulated driver: from the same arguments the same results, with messages between ranks in
// queues of this process where the real ones have flags and staging in the lanes.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/reduce.hpp"
#include "cuda/layout.hpp"
#include "cuda_emulator.hpp"

namespace emulator {
namespace {

using namespace stepccl::cuda;
using Bytes = std::vector<unsigned char>;

// By lane, sender, receiver, and whether it is data or a meeting.
std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool>, std::deque<Bytes>> boxes;
std::mutex boxes_mutex;

void send(const Common& common, std::uint32_t to, bool data, Bytes bytes) {
  const std::lock_guard lock(boxes_mutex);
  boxes[{common.lane, common.me, to, data}].push_back(std::move(bytes));
}

// As a kernel's patience: until it has come, the host says stop, or the timeout.
bool patient(const Common& common, std::uint32_t peer, const std::function<bool()>& there) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(common.timeout_ns);
  while (!there()) {
    if (__atomic_load_n(&common.status->abort, __ATOMIC_ACQUIRE) != 0) return false;
    if (std::chrono::steady_clock::now() >= end) {
      common.status->lane = common.lane;
      __atomic_store_n(&common.status->timed_out, peer + 1, __ATOMIC_RELEASE);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

std::optional<Bytes> take(const Common& common, std::uint32_t from, bool data) {
  std::optional<Bytes> got;
  patient(common, from, [&] {
    const std::lock_guard lock(boxes_mutex);
    auto& box = boxes[{common.lane, from, common.me, data}];
    if (box.empty()) return false;
    got = std::move(box.front());
    box.pop_front();
    return true;
  });
  return got;
}

bool meet(const Common& common) {
  for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
    if (peer != common.me) send(common, peer, false, {});
  }
  for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
    if (peer != common.me && !take(common, peer, false)) return false;
  }
  return true;
}

// The reduction of all ranks' parts, in their order.
Bytes combine(const Common& common, const std::vector<const unsigned char*>& parts, std::uint64_t bytes) {
  const auto type = static_cast<stepccl_datatype_t>(common.arithmetic / 8);
  const auto op = static_cast<stepccl_redop_t>(common.arithmetic % 8);
  const std::uint64_t count = bytes / stepccl_datatype_bytes(type);
  Bytes sum(parts[0], parts[0] + bytes);
  for (std::size_t i = 1; i < parts.size(); ++i) stepccl::reduce(sum.data(), sum.data(), parts[i], count, type, op);
  if (common.average != 0) stepccl::divide(sum.data(), count, type, common.average);
  return sum;
}

void finish(const Common& common) {
  __atomic_fetch_add(&common.receipt->sm_ns, 1000ull, __ATOMIC_RELAXED);
  if (common.last != 0) __atomic_fetch_add(&common.receipt->runs, 1ull, __ATOMIC_RELAXED);
}

void exchange(const ExchangeArgs& args) {
  const Common& common = args.common;
  for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
    if (peer != common.me && args.blocks[peer] != 0) send(common, peer, true, args.send_bytes[peer] == 0 ? Bytes() : Bytes(args.send[peer], args.send[peer] + args.send_bytes[peer]));
  }
  std::vector<Bytes> came(common.ranks);
  for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
    if (peer == common.me || args.blocks[peer] == 0) continue;
    auto message = take(common, peer, true);
    if (!message) return;
    came[peer] = std::move(*message);
  }
  if (args.reduce == 0) {
    if (args.own_out != nullptr && args.own_out != args.own && args.own_bytes != 0) std::memmove(args.own_out, args.own, args.own_bytes);
    for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
      if (!came[peer].empty()) std::memcpy(args.recv[peer], came[peer].data(), std::min<std::size_t>(came[peer].size(), args.recv_bytes[peer]));
    }
  } else if (args.own_out != nullptr && args.own_bytes != 0) {
    std::vector<const unsigned char*> parts;
    for (std::uint32_t rank = 0; rank < common.ranks; ++rank) parts.push_back(rank == common.me ? args.own : came[rank].data());
    const Bytes sum = combine(common, parts, args.own_bytes);
    std::memcpy(args.own_out, sum.data(), sum.size());
  }
  finish(common);
}

void direct(const DirectArgs& args) {
  if (args.barrier != 0 && !meet(args.common)) return;
  if (args.bytes != 0) {
    const Bytes sum = combine(args.common, {args.source, args.source + args.common.ranks}, args.bytes);
    for (std::uint32_t target = 0; target < args.targets; ++target) std::memcpy(args.target[target], sum.data(), sum.size());
  }
  if (args.barrier != 0 && !meet(args.common)) return;
  finish(args.common);
}

void spread(const DirectArgs& args) {
  if (!meet(args.common)) return;
  for (std::uint32_t target = 0; target < args.targets; ++target) std::memcpy(args.target[target], args.source[target], args.bytes);
  if (!meet(args.common)) return;
  finish(args.common);
}

std::uint32_t* word(unsigned char* lane, std::size_t offset) { return reinterpret_cast<std::uint32_t*>(lane + offset); }

void pipeline(const PipelineArgs& args) {
  const Common& common = args.common;
  const std::uint64_t chunks = (args.bytes + args.chunk - 1) / args.chunk;
  for (std::uint32_t k = 0; k < chunks; ++k) {
    const std::uint32_t slot = k % args.slots;
    for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
      if (peer == common.me) continue;
      const std::uint32_t* came = word(common.own_lane, LaneLayout::chunk_came(slot, peer));
      if (!patient(common, peer, [&] { return __atomic_load_n(came, __ATOMIC_ACQUIRE) >= k + 1; })) return;
    }
    const std::uint64_t begin = k * args.chunk;
    std::vector<const unsigned char*> parts;
    for (std::uint32_t rank = 0; rank < common.ranks; ++rank) parts.push_back(rank == common.me ? args.own + begin : args.place[rank] + slot * args.place_stride);
    const Bytes sum = combine(common, parts, std::min(args.chunk, args.bytes - begin));
    std::memcpy(args.out + begin, sum.data(), sum.size());
    for (std::uint32_t target = 0; target < args.targets; ++target) std::memcpy(args.target[target] + begin, sum.data(), sum.size());
    for (std::uint32_t peer = 0; peer < common.ranks; ++peer) {
      if (peer == common.me) continue;
      if (k + 1 == chunks) {
        for (std::uint32_t every = 0; every < kChunkSlots; ++every) *word(common.own_lane, LaneLayout::chunk_came(every, peer)) = 0;
      }
      if (k + args.slots < chunks) __atomic_store_n(word(common.peer_lane[peer], LaneLayout::chunk_free(slot, common.me)), 1u, __ATOMIC_RELEASE);
    }
    __atomic_store_n(word(common.own_lane, LaneLayout::chunk_done()), k + 1, __ATOMIC_RELEASE);
  }
  finish(common);
}

void enter(const GateArgs& args) {
  for (;;) {
    __atomic_fetch_add(args.active, 1u, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(args.gate, __ATOMIC_SEQ_CST) == 0) return;
    __atomic_fetch_sub(args.active, 1u, __ATOMIC_SEQ_CST);
    wait_until([&] { return __atomic_load_n(args.gate, __ATOMIC_SEQ_CST) == 0 || __atomic_load_n(&args.status->abort, __ATOMIC_SEQ_CST) != 0; });
    if (__atomic_load_n(&args.status->abort, __ATOMIC_SEQ_CST) != 0) return;
  }
}
void leave(const GateArgs& args) { __atomic_fetch_sub(args.active, 1u, __ATOMIC_SEQ_CST); }

template <class Args>
std::function<void()> bind(void (*body)(const Args&), const void* arguments) {
  return [body, args = *static_cast<const Args*>(arguments)] { body(args); };
}

}  // namespace

void forget_messages() {
  const std::lock_guard lock(boxes_mutex);
  boxes.clear();
}

std::function<void()> kernel(const std::string& name, const void* arguments) {
  const auto is = [&](const char* kind) { return name.starts_with(std::string("stepccl_") + kind); };
  if (is("flagged") || is("packed") || is("staged")) return bind(exchange, arguments);
  if (is("direct") || is("bulk")) return bind(direct, arguments);
  if (is("spread")) return bind(spread, arguments);
  if (is("pipeline")) return bind(pipeline, arguments);
  if (is("gate_enter")) return bind(enter, arguments);
  if (is("gate_leave")) return bind(leave, arguments);
  return {};
}

}  // namespace emulator
