// SPDX-License-Identifier: Apache-2.0
// The C interface of the GPU engine: keeps exceptions inside and remembers errors.
#include <algorithm>
#include <cstring>
#include <new>

#include "core/error_info.hpp"
#include "cuda/engine.hpp"

struct stepccl_cuda {
  std::unique_ptr<stepccl::cuda::Engine> engine;
};

namespace {

using stepccl::Error;
using stepccl::Status;
using stepccl::cuda::Engine;
using stepccl::cuda::Operation;

thread_local std::optional<Error> thread_error;

Error argument_error(std::string cause) { return stepccl::make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

stepccl_result_t keep(stepccl_cuda_t engine, Error error) {
  const stepccl_result_t code = error.code;
  if (engine != nullptr) engine->engine->set_last_error(error);
  thread_error = std::move(error);
  return code;
}

template <class F>
stepccl_result_t guarded(stepccl_cuda_t engine, F&& f) noexcept {
  try {
    Status status = f();
    return status.ok() ? STEPCCL_SUCCESS : keep(engine, status.take_error());
  } catch (const std::bad_alloc&) {
    try {
      return keep(engine, stepccl::make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_NONE, "no memory"));
    } catch (...) {
      return STEPCCL_ERROR_OUT_OF_MEMORY;
    }
  } catch (const std::exception& problem) {
    try {
      return keep(engine, stepccl::make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_NONE, problem.what()));
    } catch (...) {
      return STEPCCL_ERROR_INTERNAL;
    }
  } catch (...) {
    return STEPCCL_ERROR_INTERNAL;
  }
}

// As guarded, on an engine that must be there.
template <class F>
stepccl_result_t on(stepccl_cuda_t engine, F&& f) noexcept {
  return guarded(engine, [&]() -> Status {
    if (engine == nullptr) return argument_error("engine is NULL");
    return f(*engine->engine);
  });
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

stepccl_result_t collective(stepccl_cuda_t engine, stepccl_collective_t kind, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop,
                            std::uint32_t root, stepccl_cuda_stream_t stream, stepccl_cuda_call_t* call) noexcept {
  return on(engine, [&](Engine& self) {
    Operation operation;
    operation.kind = kind;
    operation.send = static_cast<const unsigned char*>(send);
    operation.recv = static_cast<unsigned char*>(recv);
    operation.count = count;
    operation.datatype = datatype;
    operation.redop = redop;
    operation.root = root;
    return self.run(std::move(operation), static_cast<CUstream>(stream), call);
  });
}

stepccl_result_t message(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, std::uint32_t peer, stepccl_cuda_stream_t stream,
                         stepccl_cuda_call_t* call) noexcept {
  return on(engine, [&](Engine& self) -> Status {
    stepccl_cuda_info_t info{};
    self.query(info);
    if (peer >= info.world_size) return argument_error("peer " + std::to_string(peer) + " is not below the world size " + std::to_string(info.world_size));
    const std::size_t element = stepccl_datatype_bytes(datatype);
    if (element == 0) return argument_error("datatype " + std::to_string(static_cast<int>(datatype)) + " is outside its enumeration");
    if (count > SIZE_MAX / element / 2) return argument_error("count is larger than any memory");
    if (count != 0 && send == nullptr && recv == nullptr) return argument_error("the buffer is NULL");
    Operation operation;
    operation.kind = STEPCCL_SEND_RECV;
    operation.datatype = datatype;
    operation.involved = 1u << peer;
    if (send != nullptr) {
      operation.send_to[peer] = static_cast<const unsigned char*>(send);
      operation.send_bytes[peer] = count * element;
    } else {
      operation.recv_from[peer] = static_cast<unsigned char*>(recv);
      operation.recv_bytes[peer] = count * element;
    }
    return self.run(std::move(operation), static_cast<CUstream>(stream), call);
  });
}

}  // namespace

