// SPDX-License-Identifier: Apache-2.0
// How a task comes to run, and how it ends.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/compress.hpp"
#include "core/engine.hpp"

namespace stepccl {
namespace {

constexpr std::size_t kStagedBytes = 256u << 10;  // below it, memory that needs registration goes through lasting memory
constexpr std::uint32_t kMaxRegions = 64;         // registered at a time before everything has to end once
constexpr std::uint64_t kMaxSteps = 1u << 24;

constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

// Runs f(offset in the caller's array, offset in the staged one) for each block, in elements.
template <class F>
void for_blocks(std::uint32_t blocks, std::uint64_t count, std::uint64_t stride, F&& f) {
  for (std::uint32_t b = 0; b < blocks; ++b) f(b * stride, b * count);
}

}  // namespace

bool Engine::registers_memory() const noexcept {
  return std::any_of(transports_.begin(), transports_.end(), [](const auto* transport) { return transport != nullptr && transport->registers_memory(); });
}

Status Engine::open_task(Task& task) {
  const std::uint64_t bytes = bytes_of_task(task, options_.world);
  // A fused task has the numbers of all its parts; what is refused below keeps its own, as it does on every other rank.
  sequence_ = task.sequence;
  calls_[sequence_ % kCalls] = task.call;
  if (task.kind == TaskKind::vector) {
    task.call.algorithm = STEPCCL_ALGORITHM_PAIRWISE;
  } else {
    const bool compressed = task.compression > STEPCCL_COMPRESSION_NONE;
    const bool whole = !compressed && task.parts.empty() && task.page_elements == 0;
    const stepccl_algorithm_t on_node = whole ? planner_.on_node(task.collective(), bytes, task.allowed) : STEPCCL_ALGORITHM_AUTO;
    task.on_node = on_node != STEPCCL_ALGORITHM_AUTO;
    if (task.on_node) {
      task.call.algorithm = static_cast<std::uint8_t>(on_node);
    } else {
      auto algorithm = planner_.choose(task.collective(), compressed ? bytes / 2 : bytes, task.allowed);
      if (!algorithm.ok()) return algorithm.take_error();
      task.call.algorithm = static_cast<std::uint8_t>(algorithm.value());
    }
  }
  task.pages = task.page_elements == 0 || task.call.count == 0 ? 1 : (task.call.count + task.page_elements - 1) / task.page_elements;
  if (task.pages == 1) task.prefetch = 1;
  task.signature = task_signature(task.call, task);
  for (std::uint64_t i = 0; i < std::clamp<std::uint64_t>(task.parts.size(), 1, kCalls); ++i) calls_[(task.sequence - i) % kCalls] = task.call;
  last_algorithm_.store(task.call.algorithm, std::memory_order_relaxed);
  task.begin_ns = monotonic_ns();
  task.state.store(STEPCCL_OP_STARTED, std::memory_order_release);
  if (active_.empty()) {
    last_progress_ns_ = task.begin_ns;
    next_states_ns_ = task.begin_ns + 1'000'000'000u;
    state_.sequence = task.sequence;
    publish_state(true);
  }
  publish(task, STEPCCL_OP_STARTED, task.begin_ns, STEPCCL_SUCCESS);
  log_.started(task, slowest_);
  return {};
}

Status Engine::run_on_node(Task& task) {
  begun_ |= STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);
  if (state_.sequence != task.sequence || state_.running == 0) {
    state_.sequence = task.sequence;
    publish_state(true);
  }
  last_progress_ns_ = monotonic_ns();
  idle_since_ns_ = 0;
  Status status = transports_[STEPCCL_TRANSPORT_SHM]->node_engine()->run(node_call(task, task.sequence, task.signature), node_rest_);
  stalled_ = false;
  if (!status.ok()) return status;
  task.pages_started = 1;
  if (task.background) {
    const std::lock_guard lock(task.mutex);
    task.pages_done.store(1, std::memory_order_release);
  } else {
    task.pages_done.store(1, std::memory_order_release);
  }
  return {};
}

Status Engine::rest_on_node(const std::function<std::vector<std::uint32_t>()>& waiting, bool moved) {
  if (short_.request != nullptr) show_short();
  if (moved) {
    if (stalled_) record_stall(false);
    idle_since_ns_ = 0;
  }
  if (control_.failed()) return control_.failure();
  node_waits_for_ = waiting;
  Status rested = rest();
  node_waits_for_ = {};
  return rested;
}

