// SPDX-License-Identifier: Apache-2.0
// From a call to queued work: checks, the way it goes, the lane it uses, order between streams.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "cuda/engine.hpp"
#include "cuda/lane_owners.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;
constexpr std::uint32_t kZeroedTickets = 64;
constexpr std::uint32_t kSpreadingBlocks = 8;  // fewer are slower than a copy engine

// An all_reduce in two steps sends shares; otherwise a message is what the operation says.
std::uint64_t packed_message(const Operation& operation, std::uint32_t world, std::uint64_t one_shot_bytes) {
  const std::uint64_t bytes = operation.message_bytes(world);
  return operation.kind == STEPCCL_ALL_REDUCE && world > 2 && bytes > one_shot_bytes ? share_of(bytes, 0, world).bytes : bytes;
}

Error device_error(std::string cause) { return make_error(STEPCCL_ERROR_WRONG_DEVICE, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

}  // namespace

Status Engine::check_pointers(const Operation& operation, bool& host_memory) const {
  host_memory = false;
  const auto check = [&](const char* name, const void* pointer, std::uint64_t bytes) -> Status {
    if (bytes == 0 || window_of(pointer, bytes) != nullptr) return {};
    unsigned type = 0;
    int ordinal = -1;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* values[] = {&type, &ordinal};
    STEPCCL_CU(*driver_, STEPCCL_PHASE_ARGUMENTS, cuPointerGetAttributes, 2, wanted, values, reinterpret_cast<CUdeviceptr>(pointer));
    if (type == CU_MEMORYTYPE_HOST) {
      if (page_bytes_ == 0) return device_error(std::string(name) + " is pinned host memory: turn paging on (stepccl_cuda_paging)");
      host_memory = true;
      return {};
    }
    if (type != CU_MEMORYTYPE_DEVICE) return device_error(std::string(name) + " is neither memory of a GPU nor pinned host memory");
    if (ordinal != config_.device) {
      return device_error(std::string(name) + " is memory of GPU " + std::to_string(ordinal) + ", this rank's is GPU " + std::to_string(config_.device));
    }
    return {};
  };
  if (operation.pairwise()) {
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      if (Status status = check("send", operation.send_to[peer], operation.send_bytes[peer]); !status.ok()) return status;
      if (Status status = check("recv", operation.recv_from[peer], operation.recv_bytes[peer]); !status.ok()) return status;
    }
    return {};
  }
  if (Status status = check("send", operation.send, operation.send_span(rank_, world_)); !status.ok()) return status;
  return check("recv", operation.recv, operation.recv_span(rank_, world_));
}

Engine::Ticket& Engine::new_ticket() {
  const std::uint64_t number = next_ticket_++;
  Ticket& ticket = tickets_[number % kTickets];
  ticket = {};
  ticket.number = number;
  return ticket;
}

Status Engine::run(Operation operation, CUstream stream, stepccl_cuda_call_t* call) {
  const std::lock_guard lock(mutex_);
  if (auto error = failure()) return *error;
  if (Status status = operation.check(rank_, world_); !status.ok()) return status;
  if (call != nullptr) {
    if (call->size < 2 * sizeof(std::uint32_t)) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "call.size is smaller than any version of the struct");
    if (call->path >= STEPCCL_CUDA_PATH_COUNT) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "call.path is outside its enumeration");
    if (call->size >= 12 && call->sm_budget > kMaxBlocks) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "call.sm_budget is above " + std::to_string(kMaxBlocks));
  }
  if (group_depth_ > 0) {
    bool host_memory = false;
    const ContextScope scope(*driver_, context_);
    if (Status status = check_pointers(operation, host_memory); !status.ok()) return status;
    group_.push_back({std::move(operation), stream});
    return {};
  }
  return execute(operation, stream, call);
}

Status Engine::group_start() {
  const std::lock_guard lock(mutex_);
  ++group_depth_;
  return {};
}

