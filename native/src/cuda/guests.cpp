// SPDX-License-Identifier: Apache-2.0
// Buffers of the application's own allocator, for one call: where all ranks' are in device memory that CUDA IPC can
// share, they serve as windows, without a copy and without registration.
//
// A rank offers the allocations that its buffers lie in (a caching allocator's segments) to its peers, which open each
// once. What has been freed is noticed by the driver's number of the allocation, withdrawn, and closed by the peers.
#include <algorithm>
#include <cstring>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr std::size_t kMostUnshareable = 1024;
constexpr std::uint64_t kCaptureLimitNs = 1'000'000'000;

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// What of the operation's buffers the peers read or write.
struct Shared {
  const unsigned char* send = nullptr;
  std::uint64_t send_bytes = 0;
  const unsigned char* recv = nullptr;
  std::uint64_t recv_bytes = 0;
};

Shared shared_of(const Operation& operation, std::uint32_t world) {
  const std::uint64_t bytes = operation.bytes();
  switch (operation.kind) {
    case STEPCCL_ALL_REDUCE: return {operation.send, bytes, operation.recv, bytes};
    case STEPCCL_REDUCE_SCATTER: return {operation.send, bytes * world, nullptr, 0};
    case STEPCCL_REDUCE:
    case STEPCCL_GATHER: return {operation.send, bytes, nullptr, 0};
    case STEPCCL_ALL_GATHER:
    case STEPCCL_ALL_TO_ALL: return {nullptr, 0, operation.recv, bytes * world};
    default: return {nullptr, 0, operation.recv, bytes};
  }
}

bool same_place(const BufferRef& a, const BufferRef& b) {
  return a.kind == b.kind && (a.kind != BufferRef::kWindow || (a.window == b.window && a.offset == b.offset));
}

}  // namespace

// Where `pointer` is, for the peers; kNone where they can't see it. fresh becomes true where one of the readers, bit by rank,
// has yet to open it.
BufferRef Engine::locate(const void* pointer, std::uint64_t bytes, std::uint32_t readers, bool& fresh) {
  BufferRef ref;
  if (const Window* window = window_of(pointer, bytes)) {
    ref.kind = BufferRef::kWindow;
    ref.window = window->id;
    ref.offset = reinterpret_cast<CUdeviceptr>(pointer) - window->base[rank_];
    return ref;
  }
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  unsigned long long id = 0;
  CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  void* value = &id;
  if (driver_->cuPointerGetAttributes(1, &wanted, &value, address) != CUDA_SUCCESS || id == 0 || unshareable_.contains(id)) return ref;
  auto known = own_segments_.find(id);
  if (known == own_segments_.end()) {
    CUdeviceptr base = 0;
    std::size_t range = 0;
    CUipcMemHandle handle{};
    Segment segment;
    static_assert(sizeof handle == sizeof segment.handle);
    if (driver_->cuMemGetAddressRange_v2(&base, &range, address) != CUDA_SUCCESS || driver_->cuIpcGetMemHandle(&handle, base) != CUDA_SUCCESS) {
      if (unshareable_.size() >= kMostUnshareable) unshareable_.clear();
      unshareable_.insert(id);  // another kind of memory, such as expandable segments
      return ref;
    }
    segment.bytes = range;
    std::memcpy(segment.handle, &handle, sizeof handle);
    auto index = meeting_.offer(segment);
    if (!index) {
      tend_own_segments();
      index = meeting_.offer(segment);
    }
    if (!index) return ref;
    known = own_segments_.emplace(id, OwnSegment{base, range, *index}).first;
  }
  const OwnSegment& segment = known->second;
  if (address < segment.base || bytes > segment.bytes - (address - segment.base)) return ref;
  fresh = fresh || !meeting_.opened_by(segment.index, readers);
  ref.kind = BufferRef::kSegment;
  ref.segment = segment.index;
  ref.offset = address - segment.base;
  return ref;
}

