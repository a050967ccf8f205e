// SPDX-License-Identifier: Apache-2.0
#include "core/task.hpp"

#include "schedule/schedule.hpp"

namespace stepccl {

void Task::end(std::optional<Error> why) {
  for (const auto& part : parts) {
    part->call.algorithm = call.algorithm;
    part->pages_done.store(1, std::memory_order_release);
    part->end(why);
  }
  if (!background) {
    error = std::move(why);
    done.store(true, std::memory_order_release);
    return;
  }
  const std::lock_guard lock(mutex);
  state.store(why ? STEPCCL_OP_FAILED : STEPCCL_OP_COMPLETED, std::memory_order_release);
  error = std::move(why);
  done.store(true, std::memory_order_release);
  changed.notify_all();
}

void Task::take_call(Task& other) {
  static_cast<Request&>(*this) = other;
  arrays = std::move(other.arrays);
  parts = std::move(other.parts);
}

std::uint64_t bytes_of_call(const Request& request, std::uint32_t world) noexcept {
  if (request.collective() == STEPCCL_BARRIER) return 0;
  return request.call.count * request.element_bytes * (schedule::is_blocked(request.collective()) ? world : 1);
}

std::uint64_t bytes_of_task(const Task& task, std::uint32_t world) noexcept {
  if (task.kind != TaskKind::vector) return bytes_of_call(task, world);
  std::uint64_t elements = 0;
  for (std::uint32_t p = 0; p < world; ++p) elements += task.arrays[p];
  return elements * task.element_bytes;
}

Extent extent_of(stepccl_collective_t collective, std::uint32_t rank, std::uint32_t world, std::uint32_t root, std::uint64_t count,
                 std::uint64_t stride) noexcept {
  const std::uint64_t whole = count == 0 ? 0 : (world - 1) * stride + count;
  switch (collective) {
    case STEPCCL_ALL_GATHER: return {count, whole};
    case STEPCCL_REDUCE_SCATTER: return {whole, count};
    case STEPCCL_BROADCAST: return {rank == root ? count : 0, count};
    case STEPCCL_REDUCE: return {count, rank == root ? count : 0};
    case STEPCCL_SCATTER: return {rank == root ? whole : 0, count};
    case STEPCCL_GATHER: return {count, rank == root ? whole : 0};
    case STEPCCL_ALL_TO_ALL: return {whole, whole};
    case STEPCCL_BARRIER: return {0, 0};
    default: return {count, count};
  }
}

std::uint32_t signature_of(const bootstrap::Call& call) noexcept {
  std::uint32_t hash = 2166136261u;
  const auto mix = [&hash](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ static_cast<std::uint8_t>(value >> (8 * i))) * 16777619u;
  };
  mix(call.count);
  mix(call.root);
  mix(std::uint64_t{call.collective} | std::uint64_t{call.algorithm} << 8 | std::uint64_t{call.datatype} << 16 | std::uint64_t{call.redop} << 24);
  return hash;
}

std::string call_text(const bootstrap::Call& call) {
  const auto collective = static_cast<stepccl_collective_t>(call.collective);
  std::string text = stepccl_collective_name(collective);
  if (collective != STEPCCL_BARRIER) {
    text += " of " + std::to_string(call.count) + " " + stepccl_datatype_name(static_cast<stepccl_datatype_t>(call.datatype));
  }
  if (collective == STEPCCL_ALL_REDUCE || collective == STEPCCL_REDUCE || collective == STEPCCL_REDUCE_SCATTER) {
    text += std::string(" ") + stepccl_redop_name(static_cast<stepccl_redop_t>(call.redop));
  }
  if (collective == STEPCCL_BROADCAST || collective == STEPCCL_REDUCE || collective == STEPCCL_SCATTER || collective == STEPCCL_GATHER) {
    text += (collective == STEPCCL_REDUCE || collective == STEPCCL_GATHER ? " to root " : " from root ") + std::to_string(call.root);
  }
  return text + " by " + stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(call.algorithm));
}

}  // namespace stepccl
