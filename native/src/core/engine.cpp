// SPDX-License-Identifier: Apache-2.0
// Runs one operation: a schedule over the transports, in the caller's thread.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/comm.hpp"
#include "core/reduce.hpp"

namespace stepccl {

using bootstrap::Call;
using bootstrap::OperationState;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;
using schedule::Tracker;

struct Comm::Operation {
  OperationState state;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::size_t element_bytes = 1;
  std::uint32_t timeout_ms = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t last_progress_ns = 0;
  std::uint64_t idle_since_ns = 0;     // 0 = not idle
  std::uint64_t next_states_ns = 0;    // when to ask what the others are in
  std::uint64_t states_seen = 0;
  std::vector<transport::Transport*> transports;

  [[nodiscard]] stepccl_datatype_t datatype() const noexcept { return static_cast<stepccl_datatype_t>(state.call.datatype); }
  [[nodiscard]] stepccl_redop_t redop() const noexcept { return static_cast<stepccl_redop_t>(state.call.redop); }
  [[nodiscard]] std::size_t bytes() const noexcept { return static_cast<std::size_t>(state.call.count) * element_bytes; }
};

struct Comm::Buffers {
  std::byte* input = nullptr;  // never a step's target
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::size_t element_bytes = 1;

  [[nodiscard]] std::byte* at(schedule::Place place) const noexcept {
    const std::size_t offset = static_cast<std::size_t>(place.offset) * element_bytes;
    switch (place.buffer) {
      case schedule::Buffer::input: return input + offset;
      case schedule::Buffer::output: return output + offset;
      case schedule::Buffer::scratch: return scratch + offset;
    }
    return nullptr;
  }
};

namespace {

constexpr std::size_t kStagedBytes = 256u << 10;      // below it, memory that needs registration goes through scratch
constexpr std::uint64_t kStallNs = 1'000'000'000u;    // then the others are asked what they are in
constexpr std::size_t kMaxSchedules = 64;

// What this library assumes until a calibration says better: us per message, us per byte.
struct LinkDefaults {
  double alpha;
  double beta;
};
constexpr double kGamma = 1e-4;
LinkDefaults defaults_of(stepccl_transport transport) noexcept {
  switch (transport) {
    case STEPCCL_TRANSPORT_SHM: return {1, 2e-4};
    case STEPCCL_TRANSPORT_RDMA: return {5, 1e-4};
    default: return {25, 8e-4};
  }
}

// FNV-1a of what all ranks must have in common.
std::uint32_t signature_of(const Call& call) noexcept {
  std::uint32_t hash = 2166136261u;
  const auto mix = [&hash](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ static_cast<std::uint8_t>(value >> (8 * i))) * 16777619u;
  };
  mix(call.count);
  mix(call.root);
  mix(std::uint64_t{call.collective} | std::uint64_t{call.algorithm} << 8 | std::uint64_t{call.datatype} << 16 | std::uint64_t{call.redop} << 24);
  return hash;
}

std::string call_text(const Call& call) {
  return std::string(stepccl_collective_name(static_cast<stepccl_collective_t>(call.collective))) + " of " + std::to_string(call.count) + " " +
         stepccl_datatype_name(static_cast<stepccl_datatype_t>(call.datatype)) + " " + stepccl_redop_name(static_cast<stepccl_redop_t>(call.redop)) +
         " by " + stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(call.algorithm));
}