Expected<bool> Engine::start_page(Task& task) {
  const bool registering = registers_memory();
  if (registering && regions_ >= kMaxRegions && !active_.empty()) return false;
  std::uint32_t index = 0;
  while (slots_[index] != nullptr && slots_[index]->task != nullptr) ++index;
  if (slots_[index] == nullptr) slots_[index] = std::make_unique<Slot>();
  Slot& slot = *slots_[index];
  slot.page = task.pages_started;

  const std::uint64_t page_begin = slot.page * task.page_elements;
  slot.count = task.pages == 1 ? task.call.count : std::min(task.page_elements, task.call.count - page_begin);
  const bool compressed = task.compression > STEPCCL_COMPRESSION_NONE;
  slot.element_bytes = compressed ? 2 : task.element_bytes;
  slot.datatype = compressed ? wire_datatype(task.compression) : task.datatype();
  const Extent extent = task.kind == TaskKind::vector
                            ? Extent{}
                            : extent_of(task.collective(), options_.rank, options_.world, task.call.root, slot.count, slot.count);
  const std::size_t moved_bytes = static_cast<std::size_t>(std::max(extent.input, extent.output)) * slot.element_bytes;
  // Small ones through memory that stays registered (LL), large ones straight from the caller's (Simple).
  const std::uint8_t protocols = planner_.protocols(task.collective());
  const bool small = (protocols & kProtocolSimple) == 0 || (moved_bytes <= kStagedBytes && (protocols & (kProtocolLL | kProtocolLL128)) != 0);
  const bool staged = compressed || !task.parts.empty() || (registering && task.kind == TaskKind::collective && small);

  const std::uint32_t live_depth = page_.read().pipeline_depth;
  const std::uint32_t depth = std::clamp<std::uint32_t>(live_depth != 0 ? live_depth : pipeline_depth(), 1, 256);
  if (task.kind == TaskKind::vector) {
    slot.own_plan = planner_.vector_plan(task, depth);
    slot.plan = &slot.own_plan;
  } else {
    // In the staging memory an array and its result are one where both are whole.
    const bool in_place = staged ? task.collective() == STEPCCL_ALL_REDUCE : task.in_place;
    planner_.keep_plans(!active_.empty());
    slot.plan = &planner_.plan(task, slot.count, staged ? slot.count : task.call.count, slot.element_bytes, in_place, depth);
  }
  Plan& plan = *slot.plan;
  if (plan.schedule.steps.size() >= kMaxSteps) {
    return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "the schedule is too long: enable paging or raise chunk_bytes");
  }
  if (plan.transports == 0 && !plan.peers.empty()) {
    // Meeting a peer for the first time may take a while: nobody may wait for this rank meanwhile.
    if (!active_.empty()) return false;
    if (Status status = connect(task, plan.peers, plan.transports); !status.ok()) return status.take_error();
  }
  const std::size_t scratch_bytes = static_cast<std::size_t>(plan.schedule.scratch_elements) * slot.element_bytes;
  slot.task = &task;
  slot.input = const_cast<std::byte*>(task.send) + page_begin * task.element_bytes;
  slot.output = task.recv + page_begin * task.element_bytes;
  if (Status status = prepare(slot, scratch_bytes, staged); !status.ok()) {
    slot.task = nullptr;
    return status.take_error();
  }
  slot.tag = {static_cast<std::uint32_t>(task.sequence) & ~kMessageBit, task.signature};

  std::array<transport::Region, 3> regions;
  std::size_t used = 0;
  if (registering) {
    if (slot.scratch.bytes() != 0) regions[used++] = {slot.scratch.data(), slot.scratch.bytes(), true};
    if (!staged) {
      const Extent whole = task.kind == TaskKind::vector
                               ? Extent{task.arrays[4 * options_.world], task.arrays[4 * options_.world + 1]}
                               : extent_of(task.collective(), options_.rank, options_.world, task.call.root, slot.count, task.call.count);
      if (whole.output != 0) regions[used++] = {slot.output, whole.output * slot.element_bytes, false};
      if (whole.input != 0 && slot.input != slot.output) regions[used++] = {slot.input, whole.input * slot.element_bytes, false};
    }
  }
  if (Status status = begin(plan.transports, {regions.data(), used}); !status.ok()) {
    slot.task = nullptr;
    return status.take_error();
  }
  slot.tracker.reset(plan.schedule);
  slot.dirty = true;
  ++task.pages_started;
  active_.push_back(static_cast<std::uint8_t>(index));
  return true;
}