Status Engine::group_end() {
  const std::lock_guard lock(mutex_);
  if (group_depth_ == 0) return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_ARGUMENTS, "no group was started");
  if (--group_depth_ > 0) return {};
  std::vector<Held> held = std::move(group_);
  group_.clear();
  // Sends and receives become exchanges of one message each way per peer; a second message to the same peer begins the
  // next exchange, on every rank alike.
  std::vector<std::array<std::vector<Held*>, 2>> queues(world_);
  CUstream stream = nullptr;
  for (Held& item : held) {
    if (item.operation.kind != STEPCCL_SEND_RECV) {
      if (Status status = execute(item.operation, item.stream, nullptr); !status.ok()) return status;
      continue;
    }
    stream = item.stream;
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      if ((item.operation.involved >> peer & 1u) == 0) continue;
      const bool receives = item.operation.recv_from[peer] != nullptr;
      queues[peer][receives ? 1 : 0].push_back(&item);
    }
  }
  for (std::size_t round = 0;; ++round) {
    Operation merged;
    merged.kind = STEPCCL_SEND_RECV;
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      if (round < queues[peer][0].size()) {
        const Operation& sent = queues[peer][0][round]->operation;
        merged.send_to[peer] = sent.send_to[peer];
        merged.send_bytes[peer] = sent.send_bytes[peer];
        merged.involved |= 1u << peer;
      }
      if (round < queues[peer][1].size()) {
        const Operation& received = queues[peer][1][round]->operation;
        merged.recv_from[peer] = received.recv_from[peer];
        merged.recv_bytes[peer] = received.recv_bytes[peer];
        merged.involved |= 1u << peer;
      }
    }
    if (merged.involved == 0) break;
    if (Status status = merged.check(rank_, world_); !status.ok()) return status;
    if (Status status = execute(merged, stream, nullptr); !status.ok()) return status;
  }
  return {};
}

Expected<stepccl_cuda_path_t> Engine::choose_path(const Operation& operation, std::uint32_t wanted, const Flight& flight) const {
  const std::uint64_t bytes = operation.message_bytes(world_);
  const Thresholds& limits = config_.thresholds;
  const std::uint64_t flagged_limit = std::uint64_t{flight.budget} * kFlaggedBytes;
  // Pairs choose alike without knowing of each other's other pairs.
  const bool flagged_fits = !operation.pairwise() && bytes <= flagged_limit;
  const bool packed_fits = !operation.pairwise() && packed_message(operation, world_, limits.one_shot_bytes) <= layout_.packed_bytes(flight.budget);
  const bool empty = operation.kind == STEPCCL_BARRIER || (bytes == 0 && !operation.pairwise());
  switch (wanted) {
    case STEPCCL_CUDA_PATH_AUTO: break;
    case STEPCCL_CUDA_PATH_FLAGGED:
      if (flagged_fits) return STEPCCL_CUDA_PATH_FLAGGED;
      return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "the message is too large for flagged lines, or sent between two ranks only");
    case STEPCCL_CUDA_PATH_PACKED:
      if (packed_fits) return STEPCCL_CUDA_PATH_PACKED;
      return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "the message is too large for the lane's lines, or sent between two ranks only");
    case STEPCCL_CUDA_PATH_STAGED: return STEPCCL_CUDA_PATH_STAGED;
    case STEPCCL_CUDA_PATH_DIRECT:
    case STEPCCL_CUDA_PATH_BULK:
      if (direct_possible(operation, wanted == STEPCCL_CUDA_PATH_BULK) || (wanted == STEPCCL_CUDA_PATH_DIRECT && spread_possible(operation))) return static_cast<stepccl_cuda_path_t>(wanted);
      return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "this path wants buffers inside windows and 16-byte alignment, and for bulk copies a reduction and compute capability 9.0");
    case STEPCCL_CUDA_PATH_PIPELINE:
      if (pipeline_possible(operation)) return STEPCCL_CUDA_PATH_PIPELINE;
      return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "this path wants a reduction, 16-byte alignment, and for all_reduce a recv inside a window");
    case STEPCCL_CUDA_PATH_COPY_ENGINE:
      if (copies_possible(operation)) return STEPCCL_CUDA_PATH_COPY_ENGINE;
      return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "copy engines move whole blocks into memory that the sender can see, and don't add");
    default:
      if (!operation.pairwise() && operation.kind != STEPCCL_BARRIER) return STEPCCL_CUDA_PATH_PAGED;
      return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "this operation does not go page by page");
  }
  if (all_agreed(operation)) return STEPCCL_CUDA_PATH_COPY_ENGINE;
  const std::uint64_t load = operation.load_bytes(world_, limits.one_shot_bytes);
  const auto within = [&](std::uint64_t limit) { return load <= Thresholds::per_peer(limit, world_); };
  if (empty || (flagged_fits && within(limits.flagged_bytes))) return STEPCCL_CUDA_PATH_FLAGGED;
  if (packed_fits && within(limits.packed_bytes)) return STEPCCL_CUDA_PATH_PACKED;
  if (operation.reduces()) {
    const bool direct = !within(limits.staged_reduce_bytes) && direct_possible(operation, false);
    if (bytes > (!direct ? limits.pipeline_bytes : operation.kind == STEPCCL_ALL_REDUCE ? limits.push_bytes : ~0ull) && pipeline_possible(operation)) return STEPCCL_CUDA_PATH_PIPELINE;
    if (direct) return STEPCCL_CUDA_PATH_DIRECT;
  } else if (!within(limits.staged_copy_bytes) && copies_possible(operation)) {
    return operation.kind == STEPCCL_BROADCAST && within(limits.spread_bytes) && spread_possible(operation) && flight.budget >= kSpreadingBlocks ? STEPCCL_CUDA_PATH_DIRECT : STEPCCL_CUDA_PATH_COPY_ENGINE;
  }
  // No window: through windows of the engine's own, which a captured graph can't share with others.
  if (bytes > (page_bytes_ != 0 ? page_bytes_ : limits.paged_bytes) && !operation.pairwise() && !flight.capturing) return STEPCCL_CUDA_PATH_PAGED;
  return STEPCCL_CUDA_PATH_STAGED;
}

