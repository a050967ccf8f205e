// SPDX-License-Identifier: Apache-2.0
// The C interface of operations: argument checks, and what each call means as a task.
#include "core/capi.hpp"

using stepccl::Request;
using stepccl::Status;
using stepccl::Task;
using stepccl::TaskKind;
using stepccl::capi::argument_error;
using stepccl::capi::guarded;
using stepccl::capi::options_of;
using stepccl::capi::start;
using stepccl::capi::start_collective;

namespace {

bool is_reducing(stepccl_collective_t c) { return c == STEPCCL_ALL_REDUCE || c == STEPCCL_REDUCE || c == STEPCCL_REDUCE_SCATTER; }
bool is_rooted(stepccl_collective_t c) { return c == STEPCCL_BROADCAST || c == STEPCCL_REDUCE || c == STEPCCL_SCATTER || c == STEPCCL_GATHER; }

Status check_buffer(const char* name, const void* buffer, std::uint64_t elements, std::size_t element) {
  if (elements == 0) return {};
  if (buffer == nullptr) return argument_error(std::string(name) + " is NULL");
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer);
  if (begin % element != 0) return argument_error(std::string(name) + " is not aligned to the datatype");
  if (begin > UINTPTR_MAX - elements * element) return argument_error("a buffer runs past the end of the address space");
  return {};
}

// Sets task.in_place where input and output are the same memory in the collective's in-place form; any other overlap is refused.
// The shifts are where each begins in the memory that they share, in elements.
Status check_overlap(Request& task, std::uint64_t input, std::uint64_t output, std::uint64_t input_shift, std::uint64_t output_shift) {
  task.in_place = false;
  if (input == 0 || output == 0) return {};
  const auto from = reinterpret_cast<std::uintptr_t>(task.send);
  const auto to = reinterpret_cast<std::uintptr_t>(task.recv);
  const std::size_t element = task.element_bytes;
  if (from - input_shift * element == to - output_shift * element) {
    task.in_place = true;
    return {};
  }
  if (from < to + output * element && to < from + input * element) {
    return argument_error(input_shift == output_shift ? "send and recv overlap without being the same" : "send and recv overlap, but not as the in-place form has it");
  }
  return {};
}

Status check_element(Request& task, stepccl_datatype_t datatype) {
  task.element_bytes = stepccl_datatype_bytes(datatype);
  if (task.element_bytes == 0) return argument_error("datatype " + std::to_string(static_cast<int>(datatype)) + " is outside its enumeration");
  task.call.datatype = static_cast<std::uint8_t>(datatype);
  return {};
}

struct Arguments {
  stepccl_collective_t collective;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  stepccl_datatype_t datatype = STEPCCL_UINT8;
  stepccl_redop_t redop = STEPCCL_SUM;
  std::uint32_t root = 0;
};

Status describe(const stepccl::Comm& comm, const Arguments& a, Request& task) {
  if (Status status = check_element(task, a.datatype); !status.ok()) return status;
  if (is_reducing(a.collective) && static_cast<unsigned>(a.redop) >= STEPCCL_REDOP_COUNT) {
    return argument_error("redop " + std::to_string(static_cast<int>(a.redop)) + " is outside its enumeration");
  }
  const std::uint32_t world = comm.world();
  if (is_rooted(a.collective) && a.root >= world) return argument_error("root " + std::to_string(a.root) + " is not below the world size " + std::to_string(world));
  if (a.count > (SIZE_MAX / 2) / task.element_bytes / (stepccl::schedule::is_blocked(a.collective) ? world : 1)) {
    return argument_error("count " + std::to_string(a.count) + " does not fit the address space");
  }
  task.call.collective = static_cast<std::uint8_t>(a.collective);
  task.call.redop = is_reducing(a.collective) ? static_cast<std::uint8_t>(a.redop) : std::uint8_t{0};
  task.call.root = a.root;
  task.call.count = a.count;
  task.send = static_cast<const std::byte*>(a.send);
  task.recv = static_cast<std::byte*>(a.recv);
  const stepccl::Extent extent = stepccl::extent_of(a.collective, comm.rank(), world, a.root, a.count, a.count);
  if (Status status = check_buffer("send", a.send, extent.input, task.element_bytes); !status.ok()) return status;
  if (Status status = check_buffer("recv", a.recv, extent.output, task.element_bytes); !status.ok()) return status;
  std::uint64_t input_shift = 0;
  std::uint64_t output_shift = 0;
  if (a.collective == STEPCCL_ALL_GATHER) input_shift = comm.rank() * a.count;
  if (a.collective == STEPCCL_REDUCE_SCATTER) output_shift = comm.rank() * a.count;
  if (a.collective == STEPCCL_GATHER) input_shift = a.root * a.count;
  if (a.collective == STEPCCL_SCATTER) output_shift = a.root * a.count;
  return check_overlap(task, extent.input, extent.output, input_shift, output_shift);
}