Status Engine::prepare(Slot& slot, std::size_t scratch_bytes, bool staged) {
  Task& task = *slot.task;
  const Extent extent = staged ? extent_of(task.collective(), options_.rank, options_.world, task.call.root, slot.count, slot.count) : Extent{};
  const bool one = task.collective() == STEPCCL_ALL_REDUCE;
  const std::size_t input_bytes = aligned(static_cast<std::size_t>(extent.input) * slot.element_bytes);
  const std::size_t output_bytes = one ? 0 : aligned(static_cast<std::size_t>(extent.output) * slot.element_bytes);
  const std::size_t needed = aligned(scratch_bytes) + input_bytes + output_bytes;
  if (needed > slot.scratch.bytes()) {
    for (transport::Transport* transport : transports_) {
      if (transport != nullptr && slot.scratch.data() != nullptr) transport->forget(slot.scratch.data());
    }
    held_bytes_.fetch_sub(slot.scratch.bytes(), std::memory_order_relaxed);
    const bool enough = slot.scratch.resize(needed);
    held_bytes_.fetch_add(slot.scratch.bytes(), std::memory_order_relaxed);
    if (!enough) return make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_REGISTER, "no " + std::to_string(needed) + " bytes of scratch memory");
  }
  slot.staged_input = nullptr;
  slot.staged_output = nullptr;
  if (!staged) return {};
  slot.staged_input = slot.scratch.data() + aligned(scratch_bytes);
  slot.staged_output = one ? slot.staged_input : slot.staged_input + input_bytes;
  bring_in(slot);
  slot.input = slot.staged_input;
  slot.output = slot.staged_output;
  return {};
}

void Engine::bring_in(Slot& slot) {
  Task& task = *slot.task;
  std::byte* to = slot.staged_input;
  const auto take = [&](const std::byte* from, std::uint64_t count) {
    const auto elements = static_cast<std::size_t>(count);
    if (task.compression > STEPCCL_COMPRESSION_NONE) {
      const double error = compress(reinterpret_cast<std::uint16_t*>(to), reinterpret_cast<const float*>(from), elements, slot.datatype);
      task.compression_error = std::max(task.compression_error, error);
    } else if (elements != 0) {
      std::memcpy(to, from, elements * slot.element_bytes);
    }
    to += elements * slot.element_bytes;
  };
  for (const auto& part : task.parts) take(part->send, part->call.count);
  if (!task.parts.empty()) return;
  const Extent extent = extent_of(task.collective(), options_.rank, options_.world, task.call.root, slot.count, slot.count);
  if (extent.input == 0) return;
  for_blocks(static_cast<std::uint32_t>(extent.input / slot.count), slot.count, task.call.count,
             [&](std::uint64_t at, std::uint64_t) { take(slot.input + at * task.element_bytes, slot.count); });
}

void Engine::bring_out(Slot& slot) {
  Task& task = *slot.task;
  const std::byte* from = slot.staged_output;
  const auto give = [&](std::byte* to, std::uint64_t count) {
    const auto elements = static_cast<std::size_t>(count);
    if (task.compression > STEPCCL_COMPRESSION_NONE) {
      expand(reinterpret_cast<float*>(to), reinterpret_cast<const std::uint16_t*>(from), elements, slot.datatype);
    } else if (elements != 0) {
      std::memcpy(to, from, elements * slot.element_bytes);
    }
    from += elements * slot.element_bytes;
  };
  for (const auto& part : task.parts) give(part->recv, part->call.count);
  if (!task.parts.empty()) return;
  const Extent extent = extent_of(task.collective(), options_.rank, options_.world, task.call.root, slot.count, slot.count);
  if (extent.output == 0) return;
  std::byte* output = task.recv + slot.page * task.page_elements * task.element_bytes;
  for_blocks(static_cast<std::uint32_t>(extent.output / slot.count), slot.count, task.call.count,
             [&](std::uint64_t at, std::uint64_t) { give(output + at * task.element_bytes, slot.count); });
}

void Engine::end_page(Slot& slot) {
  Task& task = *slot.task;
  if (slot.staged_output != nullptr) bring_out(slot);
  slot.task = nullptr;
  // Pages end nearly in order: count those that follow each other.
  const std::uint64_t done = task.pages_done.load(std::memory_order_relaxed);
  task.pages_ended |= std::uint64_t{1} << (slot.page - done);
  const auto together = static_cast<unsigned>(std::countr_one(task.pages_ended));
  if (together == 0) return;
  task.pages_ended = together == 64 ? 0 : task.pages_ended >> together;
  const std::uint64_t now_done = done + together;
  if (task.background) {
    const std::lock_guard lock(task.mutex);
    task.pages_done.store(now_done, std::memory_order_release);
    if (now_done != task.pages) task.changed.notify_all();
  } else {
    task.pages_done.store(now_done, std::memory_order_release);
  }
  if (now_done == task.pages) end_task(task, std::nullopt);
}