Status Engine::lane_for(cuuint64_t capture, CUgraph graph, Flight& flight) {
  for (std::uint32_t i = 1; i < lanes_.size(); ++i) {
    if (lanes_[i].capture != capture) continue;
    flight.lane_index = i;
    flight.lane = &lanes_[i];
    return {};
  }
  // A new graph: a lane that is free on every rank. The driver destroys graphs in its own time, so look again for a while.
  std::uint64_t free = 0;
  for (int attempt = 0; attempt < 20 && free == 0; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::uint64_t mine = owners_->free_lanes();
    auto all = agree("graph lane", std::as_bytes(std::span(&mine, 1)));
    if (!all.ok()) return all.take_error();
    free = mine;
    for (const Contribution& theirs : all.value()) {
      std::uint64_t mask = 0;
      std::memcpy(&mask, theirs.bytes.data(), std::min(sizeof mask, theirs.bytes.size()));
      free &= mask;
    }
  }
  flight.lane_index = static_cast<std::uint32_t>(lanes_.size() - 1);
  if (free != 0) {
    flight.lane_index = 0;
    while ((free >> flight.lane_index & 1u) == 0) ++flight.lane_index;
  } else {
    shared_lanes_.fetch_add(1);
  }
  flight.lane = &lanes_[flight.lane_index];
  flight.lane->capture = capture;
  flight.lane->used = false;
  struct Hold {
    std::shared_ptr<LaneOwners> owners;
    std::uint32_t lane;
  };
  auto hold = std::make_unique<Hold>(Hold{owners_, flight.lane_index});
  CUuserObject object = nullptr;
  STEPCCL_CU(*driver_, kPhase, cuUserObjectCreate, &object, hold.get(),
             [](void* data) {
               const std::unique_ptr<Hold> gone(static_cast<Hold*>(data));
               gone->owners->release(gone->lane);
             },
             1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  owners_->take(hold->lane);
  hold.release();
  if (const CUresult result = driver_->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE); result != CUDA_SUCCESS) {
    driver_->cuUserObjectRelease(object, 1);
    return driver_->error(result, "cuGraphRetainUserObject", kPhase);
  }
  if (!gated_.load()) ungated_graphs_.store(true);
  return {};
}

Status Engine::find_capture(Flight& flight, CUstream stream) const {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return {};
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  STEPCCL_CU(*driver_, kPhase, cuStreamGetCaptureInfo_v2, stream, &state, &flight.capture, &flight.graph, nullptr, nullptr);
  if (state == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_ARGUMENTS, "the stream's capture has been invalidated");
  flight.capturing = state == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return {};
}

