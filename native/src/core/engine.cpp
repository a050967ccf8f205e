// SPDX-License-Identifier: Apache-2.0
// The loop: admit tasks, post what is ready, let the transports move, rest.
#include "core/engine.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/reduce.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stepccl {

using schedule::Step;
using schedule::StepKind;

namespace {

constexpr std::size_t kBigLocal = 32u << 10;  // after reducing that much the transports get a turn
constexpr std::uint64_t kPauseNs = 1'000;     // of polling without giving the CPU away
constexpr std::uint64_t kAskingNs = 10'000;   // the same where each look is a system call
constexpr std::uint64_t kRecordedStallNs = 20'000'000;  // of no progress: the flight recorder then says who is lacking
constexpr std::uint32_t kTogether = 4;        // unrelated tasks side by side

void pause_cpu() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Engine::Engine(const Options& options, Planner& planner, bootstrap::ControlPlane& control, transport::Poller& poller, telemetry::RingWriter& ring,
               OperationLog& log, telemetry::ControlPage& page, const TransportTable& transports, const std::vector<stepccl_transport>& transport_of,
               stepccl_transport slowest)
    : options_(options),
      planner_(planner),
      control_(control),
      poller_(poller),
      ring_(ring),
      log_(log),
      page_(page),
      transports_(transports),
      transport_of_(transport_of),
      slowest_(slowest),
      sent_to_(options.world, 0),
      received_from_(options.world, 0),
      marker_(64),
      node_rest_([this](const auto& waiting, bool moved) { return rest_on_node(waiting, moved); }),
      depth_(options.pipeline_depth) {
  active_.reserve(kSlots);
  budget_.set_rate(options.bandwidth_MBps);
}

Status Engine::open() {
  wake_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_) return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_CONNECT, "eventfd: " + errno_text(errno));
  return poller_.add(wake_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
  });
}