// Runs attempt(options), which gives a Status.
template <class F>
stepccl_result_t call_checked(stepccl_comm_t comm, const stepccl_call_t* call, F&& attempt) noexcept {
  return guarded(comm, [&]() -> Status {
    const auto whole = [&]() -> Status {
      if (comm == nullptr) return argument_error("comm is NULL");
      auto options = options_of(call);
      if (!options.ok()) return options.take_error();
      return attempt(options.value());
    };
    Status status = whole();
    if (!status.ok()) stepccl::capi::spoil_group(status.error());
    return status;
  });
}

// Runs describe_task(task) and starts the task.
template <class F>
stepccl_result_t operation(stepccl_comm_t comm, const stepccl_call_t* call, F&& describe_task) noexcept {
  return call_checked(comm, call, [&](const stepccl_call_t& options) -> Status {
    Task task;
    if (Status status = describe_task(task); !status.ok()) return status;
    return start(comm, task, options);
  });
}

stepccl_result_t run(stepccl_comm_t comm, const Arguments& arguments, const stepccl_call_t* call) noexcept {
  return call_checked(comm, call, [&](const stepccl_call_t& options) -> Status {
    Request request;
    if (Status status = describe(*comm->comm, arguments, request); !status.ok()) return status;
    return start_collective(comm, request, options);
  });
}

stepccl_result_t message(stepccl_comm_t comm, TaskKind kind, const void* send, void* recv, std::size_t count, stepccl_datatype_t datatype, std::uint32_t peer,
                         const stepccl_call_t* call) noexcept {
  return operation(comm, call, [&](Task& task) -> Status {
    task.kind = kind;
    if (Status status = check_element(task, datatype); !status.ok()) return status;
    if (peer >= comm->comm->world()) return argument_error("peer " + std::to_string(peer) + " is not below the world size " + std::to_string(comm->comm->world()));
    if (count > (SIZE_MAX / 2) / task.element_bytes) return argument_error("count " + std::to_string(count) + " does not fit the address space");
    if (Status status = check_buffer("buffer", kind == TaskKind::send ? send : recv, count, task.element_bytes); !status.ok()) return status;
    task.call.collective = STEPCCL_SEND_RECV;
    task.call.count = count;
    task.call.root = peer;
    task.send = static_cast<const std::byte*>(send);
    task.recv = static_cast<std::byte*>(recv);
    return {};
  });
}

Status describe_vector(const stepccl::Comm& comm, const void* send, const std::size_t* const (&arrays)[4], void* recv, Task& task) {
  const std::uint32_t world = comm.world();
  const std::size_t most = SIZE_MAX / 2 / task.element_bytes;
  std::uint64_t ends[2] = {0, 0};
  for (std::size_t side = 0; side < 2; ++side) {
    const std::size_t* counts = arrays[2 * side];
    const std::size_t* places = arrays[2 * side + 1];
    if (counts == nullptr || places == nullptr) return argument_error("an array of counts or displacements is NULL");
    for (std::uint32_t p = 0; p < world; ++p) {
      if (counts[p] > most || places[p] > most - counts[p]) return argument_error("a count or displacement for rank " + std::to_string(p) + " does not fit the address space");
      if (counts[p] != 0) ends[side] = std::max<std::uint64_t>(ends[side], places[p] + counts[p]);
    }
  }
  if (arrays[0][comm.rank()] != arrays[2][comm.rank()]) return argument_error("this rank sends itself another count than it receives from itself");
  // Ranges that would be written twice.
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::uint32_t p = 0; p < world; ++p) {
    if (arrays[2][p] != 0) ranges.emplace_back(arrays[3][p], arrays[3][p] + arrays[2][p]);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) return argument_error("ranges of recv overlap");
  }
  task.kind = TaskKind::vector;
  task.call.collective = STEPCCL_ALL_TO_ALL;
  task.send = static_cast<const std::byte*>(send);
  task.recv = static_cast<std::byte*>(recv);
  for (const std::size_t* array : arrays) task.arrays.insert(task.arrays.end(), array, array + world);
  task.arrays.push_back(ends[0]);
  task.arrays.push_back(ends[1]);
  if (Status status = check_buffer("send", send, ends[0], task.element_bytes); !status.ok()) return status;
  if (Status status = check_buffer("recv", recv, ends[1], task.element_bytes); !status.ok()) return status;
  if (Status status = check_overlap(task, ends[0], ends[1], 0, 0); !status.ok()) return status;
  if (task.in_place) task.arrays[4 * world] = task.arrays[4 * world + 1] = std::max(ends[0], ends[1]);
  return {};
}

}  // namespace