std::string list_ranks(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (const std::uint32_t rank : ranks) {
    if (text.size() > 60) return text + ", ...";
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

Error usage_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

struct BusyGuard {
  std::atomic<bool>& flag;
  ~BusyGuard() { flag.store(false, std::memory_order_release); }
};

}  // namespace

Status Comm::all_reduce(const void* send, void* recv, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop,
                        const stepccl_call_t& call) {
  if (busy_.exchange(true, std::memory_order_acquire)) return usage_error("another operation runs, or the communicator is being destroyed");
  const BusyGuard guard{busy_};
  if (control_->failed()) return control_->failure();

  Operation operation;
  operation.element_bytes = stepccl_datatype_bytes(datatype);
  operation.send = static_cast<const std::byte*>(send);
  operation.recv = static_cast<std::byte*>(recv);
  operation.timeout_ms = call.timeout_ms != 0 ? call.timeout_ms : settings_.timeout_ms;
  OperationState& state = operation.state;
  state.call.count = count;
  state.call.collective = STEPCCL_ALL_REDUCE;
  state.call.datatype = static_cast<std::uint8_t>(datatype);
  state.call.redop = static_cast<std::uint8_t>(redop);
  state.previous = last_call_;
  state.running = 1;

  auto algorithm = static_cast<stepccl_algorithm_t>(call.algorithm != STEPCCL_ALGORITHM_AUTO ? call.algorithm : control_->settings().algorithm);
  if (algorithm == STEPCCL_ALGORITHM_AUTO) {
    const auto [alpha, beta] = defaults_of(slowest_);
    algorithm = schedule::choose_algorithm(STEPCCL_ALL_REDUCE, world_, static_cast<double>(operation.bytes()), alpha, beta, kGamma).algorithm;
  }
  if (schedule::find_algorithm(STEPCCL_ALL_REDUCE, algorithm) == nullptr) {
    return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, std::string("no all_reduce by ") + stepccl_algorithm_name(algorithm));
  }
  state.call.algorithm = static_cast<std::uint8_t>(algorithm);
  last_call_ = state.call;
  state.sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  last_algorithm_.store(state.call.algorithm, std::memory_order_relaxed);

  operation.begin_ns = monotonic_ns();
  operation.last_progress_ns = operation.begin_ns;
  operation.next_states_ns = operation.begin_ns + kStallNs;
  control_->publish(state);
  publish(operation, STEPCCL_OP_STARTED, STEPCCL_SUCCESS);

  Status status = execute(operation);

  if (!status.ok()) {
    Error error = status.take_error();
    if (error.code == STEPCCL_ERROR_MISMATCH && !control_->failed()) error = explain_mismatch(operation, std::move(error));
    if (error.phase == STEPCCL_PHASE_NONE) error.phase = STEPCCL_PHASE_TRANSFER;
    error = control_->report(error);
    if (error.phase == STEPCCL_PHASE_NONE) error.phase = STEPCCL_PHASE_TRANSFER;
    if (error.transport == STEPCCL_TRANSPORT_NONE && error.peer >= 0 && static_cast<std::uint32_t>(error.peer) != rank_) {
      error.transport = transport_of_[static_cast<std::size_t>(error.peer)];
    }
    status = Status(std::move(error));
  }
  operation.state.running = 0;
  control_->publish(operation.state);
  publish(operation, status.ok() ? STEPCCL_OP_COMPLETED : STEPCCL_OP_FAILED, status.ok() ? STEPCCL_SUCCESS : status.error().code);
  operations_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

Status Comm::execute(Operation& operation) {
  const std::size_t bytes = operation.bytes();
  const bool staged = bytes <= kStagedBytes && std::any_of(transports_.begin(), transports_.end(), [](const auto& entry) { return entry.second->registers_memory(); });
  const bool in_place = staged || operation.send == operation.recv;
  const Schedule& schedule = schedule_for(operation, in_place);

  const std::size_t scratch_bytes = static_cast<std::size_t>(schedule.scratch_elements) * operation.element_bytes;
  const std::size_t staging_at = (scratch_bytes + 63) / 64 * 64;
  const std::size_t needed = staging_at + (staged ? bytes : 0);
  if (needed > scratch_.bytes()) {
    for (auto& [kind, transport] : transports_) transport->forget(scratch_.data());
    if (!scratch_.resize(needed)) {
      return make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_REGISTER, "no " + std::to_string(needed) + " bytes of scratch memory");
    }
  }
  Buffers buffers{const_cast<std::byte*>(operation.send), operation.recv, scratch_.data(), operation.element_bytes};
  if (staged) {
    buffers.output = scratch_.data() + staging_at;
    buffers.input = buffers.output;
    if (bytes != 0) std::memcpy(buffers.output, operation.send, bytes);
  }

  if (Status status = connect_peers(schedule, operation); !status.ok()) return status;
  std::vector<transport::Region> regions;
  if (scratch_.bytes() != 0) regions.push_back({scratch_.data(), scratch_.bytes(), true});
  if (!staged && bytes != 0) {
    regions.push_back({operation.recv, bytes, false});
    if (!in_place) regions.push_back({const_cast<std::byte*>(operation.send), bytes, false});
  }
  const transport::OperationTag tag{static_cast<std::uint32_t>(operation.state.sequence), signature_of(operation.state.call)};
  Status status;
  std::size_t begun = 0;
  for (transport::Transport* transport : operation.transports) {
    ++begun;
    transport->use_tag(tag);
    status = transport->begin(regions);
    if (!status.ok()) break;
  }
  if (status.ok()) status = drive(operation, schedule, buffers);
  for (std::size_t i = 0; i < begun; ++i) operation.transports[i]->end();
  if (status.ok() && staged && bytes != 0) std::memcpy(operation.recv, buffers.output, bytes);
  return status;
}