// The peer's allocation in this process; 0 where it can't be opened.
CUdeviceptr Engine::open_segment(std::uint32_t peer, std::uint32_t index) {
  const Segment segment = meeting_.segment(peer, index);
  OpenedSegment& mine = opened_segments_[{peer, index}];
  if (segment.generation != 0 && mine.generation == segment.generation) return mine.base;
  if (mine.base != 0) driver_->cuIpcCloseMemHandle(mine.base);
  mine = {};
  if (segment.generation == 0) return 0;
  CUipcMemHandle handle;
  std::memcpy(&handle, segment.handle, sizeof handle);
  if (driver_->cuIpcOpenMemHandle_v2(&mine.base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS) {
    mine = {};
    return 0;
  }
  mine.generation = segment.generation;
  meeting_.opened(peer, index);
  return mine.base;
}

CUdeviceptr Engine::peer_address(const BufferRef& ref, std::uint32_t peer) {
  if (ref.kind == BufferRef::kSegment) {
    const CUdeviceptr base = open_segment(peer, ref.segment);
    return base == 0 ? 0 : base + ref.offset;
  }
  for (const auto& [base, window] : windows_) {
    if (window.id == ref.window) return window.base[peer] + ref.offset;
  }
  return 0;
}

// Makes this call's buffers windows where all ranks can; otherwise leaves everything as it is.
Status Engine::invite_guests(const Operation& operation, bool capturing) {
  if (world_ < 2 || config_.thresholds.plain_wait_us == 0 || operation.kind == STEPCCL_SEND_RECV || operation.kind == STEPCCL_BARRIER || !stream_memory_ops_) return {};
  Post mine;
  bool fresh = false;
  const std::uint32_t everyone = (1u << world_) - 1u;
  Shared shared;
  if (operation.varying) {
    // The sizes are each rank's own: all meet at every such call, and go by the largest message.
    const unsigned char* low = nullptr;
    const unsigned char* high = nullptr;
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      mine.bytes = std::max(mine.bytes, operation.send_bytes[peer]);
      if (operation.recv_bytes[peer] == 0) continue;
      low = low == nullptr ? operation.recv_from[peer] : std::min<const unsigned char*>(low, operation.recv_from[peer]);
      high = std::max<const unsigned char*>(high, operation.recv_from[peer] + operation.recv_bytes[peer]);
    }
    for (std::uint32_t peer = 0; peer < world_ && low != nullptr; ++peer) {
      if (operation.recv_bytes[peer] != 0) mine.recv_at[peer] = static_cast<std::uint64_t>(operation.recv_from[peer] - low);
    }
    if (low != nullptr) mine.recv = locate(low, static_cast<std::uint64_t>(high - low), everyone, fresh);
    mine.usable = low == nullptr || mine.recv.kind != BufferRef::kNone;
  } else {
    mine.bytes = operation.message_bytes(world_);
    const Thresholds& limits = config_.thresholds;
    if (operation.load_bytes(world_, limits.one_shot_bytes) <= Thresholds::per_peer(operation.reduces() ? limits.staged_reduce_bytes : limits.staged_copy_bytes, world_)) return {};
    shared = shared_of(operation, world_);
    const bool send_known = shared.send == nullptr || window_of(shared.send, shared.send_bytes) != nullptr;
    const bool recv_known = shared.recv == nullptr || window_of(shared.recv, shared.recv_bytes) != nullptr;
    if (send_known && recv_known) return {};
    mine.usable = !operation.reduces() || (operation.kind == STEPCCL_REDUCE_SCATTER ? operation.bytes() % 16 == 0 && aligned(operation.recv) && aligned(operation.send)
                                                                                     : aligned(operation.send) && aligned(operation.recv));
    if (shared.send != nullptr) mine.send = locate(shared.send, shared.send_bytes, everyone, fresh);
    if (shared.recv != nullptr) mine.recv = locate(shared.recv, shared.recv_bytes, everyone, fresh);
    if ((shared.send != nullptr && mine.send.kind == BufferRef::kNone) || (shared.recv != nullptr && mine.recv.kind == BufferRef::kNone)) mine.usable = 0;
  }
  mine.fresh = fresh ? 1 : 0;
  if (guests_off_) mine.usable = 0;  // but come, or the others would wait
  mine.signature = (static_cast<std::uint64_t>(operation.kind) << 8 | operation.varying) + (operation.varying ? 0 : operation.count * 0x9e3779b97f4a7c15ull);

  const auto decide = [&](const std::vector<Post>& posts) {
    std::uint64_t largest = 0;
    for (const Post& post : posts) {
      if (post.usable == 0 || post.signature != posts[0].signature) return false;
      if (!operation.varying && (!same_place(post.send, posts[0].send) || !same_place(post.recv, posts[0].recv))) return false;
      largest = std::max(largest, post.bytes);
    }
    return !operation.varying || largest > Thresholds::per_peer(config_.thresholds.staged_copy_bytes, world_);
  };
  const auto prepare = [&](const std::vector<Post>& posts) {
    bool well = true;
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      for (const BufferRef* ref : {&posts[peer].send, &posts[peer].recv}) {
        if (peer != rank_ && ref->kind == BufferRef::kSegment) well = open_segment(peer, ref->segment) != 0 && well;
      }
    }
    guests_off_ = guests_off_ || !well;  // devices that can't: not again at every call
    return well;
  };
  // What is captured runs many times: worth a longer wait.
  const std::uint64_t limit_ns = std::max(std::uint64_t{config_.thresholds.plain_wait_us} * 1000, capturing ? kCaptureLimitNs : 0);
  const auto posts = meeting_.meet(mine, limit_ns, decide, prepare);
  if (!posts) return {};
  const auto address_of = [&](const BufferRef& ref, std::uint32_t peer) -> Expected<CUdeviceptr> {
    const CUdeviceptr address = peer_address(ref, peer);
    if (address == 0) return make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_TRANSFER, "a buffer that all ranks agreed on is not there", static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
    return address;
  };
  if (operation.varying) {
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      peer_to_[peer] = 0;
      if (peer == rank_ || operation.send_bytes[peer] == 0) continue;
      auto address = address_of((*posts)[peer].recv, peer);
      if (!address.ok()) return address.take_error();
      peer_to_[peer] = address.value() + (*posts)[peer].recv_at[rank_];
    }
    agreed_ = everyone & ~(1u << rank_);
    return {};
  }
  const auto invite = [&](const unsigned char* pointer, std::uint64_t bytes, BufferRef Post::*ref) -> Status {
    if (pointer == nullptr || (mine.*ref).kind != BufferRef::kSegment) return {};
    Window& guest = guests_[guest_count_];
    guest = {};
    guest.bytes = bytes;
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      guest.base[peer] = reinterpret_cast<CUdeviceptr>(pointer);
      if (peer == rank_) continue;
      auto address = address_of((*posts)[peer].*ref, peer);
      if (!address.ok()) return address.take_error();
      guest.base[peer] = address.value();
    }
    ++guest_count_;
    return {};
  };
  if (Status status = invite(shared.send, shared.send_bytes, &Post::send); !status.ok()) return status;
  return invite(shared.recv, shared.recv_bytes, &Post::recv);
}

void Engine::tend_own_segments() {
  for (auto segment = own_segments_.begin(); segment != own_segments_.end();) {
    unsigned long long id = 0;
    CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void* value = &id;
    const bool lives = driver_->cuPointerGetAttributes(1, &wanted, &value, segment->second.base) == CUDA_SUCCESS && id == segment->first;
    if (lives) {
      ++segment;
      continue;
    }
    meeting_.withdraw(segment->second.index);
    segment = own_segments_.erase(segment);
  }
}

// Now and then, between calls: lets go of what its owner has freed.
void Engine::tend_segments() {
  tend_own_segments();
  if (lanes_[0].used && driver_->cuEventQuery(lanes_[0].done) != CUDA_SUCCESS) return;
  for (auto segment = opened_segments_.begin(); segment != opened_segments_.end();) {
    if (segment->second.base != 0 && meeting_.segment(segment->first.first, segment->first.second).generation == segment->second.generation) {
      ++segment;
      continue;
    }
    if (segment->second.base != 0) driver_->cuIpcCloseMemHandle(segment->second.base);
    segment = opened_segments_.erase(segment);
  }
}

}  // namespace stepccl::cuda