void Engine::wake() noexcept {
  if (!sleeping_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // full means that it is readable already
}

std::byte* Engine::Slot::at(schedule::Place place) const noexcept {
  const std::size_t offset = static_cast<std::size_t>(place.offset) * element_bytes;
  switch (place.buffer) {
    case schedule::Buffer::input: return input + offset;
    case schedule::Buffer::output: return output + offset;
    case schedule::Buffer::scratch: return scratch.data() + offset;
  }
  return nullptr;
}

std::uint32_t Engine::timeout_ms() const noexcept {
  if (short_.request != nullptr) return short_.request->timeout_ms;
  if (!active_.empty()) return slots_[active_.front()]->task->timeout_ms;
  for (const Message& message : messages_) {
    if (message.pieces != 0) return message.task->timeout_ms;
  }
  return current_ != nullptr ? current_->timeout_ms : options_.timeout_ms;
}

Status Engine::run(TaskSource& source) {
  PriorityGate::enter(options_.priority);
  source_ = &source;
  idle_since_ns_ = 0;
  Status status = loop(source);
  end_brackets();
  source_ = nullptr;
  PriorityGate::leave(options_.priority);
  if (status.ok()) return status;

  const Error error = settle(status.take_error());
  std::vector<Task*> begun;
  for (const std::uint8_t index : active_) {
    Task* task = std::exchange(slots_[index]->task, nullptr);
    if (task != current_ && std::find(begun.begin(), begun.end(), task) == begun.end()) begun.push_back(task);  // once, however many pages
  }
  active_.clear();
  for (Task* task : begun) end_task(*task, error);
  for (Message& message : messages_) {
    if (message.pieces != 0) end_task(*message.task, error);
    message = {};
  }
  open_messages_ = 0;
  open_sends_ = 0;
  if (current_ != nullptr) {
    Task& task = *std::exchange(current_, nullptr);
    if (source.next() == &task) source.pop();
    end_task(task, error);
  }
  return error;
}

Status Engine::loop(TaskSource& source) {
  while (true) {
    if (Status status = admit(source); !status.ok()) return status;
    if (active_.empty() && open_messages_ == 0) {
      if (current_ == nullptr && source.next() == nullptr) return {};
      end_brackets();
      continue;
    }
    auto moved = turn();
    if (!moved.ok()) return moved.take_error();
    if (control_.failed()) return control_.failure();
    if (moved.value()) {
      if (stalled_) record_stall(false);
      idle_since_ns_ = 0;
    } else if (Status status = rest(); !status.ok()) {
      return status;
    }
  }
}

Status Engine::admit(TaskSource& source) {
  while (true) {
    Task* task = current_ != nullptr ? current_ : source.next();
    refused_ = task;
    if (task == nullptr) return {};
    if (task->message()) {
      // Messages and collectives do not mix: ranks may call them in different orders.
      if (!active_.empty()) return {};
      if (control_.failed()) return control_.failure();
      source.pop();
      if (Status status = start_message(*task); !status.ok()) {
        Error error = settle(status.take_error());
        end_task(*task, error);
        return error;
      }
      continue;
    }
    if (open_messages_ != 0) return {};
    if (active_.size() >= std::max(kTogether, task->prefetch) || active_.size() >= kSlots) return {};
    if (current_ == nullptr) {
      if (control_.failed()) return control_.failure();
      if (Status status = open_task(*task); !status.ok()) {
        // Nothing of it has moved; a refusal like this is the same on every rank.
        source.pop();
        end_task(*task, status.take_error());
        continue;
      }
      current_ = task;
    }
    if (task->on_node) {
      if (!active_.empty()) return {};
      if (Status status = run_on_node(*task); !status.ok()) return status;
      current_ = nullptr;
      source.pop();
      end_task(*task, std::nullopt);
      continue;
    }
    if (task->pages_started - task->pages_done.load(std::memory_order_relaxed) >= task->prefetch) return {};
    auto started = start_page(*task);
    if (!started.ok()) return started.take_error();
    if (!started.value()) return {};
    if (task->pages_started == task->pages) {
      current_ = nullptr;
      source.pop();
    }
  }
}

bool Engine::may_send(std::size_t bytes) {
  if (!PriorityGate::must_yield(options_.priority)) return true;
  // One message at a time, and no more of them than the budget has room for.
  if (open_sends_ != 0) return false;
  return !budget_.limited() || budget_.take(bytes, monotonic_ns());
}

bool Engine::run_ready(Slot& slot) {
  bool moved = false;
  while (const auto index = slot.tracker.next_local()) {
    const Step& step = slot.plan->schedule.steps[*index];
    run_local(slot, step);
    slot.tracker.complete(*index);
    slot.dirty = true;
    moved = true;
    if (step.count * slot.element_bytes >= kBigLocal) break;
  }
  return moved;
}

Expected<bool> Engine::post_ready(Slot& slot, std::uint32_t index, bool several) {
  bool moved = false;
  bool held = false;
  const auto& lanes = slot.plan->schedule.lanes;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::uint32_t peer = lanes[lane].peer;
    const bool send = lanes[lane].send;
    const std::size_t direction = 2 * peer + (send ? 1 : 0);
    if (several && blocked_[direction] != 0) {
      held = true;
      continue;
    }
    transport::Transport& transport = *transports_[transport_of_[peer]];
    while (!slot.tracker.posted(lane)) {
      const auto number = slot.tracker.may_post(lane);
      if (!number) break;
      const Step& step = slot.plan->schedule.steps[*number];
      const std::size_t bytes = static_cast<std::size_t>(step.count) * slot.element_bytes;
      if (send && !may_send(bytes)) {
        held = true;
        break;
      }
      (void)slot.tracker.next_posted(lane);
      const std::uint32_t id = index << 24 | *number;
      transport.use_tag(slot.tag);
      Status status = send ? transport.post_send(peer, {slot.at(step.left), bytes}, id) : transport.post_recv(peer, {slot.at(step.target), bytes}, id);
      if (!status.ok()) return status.take_error();
      if (send) ++open_sends_;
      moved = true;
    }
    if (several && !slot.tracker.posted(lane)) blocked_[direction] = 1;
  }
  slot.dirty = held;
  return moved;
}

Expected<bool> Engine::turn() {
  bool moved = false;
  const bool several = active_.size() > 1;
  if (several) blocked_.assign(2 * static_cast<std::size_t>(options_.world), 0);
  for (const std::uint8_t index : active_) {
    Slot& slot = *slots_[index];
    moved = run_ready(slot) || moved;
    if (slot.tracker.all_posted() || (!slot.dirty && !several)) continue;
    auto posted = post_ready(slot, index, several);
    if (!posted.ok()) return posted.take_error();
    moved = posted.value() || moved;
  }
  finished_.clear();
  for (std::uint32_t kind = 1; kind < kTransportKinds; ++kind) {
    if ((begun_ & STEPCCL_TRANSPORT_BIT(kind)) == 0) continue;
    auto progressed = transports_[kind]->progress(finished_);
    if (!progressed.ok()) return progressed.take_error();
    moved = moved || progressed.value();
  }
  for (const std::uint32_t id : finished_) finished(id);
  for (std::size_t i = 0; i < active_.size();) {
    Slot& slot = *slots_[active_[i]];
    if (!slot.tracker.done()) {
      ++i;
      continue;
    }
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    end_page(slot);
    moved = true;
  }
  return moved;
}