const Schedule& Comm::schedule_for(const Operation& operation, bool in_place) {
  const std::uint32_t live_depth = control_page_.read().pipeline_depth;
  const std::uint32_t depth = std::clamp<std::uint32_t>(live_depth != 0 ? live_depth : settings_.pipeline_depth, 1, 256);
  const std::uint64_t chunk = std::max<std::uint64_t>(1, control_->settings().chunk_bytes / operation.element_bytes);
  const std::array<std::uint64_t, 5> key{operation.state.call.algorithm, operation.state.call.count, chunk, depth, in_place ? 1u : 0u};
  if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  if (schedules_.size() >= kMaxSchedules) schedules_.clear();
  const auto* row = schedule::find_algorithm(STEPCCL_ALL_REDUCE, static_cast<stepccl_algorithm_t>(operation.state.call.algorithm));
  return schedules_.emplace(key, row->make({rank_, world_, operation.state.call.count, chunk, depth, in_place})).first->second;
}

Status Comm::connect_peers(const Schedule& schedule, Operation& operation) {
  std::vector<std::uint32_t> peers;
  for (const auto& lane : schedule.lanes) peers.push_back(lane.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  control_->set_wait_check([&] { return watch_states(operation); });
  const struct ClearCheck {
    bootstrap::ControlPlane& control;
    ~ClearCheck() { control.set_wait_check({}); }
  } clear{*control_};
  auto& used = operation.transports;
  for (const std::uint32_t peer : peers) {
    transport::Transport* transport = transports_.at(transport_of_[peer]).get();
    if (Status status = transport->connect(peer, Deadline::after_ms(operation.timeout_ms)); !status.ok()) {
      Error error = status.take_error();
      if (error.code == STEPCCL_ERROR_TIMEOUT && !control_->failed()) return explain_timeout(operation, {peer}, STEPCCL_PHASE_CONNECT);
      return error;
    }
    if (std::find(used.begin(), used.end(), transport) == used.end()) used.push_back(transport);
  }
  return {};
}

Status Comm::drive(Operation& operation, const Schedule& schedule, const Buffers& buffers) {
  Tracker tracker(schedule);
  operation.last_progress_ns = monotonic_ns();
  while (!tracker.done()) {
    auto moved = turn(operation, tracker, schedule, buffers);
    if (!moved.ok()) return moved.take_error();
    if (control_->failed()) return control_->failure();
    if (moved.value()) {
      operation.idle_since_ns = 0;
    } else if (!tracker.done()) {
      if (Status status = rest(operation, tracker); !status.ok()) return status;
    }
  }
  return {};
}

Expected<bool> Comm::turn(Operation& operation, Tracker& tracker, const Schedule& schedule, const Buffers& buffers) {
  bool moved = false;
  while (const auto step = tracker.next_local()) {
    run_local(operation, schedule.steps[*step], buffers);
    tracker.complete(*step);
    moved = true;
  }
  for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    const std::uint32_t peer = schedule.lanes[lane].peer;
    while (const auto index = tracker.next_posted(lane)) {
      const Step& step = schedule.steps[*index];
      transport::Transport& transport = *transports_.at(transport_of_[peer]);
      const std::size_t bytes = static_cast<std::size_t>(step.count) * operation.element_bytes;
      Status status = step.kind == StepKind::send ? transport.post_send(peer, {buffers.at(step.left), bytes}, *index)
                                                  : transport.post_recv(peer, {buffers.at(step.target), bytes}, *index);
      if (!status.ok()) return status.take_error();
      moved = true;
    }
  }
  finished_.clear();
  for (transport::Transport* transport : operation.transports) {
    auto progressed = transport->progress(finished_);
    if (!progressed.ok()) return progressed.take_error();
    moved = moved || progressed.value();
  }
  for (const std::uint32_t step : finished_) tracker.complete(step);
  return moved;
}

void Comm::run_local(const Operation& operation, const Step& step, const Buffers& buffers) const noexcept {
  const auto count = static_cast<std::size_t>(step.count);
  std::byte* target = buffers.at(step.target);
  if (step.kind == StepKind::copy) {
    std::memmove(target, buffers.at(step.left), count * operation.element_bytes);
  } else {
    reduce(target, buffers.at(step.left), buffers.at(step.right), count, operation.datatype(), operation.redop());
  }
  if (step.finish && operation.redop() == STEPCCL_AVG) divide(target, count, operation.datatype(), world_);
}

