// SPDX-License-Identifier: Apache-2.0
#include "core/operation_log.hpp"

#include "core/clock.hpp"

namespace stepccl {
namespace {

template <class T, class F>
void for_each_operation(T& task, F&& f) {
  if (task.parts.empty()) return f(task);
  for (const auto& part : task.parts) f(*part);
}

}  // namespace

stepccl_flight_op OperationLog::describe(const bootstrap::Call& call, std::uint64_t bytes) noexcept {
  stepccl_flight_op op{};
  op.root = call.root;
  op.count = call.count;
  op.bytes = bytes;
  op.collective = call.collective;
  op.algorithm = call.algorithm;
  op.datatype = call.datatype;
  const bool reduces = call.collective == STEPCCL_ALL_REDUCE || call.collective == STEPCCL_REDUCE_SCATTER || call.collective == STEPCCL_REDUCE;
  op.redop = reduces ? call.redop : std::uint8_t{STEPCCL_FLIGHT_NO_REDOP};
  return op;
}

void OperationLog::record(Task& task, std::uint64_t queued_ns, stepccl_flight_state state) noexcept {
  stepccl_flight_op op = describe(task.call, bytes_of_task(task, world_));
  op.sequence = task.sequence;
  op.queued_ns = queued_ns;
  op.started_ns = state == STEPCCL_FLIGHT_STARTED ? queued_ns : 0;
  op.state = static_cast<std::uint8_t>(state);
  if (task.message()) op.message = task.kind == TaskKind::send ? STEPCCL_FLIGHT_SEND : STEPCCL_FLIGHT_RECV;
  task.record = recorder_.called(op);
}

void OperationLog::queued(Task& task) noexcept {
  if (!is_on()) return;
  const std::uint64_t now = monotonic_ns();
  for_each_operation(task, [&](Task& one) { record(one, now, STEPCCL_FLIGHT_QUEUED); });
}

void OperationLog::started(Task& task, stepccl_transport slowest) noexcept {
  if (!is_on()) return;
  for_each_operation(task, [&](Task& one) {
    if (one.record == 0) record(one, task.begin_ns, STEPCCL_FLIGHT_STARTED);
    recorder_.started(one.record, task.begin_ns, one.sequence, task.call.algorithm, static_cast<std::uint8_t>(slowest));
  });
}

void OperationLog::waits_for(const Task& task, std::span<const std::uint32_t> ranks) noexcept {
  if (!is_on()) return;
  for_each_operation(task, [&](const Task& one) { recorder_.waits_for(one.record, ranks); });
}

void OperationLog::ended(Task& task, std::uint64_t now_ns, const std::optional<Error>& error) noexcept {
  if (!is_on()) return;
  const auto code = static_cast<std::uint16_t>(error ? error->code : STEPCCL_SUCCESS);
  for_each_operation(task, [&](Task& one) {
    if (one.record == 0 && task.begin_ns == 0) record(one, now_ns, STEPCCL_FLIGHT_QUEUED);
    recorder_.ended(one.record, now_ns, code);
  });
}

}  // namespace stepccl
