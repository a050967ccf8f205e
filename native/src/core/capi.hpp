// SPDX-License-Identifier: Apache-2.0
// What the files of the C interface share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "core/comm.hpp"

struct stepccl_comm {
  std::unique_ptr<stepccl::Comm> comm;
};

// The task outlives the handle, and the communicator has to outlive the task.
struct stepccl_request {
  std::shared_ptr<stepccl::Task> task;
  stepccl::Comm* comm = nullptr;  // to flush what is held back; not touched once the task has ended
};

namespace stepccl::capi {

inline thread_local std::optional<Error> thread_error;
inline thread_local std::int32_t thread_rank = -1;

[[nodiscard]] inline Error argument_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }
[[nodiscard]] inline Error usage_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

[[nodiscard]] inline stepccl_result_t keep(stepccl_comm_t comm, Error error) {
  const stepccl_result_t code = error.code;
  if (comm != nullptr) comm->comm->set_last_error(error);
  thread_error = std::move(error);
  return code;
}

// Runs f, which gives a Status; nothing escapes.
template <class F>
[[nodiscard]] stepccl_result_t guarded(stepccl_comm_t comm, F&& f) noexcept {
  try {
    Status status = f();
    return status.ok() ? STEPCCL_SUCCESS : keep(comm, status.take_error());
  } catch (const std::bad_alloc&) {
    try {
      return keep(comm, make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_NONE, "no memory"));
    } catch (...) {
      return STEPCCL_ERROR_OUT_OF_MEMORY;
    }
  } catch (const std::exception& problem) {
    try {
      return keep(comm, make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_NONE, problem.what()));
    } catch (...) {
      return STEPCCL_ERROR_INTERNAL;
    }
  } catch (...) {
    return STEPCCL_ERROR_INTERNAL;
  }
}

// Copies a growing struct to its caller, no further than the size that the caller knows.
template <class T>
[[nodiscard]] Status give(T& target, T value) {
  if (target.size < 2 * sizeof(std::uint32_t)) return argument_error("info.size is smaller than any version of the struct");
  const std::uint32_t size = target.size;
  value.size = size;
  std::memcpy(&target, &value, std::min<std::size_t>(size, sizeof value));
  return {};
}

// What a call asks for, with the defaults of fields that its caller does not know.
[[nodiscard]] inline Expected<stepccl_call_t> options_of(const stepccl_call_t* call) {
  stepccl_call_t options = STEPCCL_CALL_INIT;
  if (call == nullptr) return options;
  if (call->size < offsetof(stepccl_call_t, request)) return argument_error("call.size is smaller than any version of the struct");
  std::memcpy(&options, call, std::min<std::size_t>(call->size, sizeof options));
  if (options.algorithm >= STEPCCL_ALGORITHM_COUNT) return argument_error("call.algorithm is outside its enumeration");
  if (options.compression >= STEPCCL_COMPRESSION_COUNT) return argument_error("call.compression is outside its enumeration");
  if (options.priority >= STEPCCL_PRIORITY_LEVELS) return argument_error("call.priority is outside its enumeration");
  if (options.stream != nullptr) {
    return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "call.stream: this build of the library works on host memory");
  }
  return options;
}

// Hands a checked task to its communicator: now, asynchronously, or to the group that this thread collects.
[[nodiscard]] Status start(stepccl_comm_t comm, Task& task, const stepccl_call_t& options);
// The same for a collective of equal counts, which may be short enough to do without a task.
[[nodiscard]] Status start_collective(stepccl_comm_t comm, Request& request, const stepccl_call_t& options);
// A call inside the group that this thread collects was refused, if it collects one.
void spoil_group(const Error& error);

}  // namespace stepccl::capi