void Engine::finished(std::uint32_t id) {
  const std::uint32_t index = id >> 24;
  const std::uint32_t number = id & 0xffffffu;
  if (index != kMessageSlot) {
    Slot& slot = *slots_[index];
    if (slot.plan->schedule.steps[number].kind == StepKind::send) --open_sends_;
    slot.tracker.complete(number);
    slot.dirty = true;
    return;
  }
  Message& message = messages_[number];
  if (message.task->kind == TaskKind::send) --open_sends_;
  if (--message.pieces != 0) return;
  --open_messages_;
  Task* task = std::exchange(message.task, nullptr);
  end_task(*task, std::nullopt);
}

void Engine::run_local(const Slot& slot, const Step& step) const noexcept {
  const auto count = static_cast<std::size_t>(step.count);
  std::byte* target = slot.at(step.target);
  const stepccl_redop_t redop = slot.task->redop();
  if (step.kind == StepKind::copy) {
    std::memmove(target, slot.at(step.left), count * slot.element_bytes);
  } else {
    reduce(target, slot.at(step.left), slot.at(step.right), count, slot.datatype, redop);
  }
  if (step.finish && redop == STEPCCL_AVG) divide(target, count, slot.datatype, options_.world);
}

Status Engine::rest() {
  const std::uint64_t now = monotonic_ns();
  if (idle_since_ns_ == 0) {
    idle_since_ns_ = now;
    last_progress_ns_ = now;
    next_states_ns_ = std::max(next_states_ns_, now + 1'000'000'000u);
    spins_ = 0;
  }
  // Held back by a more urgent operation: that is no standstill.
  const bool yielding = PriorityGate::must_yield(options_.priority);
  if (yielding) last_progress_ns_ = now;
  if (now - idle_since_ns_ < static_cast<std::uint64_t>(options_.spin_us) * 1'000u) {
    // Shared memory shows by itself what has come; sockets and queue pairs want to be asked.
    const std::uint32_t asked = begun_ & ~STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);
    bool poller = asked != 0;
    if (asked == STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP)) poller = !transports_[STEPCCL_TRANSPORT_TCP]->try_again();
    if (++spins_ % 256 == 0 || poller) {
      if (Status status = poller_.wait(0); !status.ok()) return status;
    }
    // A peer that has no CPU of its own needs this one.
    if (options_.crowded || now - idle_since_ns_ > (asked != 0 ? kAskingNs : kPauseNs)) {
      sched_yield();
    } else if (asked == 0) {
      for (int i = 0; i < 4; ++i) pause_cpu();
    }
    return {};
  }
  const std::uint64_t timeout_ns = std::uint64_t{timeout_ms()} * 1'000'000u;
  if (now - last_progress_ns_ >= timeout_ns) return explain_timeout(waiting_for(), STEPCCL_PHASE_TRANSFER);
  if (Status status = watch_states(); !status.ok()) return status;
  for (std::uint32_t kind = 1; kind < kTransportKinds; ++kind) {
    if ((begun_ & STEPCCL_TRANSPORT_BIT(kind)) == 0) continue;
    auto may_sleep = transports_[kind]->may_sleep();
    if (!may_sleep.ok()) return may_sleep.take_error();
    if (!may_sleep.value()) {
      sched_yield();
      return {};
    }
  }
  if (yielding) return poller_.wait(1);
  // Either wake() sees that this sleeps, or this sees what is new.
  sleeping_.store(true, std::memory_order_seq_cst);
  const struct Awake {
    std::atomic<bool>& sleeping;
    ~Awake() { sleeping.store(false, std::memory_order_relaxed); }
  } awake{sleeping_};
  if (current_ == nullptr && source_ != nullptr && source_->next() != refused_) return {};
  std::uint64_t wake_at = std::min(last_progress_ns_ + timeout_ns, next_states_ns_);
  if (now - last_progress_ns_ < kRecordedStallNs) {
    wake_at = std::min(wake_at, last_progress_ns_ + kRecordedStallNs);
  } else {
    record_stall(true);
  }
  const std::uint64_t sleep_ns = wake_at > now ? wake_at - now : 0;
  return poller_.wait(static_cast<int>(std::min<std::uint64_t>(sleep_ns / 1'000'000u + 1, 500)));
}

}  // namespace stepccl