extern "C" {

stepccl_result_t stepccl_cuda_attach(stepccl_cuda_t* engine, stepccl_comm_t comm, const stepccl_cuda_config_t* config) noexcept {
  if (engine != nullptr) *engine = nullptr;
  return guarded(nullptr, [&]() -> Status {
    if (engine == nullptr || comm == nullptr) return argument_error(engine == nullptr ? "engine is NULL" : "comm is NULL");
    auto handle = std::make_unique<stepccl_cuda>();
    auto made = Engine::attach(comm, config);
    if (!made.ok()) return made.take_error();
    handle->engine = std::move(made.value());
    *engine = handle.release();
    return {};
  });
}

stepccl_result_t stepccl_cuda_detach(stepccl_cuda_t engine) noexcept {
  if (engine == nullptr) return guarded(nullptr, []() -> Status { return argument_error("engine is NULL"); });
  return guarded(nullptr, [&]() -> Status {
    delete engine;
    return {};
  });
}

stepccl_result_t stepccl_cuda_abort(stepccl_cuda_t engine) noexcept {
  return on(engine, [](Engine& self) -> Status {
    self.abort();
    return {};
  });
}

stepccl_result_t stepccl_cuda_status(stepccl_cuda_t engine) noexcept {
  if (engine == nullptr) return STEPCCL_ERROR_INVALID_ARGUMENT;
  const auto error = engine->engine->failure();
  return error ? error->code : STEPCCL_SUCCESS;
}

stepccl_result_t stepccl_cuda_last_error(stepccl_cuda_t engine, stepccl_error_info_t* info) noexcept {
  if (info == nullptr) return STEPCCL_ERROR_INVALID_ARGUMENT;
  return guarded(nullptr, [&]() -> Status {
    const std::int32_t rank = engine != nullptr ? static_cast<std::int32_t>(engine->engine->rank()) : -1;
    return give(*info, stepccl::error_info(engine != nullptr ? engine->engine->last_error() : thread_error, rank));
  });
}

stepccl_result_t stepccl_cuda_device_count(uint32_t* count) noexcept {
  return guarded(nullptr, [&]() -> Status {
    if (count == nullptr) return argument_error("count is NULL");
    *count = 0;
    auto driver = stepccl::cuda::Driver::get();
    if (!driver.ok()) return driver.take_error();
    int devices = 0;
    STEPCCL_CU(*driver.value(), STEPCCL_PHASE_NONE, cuDeviceGetCount, &devices);
    *count = static_cast<uint32_t>(devices);
    return {};
  });
}

stepccl_result_t stepccl_cuda_query(stepccl_cuda_t engine, stepccl_cuda_info_t* info) noexcept {
  return on(engine, [&](Engine& self) -> Status {
    if (info == nullptr) return argument_error("info is NULL");
    stepccl_cuda_info_t value{};
    self.query(value);
    return give(*info, value);
  });
}

stepccl_result_t stepccl_cuda_mem_alloc(stepccl_cuda_t engine, void** pointer, size_t bytes) noexcept {
  return on(engine, [&](Engine& self) -> Status { return pointer == nullptr ? Status(argument_error("pointer is NULL")) : self.mem_alloc(pointer, bytes); });
}
stepccl_result_t stepccl_cuda_mem_free(stepccl_cuda_t engine, void* pointer) noexcept {
  return on(engine, [&](Engine& self) { return self.mem_free(pointer); });
}
stepccl_result_t stepccl_cuda_register(stepccl_cuda_t engine, void* pointer, size_t bytes) noexcept {
  return on(engine, [&](Engine& self) { return self.register_memory(pointer, bytes); });
}
stepccl_result_t stepccl_cuda_deregister(stepccl_cuda_t engine, void* pointer) noexcept {
  return on(engine, [&](Engine& self) { return self.deregister(pointer); });
}
stepccl_result_t stepccl_cuda_pool_query(stepccl_cuda_t engine, stepccl_cuda_pool_info_t* info) noexcept {
  return on(engine, [&](Engine& self) -> Status {
    if (info == nullptr) return argument_error("info is NULL");
    stepccl_cuda_pool_info_t value{};
    if (Status status = self.pool_query(value); !status.ok()) return status;
    return give(*info, value);
  });
}
stepccl_result_t stepccl_cuda_defrag(stepccl_cuda_t engine, uint32_t interval_ms) noexcept {
  return on(engine, [&](Engine& self) { return self.set_defrag(interval_ms); });
}
stepccl_result_t stepccl_cuda_defrag_now(stepccl_cuda_t engine, uint64_t* released_bytes) noexcept {
  return on(engine, [&](Engine& self) { return self.defrag_now(released_bytes); });
}
stepccl_result_t stepccl_cuda_paging(stepccl_cuda_t engine, uint64_t page_bytes, uint32_t prefetch_depth) noexcept {
  return on(engine, [&](Engine& self) { return self.set_paging(page_bytes, prefetch_depth); });
}
stepccl_result_t stepccl_cuda_set_pipeline_depth(stepccl_cuda_t engine, uint32_t depth) noexcept {
  return on(engine, [&](Engine& self) { return self.set_pipeline_depth(depth); });
}
stepccl_result_t stepccl_cuda_set_sm_budget(stepccl_cuda_t engine, uint32_t blocks) noexcept {
  return on(engine, [&](Engine& self) { return self.set_sm_budget(blocks); });
}

stepccl_result_t stepccl_cuda_all_reduce(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop,
                                         stepccl_cuda_stream_t stream, stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_ALL_REDUCE, send, recv, count, datatype, redop, 0, stream, call);
}
stepccl_result_t stepccl_cuda_all_gather(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_cuda_stream_t stream,
                                         stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_ALL_GATHER, send, recv, count, datatype, STEPCCL_SUM, 0, stream, call);
}
stepccl_result_t stepccl_cuda_reduce_scatter(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop,
                                             stepccl_cuda_stream_t stream, stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_REDUCE_SCATTER, send, recv, count, datatype, redop, 0, stream, call);
}
stepccl_result_t stepccl_cuda_broadcast(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t root, stepccl_cuda_stream_t stream,
                                        stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_BROADCAST, send, recv, count, datatype, STEPCCL_SUM, root, stream, call);
}
stepccl_result_t stepccl_cuda_reduce(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop, uint32_t root,
                                     stepccl_cuda_stream_t stream, stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_REDUCE, send, recv, count, datatype, redop, root, stream, call);
}
stepccl_result_t stepccl_cuda_scatter(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t root, stepccl_cuda_stream_t stream,
                                      stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_SCATTER, send, recv, count, datatype, STEPCCL_SUM, root, stream, call);
}
stepccl_result_t stepccl_cuda_gather(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t root, stepccl_cuda_stream_t stream,
                                     stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_GATHER, send, recv, count, datatype, STEPCCL_SUM, root, stream, call);
}
stepccl_result_t stepccl_cuda_all_to_all(stepccl_cuda_t engine, const void* send, void* recv, size_t count, stepccl_datatype_t datatype, stepccl_cuda_stream_t stream,
                                         stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_ALL_TO_ALL, send, recv, count, datatype, STEPCCL_SUM, 0, stream, call);
}
stepccl_result_t stepccl_cuda_all_to_all_v(stepccl_cuda_t engine, const void* send, const size_t* send_counts, const size_t* send_offsets, void* recv, const size_t* recv_counts,
                                           const size_t* recv_offsets, stepccl_datatype_t datatype, stepccl_cuda_stream_t stream, stepccl_cuda_call_t* call) noexcept {
  return on(engine, [&](Engine& self) -> Status {
    if (send_counts == nullptr || send_offsets == nullptr || recv_counts == nullptr || recv_offsets == nullptr) return argument_error("an array of counts or offsets is NULL");
    const std::size_t element = stepccl_datatype_bytes(datatype);
    if (element == 0) return argument_error("datatype " + std::to_string(static_cast<int>(datatype)) + " is outside its enumeration");
    stepccl_cuda_info_t info{};
    self.query(info);
    Operation operation;
    operation.kind = STEPCCL_ALL_TO_ALL;
    operation.varying = true;
    operation.datatype = datatype;
    for (std::uint32_t peer = 0; peer < info.world_size; ++peer) {
      for (const std::size_t number : {send_counts[peer], send_offsets[peer], recv_counts[peer], recv_offsets[peer]}) {
        if (number > SIZE_MAX / element / 4) return argument_error("a count or offset is larger than any memory");
      }
      if (send_counts[peer] != 0 && send == nullptr) return argument_error("send is NULL");
      if (recv_counts[peer] != 0 && recv == nullptr) return argument_error("recv is NULL");
      operation.send_bytes[peer] = send_counts[peer] * element;
      operation.recv_bytes[peer] = recv_counts[peer] * element;
      if (send != nullptr) operation.send_to[peer] = static_cast<const unsigned char*>(send) + send_offsets[peer] * element;
      if (recv != nullptr) operation.recv_from[peer] = static_cast<unsigned char*>(recv) + recv_offsets[peer] * element;
    }
    return self.run(std::move(operation), static_cast<CUstream>(stream), call);
  });
}
stepccl_result_t stepccl_cuda_send(stepccl_cuda_t engine, const void* send, size_t count, stepccl_datatype_t datatype, uint32_t peer, stepccl_cuda_stream_t stream,
                                   stepccl_cuda_call_t* call) noexcept {
  return message(engine, send, nullptr, count, datatype, peer, stream, call);
}
stepccl_result_t stepccl_cuda_recv(stepccl_cuda_t engine, void* recv, size_t count, stepccl_datatype_t datatype, uint32_t peer, stepccl_cuda_stream_t stream,
                                   stepccl_cuda_call_t* call) noexcept {
  return message(engine, nullptr, recv, count, datatype, peer, stream, call);
}
stepccl_result_t stepccl_cuda_barrier(stepccl_cuda_t engine, stepccl_cuda_stream_t stream, stepccl_cuda_call_t* call) noexcept {
  return collective(engine, STEPCCL_BARRIER, nullptr, nullptr, 0, STEPCCL_UINT8, STEPCCL_SUM, 0, stream, call);
}

stepccl_result_t stepccl_cuda_group_start(stepccl_cuda_t engine) noexcept {
  return on(engine, [](Engine& self) { return self.group_start(); });
}
stepccl_result_t stepccl_cuda_group_end(stepccl_cuda_t engine) noexcept {
  return on(engine, [](Engine& self) { return self.group_end(); });
}

stepccl_result_t stepccl_cuda_receipt(stepccl_cuda_t engine, uint64_t ticket, stepccl_cuda_receipt_t* receipt) noexcept {
  return on(engine, [&](Engine& self) -> Status {
    if (receipt == nullptr) return argument_error("receipt is NULL");
    stepccl_cuda_receipt_t value{};
    if (Status status = self.receipt(ticket, value); !status.ok()) return status;
    return give(*receipt, value);
  });
}
stepccl_result_t stepccl_cuda_wait_page(stepccl_cuda_t engine, uint64_t ticket, uint64_t page, stepccl_cuda_stream_t stream) noexcept {
  return on(engine, [&](Engine& self) { return self.wait_page(ticket, page, static_cast<CUstream>(stream), stream == nullptr); });
}

}  // extern "C"