void Engine::end_task(Task& task, std::optional<Error> error) {
  const std::uint64_t now = ring_.is_open() || log_.is_on() ? monotonic_ns() : 0;
  log_.ended(task, now, error);
  if (!task.message() && task.begin_ns != 0) {
    // The others may ask what this rank is in: the oldest that runs, else this one.
    state_.sequence = active_.empty() ? task.sequence : slots_[active_.front()]->task->sequence;
    publish_state(!active_.empty());
    publish(task, error ? STEPCCL_OP_FAILED : STEPCCL_OP_COMPLETED, now, error ? error->code : STEPCCL_SUCCESS);
    if (task.compression > STEPCCL_COMPRESSION_NONE) last_compression_error_.store(task.compression_error, std::memory_order_relaxed);
  }
  operations_.fetch_add(task.parts.empty() ? 1 : task.parts.size(), std::memory_order_relaxed);
  task.end(std::move(error));
}

Status Engine::start_message(Task& task) {
  const std::uint32_t peer = task.call.root;
  const bool send = task.kind == TaskKind::send;
  task.begin_ns = monotonic_ns();
  std::uint32_t& counter = send ? sent_to_[peer] : received_from_[peer];
  task.sequence = ++counter;
  task.state.store(STEPCCL_OP_STARTED, std::memory_order_release);
  log_.started(task, transport_of_[peer]);
  if (open_messages_ == 0) {
    last_progress_ns_ = task.begin_ns;
    next_states_ns_ = task.begin_ns + 1'000'000'000u;
  }
  std::uint32_t transports = 0;
  if (Status status = connect(task, std::span(&peer, 1), transports); !status.ok()) return status;
  std::byte* data = send ? const_cast<std::byte*>(task.send) : task.recv;
  std::size_t bytes = static_cast<std::size_t>(task.call.count) * task.element_bytes;
  const bool nothing = bytes == 0;
  if (nothing) {  // says at least that the message has been called for
    data = marker_.data() + (send ? 0 : 32);
    bytes = 1;
  }
  const transport::Region region{data, bytes, nothing};
  if (Status status = begin(transports, std::span(&region, 1)); !status.ok()) return status;

  std::uint32_t index = 0;
  while (index < messages_.size() && messages_[index].pieces != 0) ++index;
  if (index == messages_.size()) messages_.emplace_back();
  const std::size_t chunk = planner_.chunk_bytes();
  messages_[index] = {&task, static_cast<std::uint32_t>((bytes + chunk - 1) / chunk)};
  ++open_messages_;
  bootstrap::Call both = task.call;  // what the two ends have in common
  both.root = 0;
  both.algorithm = 0;
  transport::Transport& transport = *transports_[transport_of_[peer]];
  transport.use_tag({kMessageBit | counter, signature_of(both)});
  const std::uint32_t id = kMessageSlot << 24 | index;
  for (std::size_t offset = 0; offset < bytes; offset += chunk) {
    const std::size_t length = std::min(chunk, bytes - offset);
    Status status = send ? transport.post_send(peer, {data + offset, length}, id) : transport.post_recv(peer, {data + offset, length}, id);
    if (!status.ok()) return status;
    if (send) ++open_sends_;
  }
  return {};
}

Status Engine::connect(const Task& task, std::span<const std::uint32_t> peers, std::uint32_t& transports) {
  std::uint32_t meeting = 0;
  control_.set_wait_check([&] {
    log_.waits_for(task, std::span(&meeting, 1));
    return watch_states();
  });
  const struct ClearCheck {
    bootstrap::ControlPlane& control;
    ~ClearCheck() { control.set_wait_check({}); }
  } clear{control_};
  for (const std::uint32_t peer : peers) {
    meeting = peer;
    const stepccl_transport kind = transport_of_[peer];
    if (Status status = transports_[kind]->connect(peer, Deadline::after_ms(task.timeout_ms)); !status.ok()) {
      Error error = status.take_error();
      if (error.code == STEPCCL_ERROR_TIMEOUT && !control_.failed()) return explain_timeout({peer}, STEPCCL_PHASE_CONNECT);
      return error;
    }
    transports |= STEPCCL_TRANSPORT_BIT(kind);
  }
  return {};
}

Status Engine::begin(std::uint32_t transports, std::span<const transport::Region> regions) {
  for (std::uint32_t kind = 1; kind < kTransportKinds; ++kind) {
    const std::uint32_t bit = STEPCCL_TRANSPORT_BIT(kind);
    if ((transports & bit) == 0) continue;
    transport::Transport& transport = *transports_[kind];
    if ((begun_ & bit) != 0 && !transport.registers_memory()) continue;
    begun_ |= bit;
    if (Status status = transport.begin(regions); !status.ok()) return status;
    regions_ += static_cast<std::uint32_t>(regions.size());
  }
  return {};
}

void Engine::end_brackets() noexcept {
  for (std::uint32_t kind = 1; kind < kTransportKinds; ++kind) {
    if ((begun_ & STEPCCL_TRANSPORT_BIT(kind)) != 0) transports_[kind]->end();
  }
  begun_ = 0;
  regions_ = 0;
}

}  // namespace stepccl
