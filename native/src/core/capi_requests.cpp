// SPDX-License-Identifier: Apache-2.0
// Groups and requests.
#include <vector>

#include "core/capi.hpp"

using stepccl::Comm;
using stepccl::Error;
using stepccl::Status;
using stepccl::Task;
using stepccl::TaskKind;
using stepccl::capi::argument_error;
using stepccl::capi::give;
using stepccl::capi::guarded;
using stepccl::capi::usage_error;

namespace {

constexpr std::uint64_t kFusedPart = 256u << 10;   // an all_reduce of a group that may travel with others
constexpr std::uint64_t kFusedWhole = 8u << 20;

struct Collected {
  stepccl_comm_t handle;
  Comm* comm;
  std::shared_ptr<Task> task;
  stepccl_request_t* request;
};

struct Group {
  int depth = 0;
  std::vector<Collected> tasks;
  std::optional<Error> error;  // the first of a call inside
};
thread_local Group group;

// A send and a receive of this rank with itself, in their order.
Status exchange_with_oneself(std::vector<Collected>& tasks) {
  std::vector<Collected> sends;
  std::vector<Collected> receives;
  for (const auto& one : tasks) {
    if (!one.task->message() || one.task->call.root != one.comm->rank()) continue;
    (one.task->kind == TaskKind::send ? sends : receives).push_back(one);
  }
  for (const auto& one : sends) {
    const auto match = std::find_if(receives.begin(), receives.end(), [&](const Collected& other) { return other.comm == one.comm; });
    if (match == receives.end() || match->task->call.count != one.task->call.count || match->task->call.datatype != one.task->call.datatype) {
      return usage_error("a send to this rank itself has no receive of the same count and type in its group");
    }
    const std::size_t bytes = static_cast<std::size_t>(one.task->call.count) * one.task->element_bytes;
    if (bytes != 0) std::memmove(match->task->recv, one.task->send, bytes);
    for (Task* task : {one.task.get(), match->task.get()}) one.comm->queue().done_already(*task);
    receives.erase(match);
  }
  if (!receives.empty()) return usage_error("a receive from this rank itself has no send in its group");
  return {};
}

// The tasks of one communicator, small all_reduces together.
std::vector<std::shared_ptr<Task>> together(const std::vector<Collected>& tasks, const Comm* comm) {
  std::vector<std::shared_ptr<Task>> out;
  std::vector<std::shared_ptr<Task>> parts;
  std::uint64_t bytes = 0;
  const auto close = [&] {
    if (!parts.empty()) out.push_back(stepccl::fuse(std::exchange(parts, {})));
    bytes = 0;
  };
  std::vector<std::shared_ptr<Task>> messages;
  for (const auto& one : tasks) {
    if (one.comm != comm || one.task->done.load(std::memory_order_relaxed)) continue;
    if (one.task->message()) {  // after the collectives, on every rank alike
      messages.push_back(one.task);
      continue;
    }
    const std::uint64_t size = one.task->call.count * one.task->element_bytes;
    if (!stepccl::can_fuse(*one.task, kFusedPart)) {
      close();
      out.push_back(one.task);
      continue;
    }
    if (!parts.empty() && (!stepccl::fit_together(*parts.front(), *one.task) || bytes + size > kFusedWhole)) close();
    parts.push_back(one.task);
    bytes += size;
  }
  close();
  out.insert(out.end(), messages.begin(), messages.end());
  return out;
}

Status run_group(std::vector<Collected> tasks) {
  if (Status status = exchange_with_oneself(tasks); !status.ok()) return status;
  std::vector<Comm*> comms;
  for (const auto& one : tasks) {
    if (std::find(comms.begin(), comms.end(), one.comm) == comms.end()) comms.push_back(one.comm);
  }
  const bool blocking = std::none_of(tasks.begin(), tasks.end(), [](const Collected& one) { return one.request != nullptr; });
  for (Comm* comm : comms) {
    comm->queue().flush();
    if (comms.size() == 1 && blocking) {
      if (Status status = comm->queue().run_all(together(tasks, comm)); !status.ok()) return status;
    } else if (Status status = comm->queue().submit(together(tasks, comm), false); !status.ok()) {
      return status;
    }
  }
  std::optional<Error> first;
  for (const auto& one : tasks) {
    if (one.request != nullptr) {
      *one.request = new stepccl_request{one.task, one.comm};
      continue;
    }
    stepccl::wait_for_task(*one.task, 0, [&] { return one.task->done.load(std::memory_order_acquire); });
    if (!one.task->error) continue;
    one.handle->comm->set_last_error(*one.task->error);
    if (!first) first = one.task->error;
  }
  return first ? Status(*first) : Status();
}

// The result of a task that has ended.
Status result_of(const Task& task) { return task.error ? Status(*task.error) : Status(); }

}  // namespace

