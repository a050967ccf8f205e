// SPDX-License-Identifier: Apache-2.0
// What a rank tells of itself, and what it finds out about the others when it stands still.
#include <algorithm>
#include <chrono>
#include <thread>

#include "core/engine.hpp"

namespace stepccl {

using bootstrap::Call;
using bootstrap::OperationState;

namespace {

constexpr std::uint64_t kStallNs = 1'000'000'000u;  // between two questions to the others

std::string list_ranks(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (const std::uint32_t rank : ranks) {
    if (text.size() > 60) return text + ", ...";
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

}  // namespace

void Engine::publish_state(bool running) {
  state_.call = calls_[state_.sequence % kCalls];
  state_.previous = state_.sequence > 1 ? calls_[(state_.sequence - 1) % kCalls] : Call{};
  state_.running = running ? 1 : 0;
  control_.publish(state_);
}

Status Engine::watch_states() {
  const std::uint64_t now = monotonic_ns();
  if (now >= next_states_ns_) {
    next_states_ns_ = now + 2 * kStallNs;
    control_.request_states();
  }
  const auto states = control_.states_after(states_seen_);
  return states.empty() ? Status() : look_for_mismatch(states);
}

Status Engine::look_for_mismatch(const std::vector<OperationState>& states) const {
  for (std::uint32_t peer = 0; peer < states.size(); ++peer) {
    // A rank may be some operations ahead: then what it called before must be what this rank is in, and the other way round.
    for (const std::uint64_t number : {states[peer].sequence, states[peer].sequence - 1}) {
      const Call* theirs = states[peer].call_of(number);
      if (peer == options_.rank || theirs == nullptr || number > sequence_ || number + kCalls <= sequence_) continue;
      const Call& mine = calls_[number % kCalls];
      if (mine == *theirs) continue;
      return make_error(STEPCCL_ERROR_MISMATCH, STEPCCL_PHASE_TRANSFER,
                        "operation " + std::to_string(number) + " is " + call_text(*theirs) + " on rank " + std::to_string(peer) + ", but " + call_text(mine) +
                            " on rank " + std::to_string(options_.rank),
                        static_cast<std::int32_t>(peer));
    }
  }
  return {};
}

Error Engine::explain_mismatch(Error error) {
  if (error.transport == STEPCCL_TRANSPORT_NONE) return error;  // found by comparing states: already precise
  Status precise = look_for_mismatch(control_.fetch_states(Deadline::after_ms(500)));
  // A rank in a short collective shows it only when it has waited for a moment.
  for (int i = 1; i < 20 && precise.ok() && error.transport == STEPCCL_TRANSPORT_SHM; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * i));
    precise = look_for_mismatch(control_.fetch_states(Deadline::after_ms(500)));
  }
  if (!precise.ok()) {
    Error explained = precise.take_error();
    explained.transport = error.transport;
    return explained;
  }
  // The calls are the same: what differs are the counts of a pair.
  for (const Message& message : messages_) {
    if (message.pieces == 0 || error.peer != static_cast<std::int32_t>(message.task->call.root)) continue;
    error.cause = std::string(message.task->kind == TaskKind::send ? "a send of " : "a receive of ") + std::to_string(message.task->call.count) + " " +
                  stepccl_datatype_name(message.task->datatype()) + " here does not fit what rank " + std::to_string(error.peer) + " has called";
    return error;
  }
  for (const std::uint8_t index : active_) {
    const Task& task = *slots_[index]->task;
    if (task.kind != TaskKind::vector || error.peer < 0) continue;
    const auto peer = static_cast<std::size_t>(error.peer);
    error.cause = "all_to_all_v: rank " + std::to_string(error.peer) + " and this rank do not agree on the counts between them (here " +
                  std::to_string(task.arrays[peer]) + " to it and " + std::to_string(task.arrays[2 * options_.world + peer]) + " from it)";
    return error;
  }
  return error;
}

Error Engine::explain_timeout(const std::vector<std::uint32_t>& waiting, stepccl_phase_t phase) {
  const std::uint32_t limit = timeout_ms();
  const std::string time = " made no progress for " + std::to_string(limit) + " ms";
  const Task* message = nullptr;
  for (const Message& one : messages_) {
    if (one.pieces != 0) message = one.task;
  }
  const std::vector<OperationState> states = control_.fetch_states(Deadline::after_ms(200));
  if (Status mismatch = look_for_mismatch(states); !mismatch.ok()) return mismatch.take_error();
  if (active_.empty() && message != nullptr) {
    const std::string what = message->kind == TaskKind::send ? "send of " : "receive of ";
    return make_error(STEPCCL_ERROR_TIMEOUT, phase,
                      what + std::to_string(message->call.count) + " " + stepccl_datatype_name(message->datatype()) +
                          (message->kind == TaskKind::send ? " to rank " : " from rank ") + std::to_string(message->call.root) + time,
                      static_cast<std::int32_t>(message->call.root));
  }
  const std::uint64_t number = active_.empty() ? sequence_ : slots_[active_.front()]->task->sequence;
  std::string cause = "operation " + std::to_string(number) + " (" + call_text(calls_[number % kCalls]) + ")" + time;
  std::vector<std::uint32_t> late;
  for (std::uint32_t peer = 0; peer < states.size(); ++peer) {
    if (peer != options_.rank && states[peer].sequence < number) late.push_back(peer);
  }
  if (!late.empty()) {
    cause += "; rank(s) " + list_ranks(late) + " have not called it";
  } else {
    cause += "; waiting for rank(s) " + list_ranks(waiting);
  }
  const std::vector<std::uint32_t>& blamed = late.empty() ? waiting : late;
  return make_error(STEPCCL_ERROR_TIMEOUT, phase, cause, blamed.empty() ? -1 : static_cast<std::int32_t>(blamed.front()));
}

std::vector<std::uint32_t> Engine::waiting_for() const {
  if (node_waits_for_) return node_waits_for_();
  if (!active_.empty()) return slots_[active_.front()]->tracker.waiting_for();
  std::vector<std::uint32_t> peers;
  for (const Message& message : messages_) {
    if (message.pieces != 0) peers.push_back(message.task->call.root);
  }
  return peers;
}

void Engine::record_stall(bool stalled) {
  stalled_ = stalled;
  if (!log_.is_on()) return;
  for (const Message& message : messages_) {
    if (message.pieces == 0) continue;
    const std::uint32_t peer = message.task->call.root;
    log_.waits_for(*message.task, std::span(&peer, stalled ? 1 : 0));
  }
  const std::vector<std::uint32_t> ranks = stalled ? waiting_for() : std::vector<std::uint32_t>{};
  if (short_.request != nullptr) return log_.recorder().waits_for(short_.record, ranks);
  const Task* task = active_.empty() ? current_ : slots_[active_.front()]->task;
  if (task != nullptr) log_.waits_for(*task, ranks);
}

Error Engine::settle(Error error) {
  const std::string seen = error.cause;
  if (error.code == STEPCCL_ERROR_MISMATCH && !control_.failed()) error = explain_mismatch(std::move(error));
  if (error.phase == STEPCCL_PHASE_NONE) error.phase = STEPCCL_PHASE_TRANSFER;
  const bool explained = error.cause != seen || error.code != STEPCCL_ERROR_MISMATCH;
  error = control_.report(error);
  // Another rank may have found out what differs.
  if (!explained && error.cause == seen) error = control_.failure();
  if (error.phase == STEPCCL_PHASE_NONE) error.phase = STEPCCL_PHASE_TRANSFER;
  if (error.transport == STEPCCL_TRANSPORT_NONE && error.peer >= 0 && static_cast<std::uint32_t>(error.peer) != options_.rank) {
    error.transport = transport_of_[static_cast<std::size_t>(error.peer)];
  }
  return error;
}

stepccl_op Engine::op_record(const Call& call, std::uint64_t sequence, std::uint64_t bytes, std::uint64_t begin_ns) const noexcept {
  stepccl_op op{};
  op.sequence = sequence;
  op.begin_ns = begin_ns;
  op.bytes = bytes;
  op.state = STEPCCL_OP_STARTED;
  op.collective = call.collective;
  op.algorithm = call.algorithm;
  op.transport = static_cast<std::uint8_t>(slowest_);
  op.datatype = call.datatype;
  op.redop = call.redop;
  op.root = call.root;
  return op;
}

void Engine::publish(const Task& task, stepccl_op_state state, std::uint64_t now, stepccl_result_t error) {
  if (!ring_.is_open()) return;
  stepccl_op op = op_record(task.call, task.sequence, bytes_of_task(task, options_.world), task.begin_ns);
  op.state = static_cast<std::uint8_t>(state);
  op.end_ns = state == STEPCCL_OP_STARTED ? 0 : now;
  op.error = static_cast<std::uint16_t>(error);
  ring_.publish(op);
  ring_.heartbeat(now);
}

}  // namespace stepccl