Status Engine::enter(Flight& flight, CUstream stream, Operation& operation) {
  const bool legacy = stream == nullptr || stream == CU_STREAM_LEGACY;
  flight.stream = legacy ? null_stream_ : stream;
  if (!flight.capturing) {
    flight.lane = &lanes_[0];
  } else {
    if (operation.kind == STEPCCL_SEND_RECV && world_ > 2) {
      // Only the two ranks capture the call: a lane can't be agreed on by all, so they must have one already.
      bool known = false;
      for (const Lane& lane : lanes_) known = known || lane.capture == flight.capture;
      if (!known) return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "the first captured call of a graph must be one that all ranks make, such as a barrier");
    }
    if (!async_gd_.load()) return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "a graph needs stream-triggered transfers, which are switched off (STEPCCL_USE_ASYNC_GD=0, or the daemon's setting async_gd)");
    if (Status status = lane_for(flight.capture, flight.graph, flight); !status.ok()) return status;
  }
  if (!async_gd_.load()) STEPCCL_CU(*driver_, kPhase, cuStreamSynchronize, stream);
  if (legacy) {
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, null_event_, stream);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, null_stream_, null_event_, 0);
  }
  Lane& lane = *flight.lane;
  if (lane.used && lane.last_stream != flight.stream) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, lane.done, 0);

  Ticket& ticket = new_ticket();
  ticket.captured = flight.capturing;
  flight.ticket = &ticket;
  const std::uint64_t slot = ticket.number % kTickets;
  if (slot % kZeroedTickets == 0 || ticket.number == 1) {
    // A capture must not hold a memset that every replay would do again.
    STEPCCL_CU(*driver_, kPhase, cuMemsetD8Async, receipts_ + slot / kZeroedTickets * kZeroedTickets * sizeof(ReceiptSlot), 0, kZeroedTickets * sizeof(ReceiptSlot),
               flight.capturing ? watch_stream_ : flight.stream);
  }
  return {};
}

Status Engine::leave(Flight& flight) {
  Lane& lane = *flight.lane;
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, lane.done, flight.stream);
  lane.used = true;
  lane.last_stream = flight.stream;
  return {};
}

Status Engine::gate(Flight& flight, bool entering) {
  if (!flight.capturing || !gated_.load()) return {};
  GateArgs args{reinterpret_cast<std::uint32_t*>(words_), reinterpret_cast<std::uint32_t*>(words_ + 64), status_};
  void* parameters[] = {&args};
  STEPCCL_CU(*driver_, kPhase, cuLaunchKernel, entering ? kernels_.gate_enter() : kernels_.gate_leave(), 1, 1, 1, 1, 1, 1, 0, flight.stream, parameters, nullptr);
  return {};
}

Status Engine::dispatch(Flight& flight, Operation& operation, stepccl_cuda_path_t path, bool host_memory) {
  switch (path) {
    case STEPCCL_CUDA_PATH_FLAGGED: return launch_exchange(flight, operation, Kernels::kFlagged);
    case STEPCCL_CUDA_PATH_PACKED: return launch_exchange(flight, operation, Kernels::kPacked);
    case STEPCCL_CUDA_PATH_STAGED: return launch_mixed(flight, operation);
    case STEPCCL_CUDA_PATH_DIRECT: return operation.reduces() ? launch_direct(flight, operation, false) : launch_spread(flight, operation);
    case STEPCCL_CUDA_PATH_BULK: return launch_direct(flight, operation, true);
    case STEPCCL_CUDA_PATH_COPY_ENGINE: return launch_copies(flight, operation);
    case STEPCCL_CUDA_PATH_PIPELINE: return launch_pipeline(flight, operation);
    case STEPCCL_CUDA_PATH_PAGED: return run_paged(flight, operation, host_memory);
    default: return make_error(STEPCCL_ERROR_INTERNAL, kPhase, "no path was chosen");
  }
}

