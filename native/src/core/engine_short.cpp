// SPDX-License-Identifier: Apache-2.0
// Collectives that fit the node engine's board take less than a microsecond: nothing here allocates, locks for long, or asks for
// more of the time than the telemetry wants. They show that they run only when they have to wait.
#include <bit>

#include "core/engine.hpp"

namespace stepccl {

using bootstrap::Call;

namespace {

// As ==, without a call of memcmp.
bool same(const Call& a, const Call& b) noexcept {
  using Words = std::array<std::uint64_t, sizeof(Call) / sizeof(std::uint64_t)>;
  const auto one = std::bit_cast<Words>(a);
  const auto two = std::bit_cast<Words>(b);
  return ((one[0] ^ two[0]) | (one[1] ^ two[1])) == 0;
}

}  // namespace

bool Engine::is_short(const Request& request) const noexcept {
  return request.kind == TaskKind::collective && request.compression <= STEPCCL_COMPRESSION_NONE && request.page_elements == 0 &&
         planner_.has_node_engine();
}

Engine::ShortPlan& Engine::short_plan(const Request& request) {
  const std::size_t mixed = request.call.count ^ request.call.count >> 3 ^ request.call.collective ^ request.call.root;
  ShortPlan& plan = short_plans_[mixed % short_plans_.size()];
  if (plan.made && same(plan.asked, request.call) && plan.allowed == request.allowed) return plan;
  const std::uint64_t bytes = bytes_of_call(request, options_.world);
  const stepccl_algorithm_t algorithm = planner_.on_node(request.collective(), bytes, request.allowed);
  plan = {.asked = request.call, .allowed = request.allowed, .made = true, .call = request.call};
  plan.fits = algorithm != STEPCCL_ALGORITHM_AUTO && planner_.node_engine()->by_board(request.collective(), bytes);
  plan.call.algorithm = static_cast<std::uint8_t>(algorithm);
  plan.signature = task_signature(plan.call, request);
  plan.op = op_record(plan.call, 0, bytes, 0);
  plan.record = OperationLog::describe(plan.call, bytes);
  plan.record.transport = plan.op.transport;
  return plan;
}

std::optional<Status> Engine::run_short(const Request& request, std::atomic<std::uint64_t>& collectives) {
  ShortPlan& plan = short_plan(request);
  if (!plan.fits) return std::nullopt;
  sequence_ = collectives.fetch_add(1, std::memory_order_relaxed) + 1;
  calls_[sequence_ % kCalls] = plan.call;
  last_algorithm_.store(plan.call.algorithm, std::memory_order_relaxed);
  short_ = {&request, &plan, ring_.is_open() ? clock_.now_ns() : 0, 0, false};
  idle_since_ns_ = 0;

  Status status = planner_.node_engine()->run(node_call(request, sequence_, plan.signature), node_rest_);
  if (status.ok()) {
    end_short(STEPCCL_SUCCESS);
    return status;
  }
  show_short();  // so that the others can say what does not fit
  Error error = settle(status.take_error());
  end_short(error.code);
  return Status(std::move(error));
}

void Engine::show_short() {
  if (short_.shown) return;
  short_.shown = true;
  PriorityGate::enter(options_.priority);
  begun_ |= STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);
  state_.sequence = sequence_;
  publish_state(true);
  if (!ring_.is_open()) return;
  ShortPlan& plan = *short_.plan;
  plan.op.sequence = sequence_;
  plan.op.begin_ns = short_.begin_ns;
  plan.op.end_ns = 0;
  plan.op.state = STEPCCL_OP_STARTED;
  plan.op.error = 0;
  ring_.publish(plan.op);
  stepccl_flight_op record = plan.record;
  record.sequence = sequence_;
  record.queued_ns = record.started_ns = short_.begin_ns;
  record.ended_ns = 0;
  record.state = STEPCCL_FLIGHT_STARTED;
  short_.record = log_.recorder().called(record);
}

void Engine::end_short(stepccl_result_t result) {
  state_.sequence = sequence_;
  publish_state(false);
  if (ring_.is_open()) {
    ShortPlan& plan = *short_.plan;
    plan.op.sequence = sequence_;
    plan.op.begin_ns = short_.begin_ns;
    plan.op.end_ns = clock_.now_ns();
    plan.op.state = result == STEPCCL_SUCCESS ? STEPCCL_OP_COMPLETED : STEPCCL_OP_FAILED;
    plan.op.error = static_cast<std::uint16_t>(result);
    ring_.publish(plan.op);
    ring_.heartbeat(plan.op.end_ns);
    if (short_.shown) {
      log_.recorder().ended(short_.record, plan.op.end_ns, plan.op.error);
    } else {
      plan.record.sequence = sequence_;
      plan.record.queued_ns = plan.record.started_ns = short_.begin_ns;
      plan.record.ended_ns = plan.op.end_ns;
      plan.record.state = STEPCCL_FLIGHT_COMPLETED;
      (void)log_.recorder().called(plan.record);
    }
  }
  if (short_.shown) {
    end_brackets();
    PriorityGate::leave(options_.priority);
    stalled_ = false;
  }
  operations_.store(operations_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  short_ = {};
}

}  // namespace stepccl
