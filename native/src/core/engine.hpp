// SPDX-License-Identifier: Apache-2.0
// Runs tasks: their schedules over the transports, in one thread at a time. Collectives move side by side, a lane of one
// behind the same lane of the one before it, so that the order of a pair's messages is the order of the calls.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "bootstrap/control_plane.hpp"
#include "core/operation_log.hpp"
#include "core/planner.hpp"
#include "core/priority.hpp"
#include "core/scratch.hpp"
#include "core/task.hpp"
#include "core/tick_clock.hpp"
#include "schedule/tracker.hpp"
#include "telemetry/control_page.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/node_engine.hpp"
#include "transport/transport.hpp"

namespace stepccl {

// Where tasks come from, in the order that all ranks share.
class TaskSource {
 public:
  virtual ~TaskSource() = default;
  // The next one, the same until pop(); nullptr where there is none now.
  [[nodiscard]] virtual Task* next() = 0;
  virtual void pop() = 0;
};

class Engine {
 public:
  struct Options {
    std::uint32_t rank = 0;
    std::uint32_t world = 1;
    std::uint32_t timeout_ms = 30'000;
    std::uint32_t pipeline_depth = 4;
    std::int64_t spin_us = 0;
    bool crowded = false;  // more ranks than CPUs on this node: whoever waits yields
    std::uint32_t priority = STEPCCL_PRIORITY_NORMAL;
    std::uint32_t bandwidth_MBps = 0;
  };
  using TransportTable = std::array<transport::Transport*, kTransportKinds>;

  Engine(const Options& options, Planner& planner, bootstrap::ControlPlane& control, transport::Poller& poller, telemetry::RingWriter& ring,
         OperationLog& log, telemetry::ControlPage& page, const TransportTable& transports, const std::vector<stepccl_transport>& transport_of, stepccl_transport slowest);

  // Runs until the source is empty and everything has ended. Each task is ended with its result; after an error, which the
  // communicator does not survive, all that were begun, and the source keeps the others.
  [[nodiscard]] Status run(TaskSource& source);
  // Whether run_short() is worth trying. Any thread.
  [[nodiscard]] bool is_short(const Request& request) const noexcept;
  // A collective that fits the node engine's board, at once and without a task: what it needs of a plan is kept from the last
  // such call. `collectives` counts it. nullopt, and nothing has happened, where it does not fit.
  [[nodiscard]] std::optional<Status> run_short(const Request& request, std::atomic<std::uint64_t>& collectives);
  // For the poller, once.
  [[nodiscard]] Status open();
  // Any thread: the source has something new.
  void wake() noexcept;