Status Engine::execute(Operation& operation, CUstream stream, stepccl_cuda_call_t* call) {
  const ContextScope scope(*driver_, context_);
  bool host_memory = false;
  if (Status status = check_pointers(operation, host_memory); !status.ok()) return status;
  if (operation.kind != STEPCCL_SEND_RECV) {
    if (Status status = apply_pending(); !status.ok()) {
      fail(status.error());
      return status;
    }
  }
  Flight flight;
  flight.budget = call != nullptr && call->size >= 12 && call->sm_budget != 0 ? call->sm_budget : config_.sm_budget != 0 ? config_.sm_budget : kMaxBlocks;
  if (Status status = find_capture(flight, stream); !status.ok()) return status;
  struct Farewell {
    Engine& engine;
    ~Farewell() {
      engine.guest_count_ = 0;
      engine.agreed_ = 0;
    }
  } farewell{*this};
  const std::uint32_t wanted = call != nullptr ? call->path : static_cast<std::uint32_t>(STEPCCL_CUDA_PATH_AUTO);
  const bool pair = operation.kind == STEPCCL_SEND_RECV;
  if (!host_memory && (wanted == STEPCCL_CUDA_PATH_AUTO || (pair && wanted == STEPCCL_CUDA_PATH_COPY_ENGINE))) {
    if (Status status = pair ? invite_pairs(operation, wanted != STEPCCL_CUDA_PATH_AUTO, flight.capturing) : invite_guests(operation, flight.capturing); !status.ok()) {
      fail(status.error());
      return status;
    }
  }
  auto path = choose_path(operation, host_memory ? static_cast<std::uint32_t>(STEPCCL_CUDA_PATH_PAGED) : wanted, flight);
  if (!path.ok()) return path.take_error();
  if (Status status = enter(flight, stream, operation); !status.ok()) return status;

  if (operation.kind != STEPCCL_SEND_RECV) {
    Entry entry;
    entry.collective = static_cast<std::uint8_t>(operation.kind);
    entry.count = operation.varying ? 0 : operation.count;  // each rank has its own
    entry.datatype = static_cast<std::uint8_t>(operation.datatype);
    entry.redop = operation.reduces() ? static_cast<std::uint8_t>(operation.redop) : 0;
    entry.root = static_cast<std::uint16_t>(operation.root);
    entry.path = static_cast<std::uint8_t>(path.value());
    entry.budget = static_cast<std::uint16_t>(flight.budget);
    const auto place = [&](const void* pointer) -> std::uint64_t {
      const Window* window = window_of(pointer, 1);
      return window == nullptr ? 0 : window->id * 0x9e3779b97f4a7c15ull + (reinterpret_cast<CUdeviceptr>(pointer) - window->base[rank_]);
    };
    const bool writes_recv = !operation.reduces() ? operation.kind != STEPCCL_GATHER : operation.kind == STEPCCL_ALL_REDUCE;
    if (path.value() == STEPCCL_CUDA_PATH_DIRECT || path.value() == STEPCCL_CUDA_PATH_BULK || path.value() == STEPCCL_CUDA_PATH_COPY_ENGINE ||
        path.value() == STEPCCL_CUDA_PATH_PIPELINE) {
      const bool reads_send = (operation.reduces() && (path.value() != STEPCCL_CUDA_PATH_PIPELINE || operation.kind == STEPCCL_ALL_REDUCE)) || operation.kind == STEPCCL_GATHER;
      entry.window = (reads_send ? place(operation.send) : 0) * 31 + (writes_recv ? place(operation.recv) : 0);
    }
    ledger_.note(entry);
  } else {
    for (std::uint32_t peer = 0; peer < world_; ++peer) pair_calls_[peer] += operation.involved >> peer & 1u;
  }
  operations_.fetch_add(1, std::memory_order_relaxed);
  flight.ticket->path = path.value();
  Status status = gate(flight, true);
  if (status.ok()) status = dispatch(flight, operation, path.value(), host_memory);
  if (status.ok()) status = gate(flight, false);
  if (status.ok()) status = leave(flight);
  if (!status.ok()) {
    // Part of the operation may be queued, and the peers have theirs: nobody can go on.
    fail(status.error());
    return status;
  }
  if (stream == nullptr || stream == CU_STREAM_LEGACY) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, stream, flight.lane->done, 0);
  last_path_.store(static_cast<std::uint32_t>(path.value()), std::memory_order_relaxed);
  last_blocks_.store(flight.ticket->blocks, std::memory_order_relaxed);
  if (call != nullptr && call->size >= sizeof(stepccl_cuda_call_t)) call->ticket = flight.ticket->number;
  return {};
}

}  // namespace stepccl::cuda
