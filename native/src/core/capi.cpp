// SPDX-License-Identifier: Apache-2.0
// The C interface: checks what the caller gave, keeps exceptions inside, remembers errors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "core/comm.hpp"

#define STEPCCL_STRING_(x) #x
#define STEPCCL_STRING(x) STEPCCL_STRING_(x)

struct stepccl_comm {
  std::unique_ptr<stepccl::Comm> comm;
};

namespace {

using stepccl::Comm;
using stepccl::Error;
using stepccl::Status;

thread_local std::optional<Error> thread_error;
thread_local std::int32_t thread_rank = -1;

Error argument_error(std::string cause) {
  return stepccl::make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, std::move(cause));
}

stepccl_result_t keep(stepccl_comm_t comm, Error error) {
  const stepccl_result_t code = error.code;
  if (comm != nullptr) comm->comm->set_last_error(error);
  thread_error = std::move(error);
  return code;
}

// Runs f, which gives a Status; nothing escapes.
template <class F>
stepccl_result_t guarded(stepccl_comm_t comm, F&& f) noexcept {
  try {
    Status status = f();
    return status.ok() ? STEPCCL_SUCCESS : keep(comm, status.take_error());
  } catch (const std::bad_alloc&) {
    try {
      return keep(comm, stepccl::make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_NONE, "no memory"));
    } catch (...) {
      return STEPCCL_ERROR_OUT_OF_MEMORY;
    }
  } catch (const std::exception& problem) {
    try {
      return keep(comm, stepccl::make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_NONE, problem.what()));
    } catch (...) {
      return STEPCCL_ERROR_INTERNAL;
    }
  } catch (...) {
    return STEPCCL_ERROR_INTERNAL;
  }
}

// Copies a growing struct to its caller, no further than the size that the caller knows.
template <class T>
Status give(T& target, T value) {
  if (target.size < 2 * sizeof(std::uint32_t)) return argument_error("info.size is smaller than any version of the struct");
  const std::uint32_t size = target.size;
  value.size = size;
  std::memcpy(&target, &value, std::min<std::size_t>(size, sizeof value));
  return {};
}

Status check_call(const void* send, const void* recv, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop) {
  const std::size_t element = stepccl_datatype_bytes(datatype);
  if (element == 0) return argument_error("datatype " + std::to_string(static_cast<int>(datatype)) + " is outside its enumeration");
  if (static_cast<unsigned>(redop) >= STEPCCL_REDOP_COUNT) return argument_error("redop " + std::to_string(static_cast<int>(redop)) + " is outside its enumeration");
  if (count == 0) return {};
  if (count > (SIZE_MAX / 2) / element) return argument_error("count " + std::to_string(count) + " does not fit the address space");
  if (send == nullptr || recv == nullptr) return argument_error(send == nullptr ? "send is NULL" : "recv is NULL");
  const auto from = reinterpret_cast<std::uintptr_t>(send);
  const auto to = reinterpret_cast<std::uintptr_t>(recv);
  if (from % element != 0 || to % element != 0) return argument_error(from % element != 0 ? "send is not aligned to the datatype" : "recv is not aligned to the datatype");
  const std::uintptr_t bytes = count * element;
  if (from > UINTPTR_MAX - bytes || to > UINTPTR_MAX - bytes) return argument_error("a buffer runs past the end of the address space");
  if (from != to && from < to + bytes && to < from + bytes) return argument_error("send and recv overlap without being the same");
  return {};
}

}  // namespace

extern "C" {

const char* stepccl_version(void) noexcept {
  return STEPCCL_STRING(STEPCCL_VERSION_MAJOR) "." STEPCCL_STRING(STEPCCL_VERSION_MINOR) "." STEPCCL_STRING(STEPCCL_VERSION_PATCH);
}

stepccl_result_t stepccl_unique_id_create(const char* address, stepccl_unique_id_t* id) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (id == nullptr) return argument_error("id is NULL");
    auto env = stepccl::Environment::read();
    if (!env.ok()) return env.take_error();
    auto endpoint = address != nullptr ? stepccl::bootstrap::parse_endpoint(address)
                                       : stepccl::bootstrap::interface_endpoint(env.value().socket_ifname.value_or(""));
    if (!endpoint.ok()) return endpoint.take_error();
    const auto& bytes = endpoint.value().address;
    const std::size_t used = endpoint.value().family == 6 ? 16 : 4;
    if (std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used), [](auto byte) { return byte == 0; })) {
      return argument_error("the other ranks can't reach a wildcard address: give one of this node's own");
    }
    stepccl::bootstrap::UniqueId made;
    made.endpoint = endpoint.value();
    if (Status status = stepccl::bootstrap::random_bytes(made.secret); !status.ok()) return status;
    if (Status status = stepccl::bootstrap::random_bytes(std::as_writable_bytes(std::span(&made.comm_id, 1))); !status.ok()) return status;
    auto listener = stepccl::bootstrap::listen_on(made.endpoint, 1024);
    if (!listener.ok()) return listener.take_error();
    *id = made.encode();
    stepccl::bootstrap::keep_listener(made.comm_id, std::move(listener.value()));
    stepccl::bootstrap::wipe(made.secret);
    return {};
  });
}

