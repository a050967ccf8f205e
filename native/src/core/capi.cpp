// SPDX-License-Identifier: Apache-2.0
// The C interface of communicators: checks what the caller gave, keeps exceptions inside, remembers errors.
#include <algorithm>
#include <cstring>

#include "core/capi.hpp"
#include "core/error_info.hpp"

#define STEPCCL_STRING_(x) #x
#define STEPCCL_STRING(x) STEPCCL_STRING_(x)

using stepccl::Comm;
using stepccl::Error;
using stepccl::Status;
using stepccl::capi::argument_error;
using stepccl::capi::give;
using stepccl::capi::guarded;
using stepccl::capi::thread_error;
using stepccl::capi::thread_rank;

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
    const std::int32_t rank = comm != nullptr ? static_cast<std::int32_t>(comm->comm->rank()) : thread_rank;
    Status given = give(*info, stepccl::error_info(comm != nullptr ? comm->comm->last_error() : thread_error, rank));
    return given.ok() ? STEPCCL_SUCCESS : given.error().code;
  } catch (...) {
    return STEPCCL_ERROR_OUT_OF_MEMORY;
  }
}


stepccl_result_t stepccl_comm_split(stepccl_comm_t comm, int32_t color, int32_t key, const stepccl_config_t* config, stepccl_comm_t* out) noexcept {
  if (out != nullptr) *out = nullptr;
  return guarded(comm, [&]() -> Status {
    if (comm == nullptr || out == nullptr) return argument_error(comm == nullptr ? "comm is NULL" : "out is NULL");
    stepccl::Settings settings = comm->comm->settings();
    if (config != nullptr) {
      auto resolved = stepccl::Settings::resolve(config);
      if (!resolved.ok()) return resolved.take_error();
      settings = std::move(resolved.value());
    }
    auto handle = std::make_unique<stepccl_comm>();
    if (Status status = comm->comm->split(color, key, std::move(settings), handle->comm); !status.ok()) return status;
    if (handle->comm) *out = handle.release();
    return {};
  });
}

stepccl_result_t stepccl_comm_set_pipeline_depth(stepccl_comm_t comm, uint32_t depth) noexcept {
  return guarded(comm, [&]() -> Status {
    if (comm == nullptr) return argument_error("comm is NULL");
    if (depth > 256) return argument_error("depth " + std::to_string(depth) + " is above 256");
    comm->comm->set_pipeline_depth(depth);
    return {};
  });
}

stepccl_result_t stepccl_comm_tune_pipeline_depth(stepccl_comm_t comm, uint32_t* depth, double* latency_us) noexcept {
  return guarded(comm, [&]() -> Status {
    if (comm == nullptr) return argument_error("comm is NULL");
    std::uint32_t found = 0;
    double latency = 0;
    if (Status status = comm->comm->tune_depth(found, latency); !status.ok()) return status;
    if (depth != nullptr) *depth = found;
    if (latency_us != nullptr) *latency_us = latency;
    return {};
  });
}

stepccl_result_t stepccl_comm_enable_paging(stepccl_comm_t comm, uint64_t page_bytes, uint32_t prefetch_depth) noexcept {
  return guarded(comm, [&]() -> Status {
    if (comm == nullptr) return argument_error("comm is NULL");
    return comm->comm->enable_paging(page_bytes, prefetch_depth);
  });
}

}  // extern "C"