extern "C" {

stepccl_result_t stepccl_all_reduce(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype,
                                    stepccl_redop_t redop, const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_ALL_REDUCE, send, recv, count, datatype, redop}, call);
}

stepccl_result_t stepccl_all_gather(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype,
                                    const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_ALL_GATHER, send, recv, count, datatype}, call);
}

stepccl_result_t stepccl_reduce_scatter(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype,
                                        stepccl_redop_t redop, const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_REDUCE_SCATTER, send, recv, count, datatype, redop}, call);
}

stepccl_result_t stepccl_broadcast(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t root,
                                   const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_BROADCAST, send, recv, count, datatype, STEPCCL_SUM, root}, call);
}

stepccl_result_t stepccl_reduce(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop,
                                uint32_t root, const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_REDUCE, send, recv, count, datatype, redop, root}, call);
}

stepccl_result_t stepccl_scatter(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t root,
                                 const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_SCATTER, send, recv, count, datatype, STEPCCL_SUM, root}, call);
}

stepccl_result_t stepccl_gather(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t root,
                                const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_GATHER, send, recv, count, datatype, STEPCCL_SUM, root}, call);
}

stepccl_result_t stepccl_all_to_all(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype,
                                    const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_ALL_TO_ALL, send, recv, count, datatype}, call);
}

stepccl_result_t stepccl_all_to_all_v(stepccl_comm_t comm, const void* send, const size_t* send_counts, const size_t* send_displacements, void* recv,
                                      const size_t* recv_counts, const size_t* recv_displacements, stepccl_datatype_t datatype,
                                      const stepccl_call_t* call) noexcept {
  return operation(comm, call, [&](Task& task) -> Status {
    if (Status status = check_element(task, datatype); !status.ok()) return status;
    const std::size_t* const arrays[4] = {send_counts, send_displacements, recv_counts, recv_displacements};
    return describe_vector(*comm->comm, send, arrays, recv, task);
  });
}

stepccl_result_t stepccl_send(stepccl_comm_t comm, const void* buffer, size_t count, stepccl_datatype_t datatype, uint32_t peer,
                              const stepccl_call_t* call) noexcept {
  return message(comm, TaskKind::send, buffer, nullptr, count, datatype, peer, call);
}

stepccl_result_t stepccl_recv(stepccl_comm_t comm, void* buffer, size_t count, stepccl_datatype_t datatype, uint32_t peer,
                              const stepccl_call_t* call) noexcept {
  return message(comm, TaskKind::recv, nullptr, buffer, count, datatype, peer, call);
}

stepccl_result_t stepccl_barrier(stepccl_comm_t comm, const stepccl_call_t* call) noexcept {
  return run(comm, {STEPCCL_BARRIER, nullptr, nullptr, 1}, call);
}

stepccl_result_t stepccl_comm_explain(stepccl_comm_t comm, stepccl_collective_t collective, uint64_t bytes, const stepccl_call_t* call,
                                      stepccl_algorithm_t* chosen, char* text, size_t text_bytes) noexcept {
  return guarded(comm, [&]() -> Status {
    if (comm == nullptr) return argument_error("comm is NULL");
    if (static_cast<unsigned>(collective) >= STEPCCL_COLLECTIVE_COUNT) return argument_error("collective is outside its enumeration");
    if (text == nullptr && text_bytes != 0) return argument_error("text is NULL");
    auto options = options_of(call);
    if (!options.ok()) return options.take_error();
    std::string lines;
    const std::uint32_t allowed = options.value().algorithm == STEPCCL_ALGORITHM_AUTO ? ~0u : 1u << options.value().algorithm;
    auto algorithm = comm->comm->explain(collective, bytes, allowed, lines);
    if (!algorithm.ok()) return algorithm.take_error();
    if (chosen != nullptr) *chosen = algorithm.value();
    if (text_bytes != 0) {
      const std::size_t used = std::min(lines.size(), text_bytes - 1);
      std::memcpy(text, lines.data(), used);
      text[used] = '\0';
    }
    return {};
  });
}

}  // extern "C"