stepccl_result_t stepccl_unique_id_discard(const stepccl_unique_id_t* id) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (id == nullptr) return argument_error("id is NULL");
    auto decoded = stepccl::bootstrap::UniqueId::decode(*id);
    if (!decoded.ok()) return decoded.take_error();
    (void)stepccl::bootstrap::take_listener(decoded.value().comm_id);
    stepccl::bootstrap::wipe(decoded.value().secret);
    return {};
  });
}

stepccl_result_t stepccl_comm_init_rank(stepccl_comm_t* comm, uint32_t world_size, const stepccl_unique_id_t* id, uint32_t rank,
                                        const stepccl_config_t* config) noexcept {
  if (comm != nullptr) *comm = nullptr;
  thread_rank = static_cast<std::int32_t>(rank);
  return guarded(nullptr, [&]() -> Status {
    if (comm == nullptr || id == nullptr) return argument_error(comm == nullptr ? "comm is NULL" : "id is NULL");
    if (world_size == 0 || world_size > stepccl::bootstrap::kMaxWorld) {
      return argument_error("world_size " + std::to_string(world_size) + " is not from 1 to " + std::to_string(stepccl::bootstrap::kMaxWorld));
    }
    if (rank >= world_size) return argument_error("rank " + std::to_string(rank) + " is not below the world size " + std::to_string(world_size));
    auto settings = stepccl::Settings::resolve(config);
    if (!settings.ok()) return settings.take_error();
    auto decoded = stepccl::bootstrap::UniqueId::decode(*id);
    if (!decoded.ok()) return decoded.take_error();
    auto handle = std::make_unique<stepccl_comm>();
    auto made = Comm::init(world_size, std::move(decoded.value()), rank, std::move(settings.value()));
    if (!made.ok()) return made.take_error();
    handle->comm = std::move(made.value());
    *comm = handle.release();
    return {};
  });
}

stepccl_result_t stepccl_comm_destroy(stepccl_comm_t comm) noexcept {
  if (comm == nullptr) return guarded(nullptr, []() -> Status { return argument_error("comm is NULL"); });
  const stepccl_result_t result = guarded(comm, [&]() -> Status { return comm->comm->leave(); });
  if (result == STEPCCL_SUCCESS) delete comm;
  return result;
}

stepccl_result_t stepccl_comm_abort(stepccl_comm_t comm) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (comm == nullptr) return argument_error("comm is NULL");
    comm->comm->abort();
    return {};
  });
}

stepccl_result_t stepccl_comm_query(stepccl_comm_t comm, stepccl_comm_info_t* info) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (comm == nullptr || info == nullptr) return argument_error(comm == nullptr ? "comm is NULL" : "info is NULL");
    stepccl_comm_info_t value{};
    comm->comm->query(value);
    return give(*info, value);
  });
}

stepccl_result_t stepccl_last_error(stepccl_comm_t comm, stepccl_error_info_t* info) noexcept {
  if (info == nullptr) return STEPCCL_ERROR_INVALID_ARGUMENT;
  try {
    stepccl_error_info_t value{};
    value.rank = comm != nullptr ? static_cast<std::int32_t>(comm->comm->rank()) : thread_rank;
    value.peer = -1;
    const std::optional<Error> error = comm != nullptr ? comm->comm->last_error() : thread_error;
    if (error) {
      value.code = error->code;
      value.peer = error->peer;
      value.phase = error->phase;
      value.transport = error->transport;
      const std::string text = stepccl::describe(*error, value.rank);
      std::memcpy(value.text, text.data(), std::min(text.size(), sizeof value.text - 1));
    }
    Status given = give(*info, value);
    return given.ok() ? STEPCCL_SUCCESS : given.error().code;
  } catch (...) {
    return STEPCCL_ERROR_OUT_OF_MEMORY;
  }
}

stepccl_result_t stepccl_all_reduce(stepccl_comm_t comm, const void* send, void* recv, size_t count, stepccl_datatype_t datatype,
                                    stepccl_redop_t redop, const stepccl_call_t* call) noexcept {
  return guarded(comm, [&]() -> Status {
    if (comm == nullptr) return argument_error("comm is NULL");
    if (Status status = check_call(send, recv, count, datatype, redop); !status.ok()) return status;
    stepccl_call_t options = STEPCCL_CALL_INIT;
    if (call != nullptr) {
      if (call->size < sizeof(std::uint32_t)) return argument_error("call.size is smaller than any version of the struct");
      std::memcpy(&options, call, std::min<std::size_t>(call->size, sizeof options));
      if (options.algorithm >= STEPCCL_ALGORITHM_COUNT) return argument_error("call.algorithm is outside its enumeration");
    }
    return comm->comm->all_reduce(send, recv, count, datatype, redop, options);
  });
}

}  // extern "C"