Status Comm::rest(Operation& operation, const Tracker& tracker) {
  const std::uint64_t now = monotonic_ns();
  if (operation.idle_since_ns == 0) {
    operation.idle_since_ns = now;
    operation.last_progress_ns = now;
  }
  if (now - operation.idle_since_ns < static_cast<std::uint64_t>(settings_.spin_us) * 1'000u) {
    if (Status status = poller_.wait(0); !status.ok()) return status;
    sched_yield();
    return {};
  }
  const std::uint64_t timeout_ns = std::uint64_t{operation.timeout_ms} * 1'000'000u;
  const std::uint64_t waited = now - operation.last_progress_ns;
  if (waited >= timeout_ns) return explain_timeout(operation, tracker.waiting_for(), STEPCCL_PHASE_TRANSFER);
  if (Status status = watch_states(operation); !status.ok()) return status;
  for (transport::Transport* transport : operation.transports) {
    auto may_sleep = transport->may_sleep();
    if (!may_sleep.ok()) return may_sleep.take_error();
    if (!may_sleep.value()) return {};
  }
  const std::uint64_t wake_at = std::min(operation.last_progress_ns + timeout_ns, operation.next_states_ns);
  const std::uint64_t sleep_ns = wake_at > now ? wake_at - now : 0;
  return poller_.wait(static_cast<int>(std::min<std::uint64_t>(sleep_ns / 1'000'000u + 1, 500)));
}

Status Comm::watch_states(Operation& operation) {
  const std::uint64_t now = monotonic_ns();
  if (now >= operation.next_states_ns) {
    operation.next_states_ns = now + 2 * kStallNs;
    control_->request_states();
  }
  const auto states = control_->states_after(operation.states_seen);
  return states.empty() ? Status() : look_for_mismatch(operation, states);
}

Status Comm::look_for_mismatch(const Operation& operation, const std::vector<OperationState>& states) const {
  const OperationState& own = operation.state;
  for (std::uint32_t peer = 0; peer < states.size(); ++peer) {
    // A rank may be one operation ahead: then what it called before must be what this rank is in, and the other way round.
    const std::uint64_t number = std::min(own.sequence, states[peer].sequence);
    const Call* mine = own.call_of(number);
    const Call* theirs = states[peer].call_of(number);
    if (peer == rank_ || mine == nullptr || theirs == nullptr || *mine == *theirs) continue;
    return make_error(STEPCCL_ERROR_MISMATCH, STEPCCL_PHASE_TRANSFER,
                      "operation " + std::to_string(number) + " is " + call_text(*theirs) + " on rank " + std::to_string(peer) + ", but " +
                          call_text(*mine) + " on rank " + std::to_string(rank_),
                      static_cast<std::int32_t>(peer));
  }
  return {};
}

Error Comm::explain_mismatch(const Operation& operation, Error error) {
  if (error.transport == STEPCCL_TRANSPORT_NONE) return error;  // found by comparing states: already precise
  Status precise = look_for_mismatch(operation, control_->fetch_states(Deadline::after_ms(500)));
  if (precise.ok()) return error;
  Error explained = precise.take_error();
  explained.transport = error.transport;
  return explained;
}

Error Comm::explain_timeout(const Operation& operation, const std::vector<std::uint32_t>& waiting, stepccl_phase_t phase) {
  std::string cause = "operation " + std::to_string(operation.state.sequence) + " (" + call_text(operation.state.call) + ") made no progress for " +
                      std::to_string(operation.timeout_ms) + " ms";
  const std::vector<OperationState> states = control_->fetch_states(Deadline::after_ms(200));
  if (Status mismatch = look_for_mismatch(operation, states); !mismatch.ok()) return mismatch.take_error();
  std::vector<std::uint32_t> late;
  for (std::uint32_t peer = 0; peer < states.size(); ++peer) {
    if (peer != rank_ && states[peer].sequence < operation.state.sequence) late.push_back(peer);
  }
  if (!late.empty()) {
    cause += "; rank(s) " + list_ranks(late) + " have not called it";
  } else {
    cause += "; waiting for rank(s) " + list_ranks(waiting);
  }
  const std::vector<std::uint32_t>& blamed = late.empty() ? waiting : late;
  return make_error(STEPCCL_ERROR_TIMEOUT, phase, cause, blamed.empty() ? -1 : static_cast<std::int32_t>(blamed.front()));
}

void Comm::publish(const Operation& operation, stepccl_op_state state, stepccl_result_t error) {
  if (!ring_.is_open()) return;
  const std::uint64_t now = monotonic_ns();
  stepccl_op op{};
  op.sequence = operation.state.sequence;
  op.begin_ns = operation.begin_ns;
  op.end_ns = state == STEPCCL_OP_STARTED ? 0 : now;
  op.bytes = operation.bytes();
  op.state = static_cast<std::uint8_t>(state);
  op.collective = operation.state.call.collective;
  op.algorithm = operation.state.call.algorithm;
  op.transport = static_cast<std::uint8_t>(slowest_);
  op.datatype = operation.state.call.datatype;
  op.redop = operation.state.call.redop;
  op.error = static_cast<std::uint16_t>(error);
  op.root = operation.state.call.root;
  ring_.publish(op);
  ring_.heartbeat(now);
}

}  // namespace stepccl