namespace stepccl::capi {
namespace {

Expected<Comm*> comm_of(stepccl_comm_t handle, const stepccl_call_t& options) {
  Comm* comm = handle->comm->of_priority(options.priority);
  if (comm == nullptr) return usage_error("call.priority: the communicator was made with fewer priority_levels");
  return comm;
}

// A task that comm->complete() has seen.
Status start_completed(stepccl_comm_t handle, Comm* comm, Task& task, const stepccl_call_t& options) {
  if (group.depth == 0 && options.request == nullptr) {
    comm->queue().flush();
    return comm->queue().run(task);
  }
  auto own = std::make_shared<Task>();
  own->take_call(task);
  if (group.depth != 0) {
    group.tasks.push_back({handle, comm, std::move(own), options.request});
    return {};
  }
  auto request = std::make_unique<stepccl_request>(stepccl_request{own, comm});
  if (Status status = comm->queue().submit(std::span(&own, 1), true); !status.ok()) return status;
  *options.request = request.release();
  return {};
}

}  // namespace

Status start(stepccl_comm_t handle, Task& task, const stepccl_call_t& options) {
  auto comm = comm_of(handle, options);
  if (!comm.ok()) return comm.take_error();
  if (task.message() && task.call.root == comm.value()->rank() && group.depth == 0) return usage_error("a message to this rank itself works in a group alone");
  if (Status status = comm.value()->complete(task, options); !status.ok()) return status;
  return start_completed(handle, comm.value(), task, options);
}

Status start_collective(stepccl_comm_t handle, Request& request, const stepccl_call_t& options) {
  auto comm = comm_of(handle, options);
  if (!comm.ok()) return comm.take_error();
  if (Status status = comm.value()->complete(request, options); !status.ok()) return status;
  if (group.depth == 0 && options.request == nullptr) {
    if (auto ended = comm.value()->queue().run_short(request)) return std::move(*ended);
  }
  Task task(request);
  return start_completed(handle, comm.value(), task, options);
}

void spoil_group(const Error& error) {
  if (group.depth != 0 && !group.error) group.error = error;
}

}  // namespace stepccl::capi

extern "C" {

stepccl_result_t stepccl_group_start(void) noexcept {
  ++group.depth;
  return STEPCCL_SUCCESS;
}

stepccl_result_t stepccl_group_end(void) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (group.depth == 0) return usage_error("stepccl_group_end without stepccl_group_start");
    if (--group.depth != 0) return {};
    std::vector<Collected> tasks = std::exchange(group.tasks, {});
    if (std::optional<Error> error = std::exchange(group.error, std::nullopt)) return *error;
    return run_group(std::move(tasks));
  });
}

stepccl_result_t stepccl_request_wait(stepccl_request_t request, uint32_t timeout_ms) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (request == nullptr) return argument_error("request is NULL");
    Task& task = *request->task;
    const auto done = [&] { return task.done.load(std::memory_order_acquire); };
    if (!done()) request->comm->queue().flush();
    if (stepccl::wait_for_task(task, timeout_ms, done)) return result_of(task);
    return stepccl::make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_NONE, "the operation has not ended within " + std::to_string(timeout_ms) + " ms and goes on");
  });
}

stepccl_result_t stepccl_request_test(stepccl_request_t request, int* done) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (request == nullptr || done == nullptr) return argument_error(request == nullptr ? "request is NULL" : "done is NULL");
    *done = request->task->done.load(std::memory_order_acquire) ? 1 : 0;
    if (*done != 0) return result_of(*request->task);
    request->comm->queue().flush();
    return {};
  });
}

stepccl_result_t stepccl_request_wait_page(stepccl_request_t request, uint64_t page, uint32_t timeout_ms) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (request == nullptr) return argument_error("request is NULL");
    Task& task = *request->task;
    const std::uint64_t pages = task.page_elements == 0 ? 1 : (task.call.count + task.page_elements - 1) / task.page_elements;
    if (page >= pages) return argument_error("page " + std::to_string(page) + " is not below " + std::to_string(pages));
    const auto ready = [&] { return task.done.load(std::memory_order_acquire) || task.pages_done.load(std::memory_order_acquire) > page; };
    if (!ready()) request->comm->queue().flush();
    if (!stepccl::wait_for_task(task, timeout_ms, ready)) {
      return stepccl::make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_NONE, "the page has not come within " + std::to_string(timeout_ms) + " ms and goes on");
    }
    if (task.pages_done.load(std::memory_order_acquire) > page) return {};
    return result_of(task);
  });
}

stepccl_result_t stepccl_request_query(stepccl_request_t request, stepccl_request_info_t* info) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (request == nullptr || info == nullptr) return argument_error(request == nullptr ? "request is NULL" : "info is NULL");
    const Task& task = *request->task;
    const bool done = task.done.load(std::memory_order_acquire);
    stepccl_request_info_t value{};
    value.state = task.state.load(std::memory_order_acquire);
    value.result = done && task.error ? static_cast<std::uint32_t>(task.error->code) : 0;
    if (value.state != 0) {
      value.algorithm = task.call.algorithm;
      value.sequence = task.message() ? 0 : task.sequence;
    }
    value.pages = task.page_elements == 0 ? 1 : (task.call.count + task.page_elements - 1) / task.page_elements;
    value.pages_done = done && !task.error ? value.pages : task.pages_done.load(std::memory_order_acquire);
    value.page_elements = task.page_elements == 0 ? task.call.count : task.page_elements;
    value.fused = task.fused;
    value.compression = task.compression;
    if (done) value.compression_error = task.compression_error;
    return give(*info, value);
  });
}

stepccl_result_t stepccl_request_free(stepccl_request_t request) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (request == nullptr) return argument_error("request is NULL");
    // What is held back would never leave, and its memory is the library's until it has.
    if (!request->task->done.load(std::memory_order_acquire)) request->comm->queue().flush();
    delete request;
    return {};
  });
}

}  // extern "C"