  void set_pipeline_depth(std::uint32_t depth) noexcept { depth_.store(depth, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t pipeline_depth() const noexcept { return depth_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t last_algorithm() const noexcept { return last_algorithm_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] double last_compression_error() const noexcept { return last_compression_error_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool registers_memory() const noexcept;

 private:
  static constexpr std::uint32_t kSlots = 64;
  static constexpr std::uint32_t kMessageSlot = 255;  // in a step's number: a message, no schedule's step
  static constexpr std::uint32_t kCalls = 128;
  static constexpr std::uint32_t kMessageBit = 1u << 31;  // of a tag's sequence: no collective's

  // One schedule that runs: a task, or a page of one.
  struct Slot {
    Task* task = nullptr;
    std::uint64_t page = 0;
    schedule::Tracker tracker;
    Plan* plan = nullptr;
    Plan own_plan;                     // of a vector exchange
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    ScratchMemory scratch;
    std::size_t element_bytes = 1;
    stepccl_datatype_t datatype{};
    transport::OperationTag tag;
    std::uint64_t count = 0;           // of a block of this page
    std::byte* staged_input = nullptr;  // nullptr: the caller's memory is used
    std::byte* staged_output = nullptr;
    bool dirty = true;                 // steps may have become ready
    [[nodiscard]] std::byte* at(schedule::Place place) const noexcept;
  };
  struct Message {
    Task* task = nullptr;
    std::uint32_t pieces = 0;  // 0 = free
  };

  // What a short collective needs that follows from its call alone.
  struct ShortPlan {
    bootstrap::Call asked;  // its algorithm is AUTO
    std::uint32_t allowed = 0;
    bool made = false;
    bool fits = false;
    bootstrap::Call call;
    std::uint32_t signature = 0;
    stepccl_op op{};                   // what the ring and the recorder say of it, but for its number and its times
    stepccl_flight_op record{};
  };
  // The short collective that runs.
  struct ShortRun {
    const Request* request = nullptr;  // nullptr: none does
    ShortPlan* plan = nullptr;
    std::uint64_t begin_ns = 0;        // 0 where nobody asks
    std::uint64_t record = 0;          // in the flight recorder, once it is shown
    bool shown = false;                // the others can see that it runs
  };

  [[nodiscard]] Status loop(TaskSource& source);
  [[nodiscard]] Status admit(TaskSource& source);
  [[nodiscard]] Status open_task(Task& task);
  // A task that the node engine takes, from its first step to its last.
  [[nodiscard]] Status run_on_node(Task& task);
  // What the node engine calls while nothing comes.
  [[nodiscard]] Status rest_on_node(const std::function<std::vector<std::uint32_t>()>& waiting, bool moved);
  [[nodiscard]] ShortPlan& short_plan(const Request& request);
  void show_short();
  void end_short(stepccl_result_t result);
  [[nodiscard]] Expected<bool> start_page(Task& task);  // false: not before everything else has ended
  [[nodiscard]] Status prepare(Slot& slot, std::size_t scratch_bytes, bool staged);
  void bring_in(Slot& slot);
  void bring_out(Slot& slot);
  void end_page(Slot& slot);
  void end_task(Task& task, std::optional<Error> error);
  [[nodiscard]] Status start_message(Task& task);
  [[nodiscard]] Status connect(const Task& task, std::span<const std::uint32_t> peers, std::uint32_t& transports);
  [[nodiscard]] Status begin(std::uint32_t transports, std::span<const transport::Region> regions);
  void end_brackets() noexcept;

  [[nodiscard]] Expected<bool> turn();
  [[nodiscard]] Expected<bool> post_ready(Slot& slot, std::uint32_t index, bool several);
  bool run_ready(Slot& slot);
  [[nodiscard]] bool may_send(std::size_t bytes);
  void run_local(const Slot& slot, const schedule::Step& step) const noexcept;
  void finished(std::uint32_t id);
  [[nodiscard]] Status rest();

  // engine_diagnosis.cpp: what to tell when something stands still.
  [[nodiscard]] Status watch_states();
  [[nodiscard]] Status look_for_mismatch(const std::vector<bootstrap::OperationState>& states) const;
  [[nodiscard]] Error explain_mismatch(Error error);
  [[nodiscard]] Error explain_timeout(const std::vector<std::uint32_t>& waiting, stepccl_phase_t phase);
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;
  // Tells the recorder whom the operations that run wait for, or that they move again.
  void record_stall(bool stalled);
  [[nodiscard]] Error settle(Error error);
  void publish_state(bool running);
  void publish(const Task& task, stepccl_op_state state, std::uint64_t now, stepccl_result_t error);
  [[nodiscard]] stepccl_op op_record(const bootstrap::Call& call, std::uint64_t sequence, std::uint64_t bytes, std::uint64_t begin_ns) const noexcept;
  [[nodiscard]] std::uint32_t timeout_ms() const noexcept;
  // A collective as the node engine takes it.
  [[nodiscard]] static transport::NodeCall node_call(const Request& request, std::uint64_t sequence, std::uint32_t signature) noexcept {
    return {.collective = request.collective(), .send = request.send, .recv = request.recv, .count = request.call.count, .datatype = request.datatype(),
            .redop = request.redop(), .root = request.call.root, .tag = {static_cast<std::uint32_t>(sequence) & ~kMessageBit, signature}};
  }

  const Options options_;
  Planner& planner_;
  bootstrap::ControlPlane& control_;
  transport::Poller& poller_;
  telemetry::RingWriter& ring_;
  OperationLog& log_;
  telemetry::ControlPage& page_;
  const TransportTable& transports_;
  const std::vector<stepccl_transport>& transport_of_;  // by peer
  const stepccl_transport slowest_;

  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  std::vector<std::uint8_t> active_;     // slots in the order of their tasks and pages
  std::vector<std::uint8_t> blocked_;    // by peer and direction: an earlier task has still to post there
  std::vector<Message> messages_;
  std::uint32_t open_messages_ = 0;
  std::vector<std::uint32_t> sent_to_;   // messages of a pair so far
  std::vector<std::uint32_t> received_from_;
  std::vector<std::byte> marker_;        // what a message of no elements sends
  Task* current_ = nullptr;              // opened, with pages to start
  std::function<std::vector<std::uint32_t>()> node_waits_for_;  // while the node engine waits
  const transport::NodeEngine::Rest node_rest_;
  std::array<ShortPlan, 8> short_plans_;
  ShortRun short_;
  TickClock clock_;
  TaskSource* source_ = nullptr;         // while it runs
  Task* refused_ = nullptr;              // what the last admit() left where it was
  Fd wake_;
  std::atomic<bool> sleeping_{false};
  bool stalled_ = false;                 // the recorder says who is waited for
  std::uint32_t begun_ = 0;              // STEPCCL_TRANSPORT_BIT set between begin() and end()
  std::uint32_t regions_ = 0;            // registered since
  std::uint32_t open_sends_ = 0;
  std::vector<std::uint32_t> finished_;  // reused between turns
  std::array<bootstrap::Call, kCalls> calls_{};  // by sequence
  std::uint64_t sequence_ = 0;
  bootstrap::OperationState state_;
  Budget budget_;
  bool urgent_ = false;                  // counted at the gate

  std::uint64_t last_progress_ns_ = 0;
  std::uint64_t idle_since_ns_ = 0;      // 0 = not idle
  std::uint64_t next_states_ns_ = 0;     // when to ask what the others are in
  std::uint64_t states_seen_ = 0;
  std::uint32_t spins_ = 0;

  std::atomic<std::uint32_t> depth_;
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint32_t> last_algorithm_{0};
  std::atomic<std::uint64_t> held_bytes_{0};
  std::atomic<double> last_compression_error_{0};
};

}  // namespace stepccl
