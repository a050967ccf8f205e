// SPDX-License-Identifier: Apache-2.0
// The C interface of the GPU engine in a library that was built without USE_CUDA: no engine can be made.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "stepccl/cuda.h"

namespace {

// Of attach and device_count; all other functions want an engine, and there is none.
stepccl_result_t no_gpu() noexcept { return STEPCCL_ERROR_NO_GPU; }
stepccl_result_t no_engine() noexcept { return STEPCCL_ERROR_INVALID_ARGUMENT; }

}  // namespace

extern "C" {

stepccl_result_t stepccl_cuda_attach(stepccl_cuda_t* engine, stepccl_comm_t, const stepccl_cuda_config_t*) noexcept {
  if (engine != nullptr) *engine = nullptr;
  return no_gpu();
}
stepccl_result_t stepccl_cuda_detach(stepccl_cuda_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_abort(stepccl_cuda_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_status(stepccl_cuda_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_last_error(stepccl_cuda_t, stepccl_error_info_t* info) noexcept {
  if (info == nullptr || info->size < 2 * sizeof(uint32_t)) return STEPCCL_ERROR_INVALID_ARGUMENT;
  stepccl_error_info_t value{};
  value.size = info->size;
  value.code = STEPCCL_ERROR_NO_GPU;
  value.rank = value.peer = -1;
  constexpr char kText[] = "R601 no_gpu: this library was built without USE_CUDA";
  static_assert(sizeof kText <= sizeof value.text);
  std::memcpy(value.text, kText, sizeof kText);
  std::memcpy(info, &value, std::min<size_t>(info->size, sizeof value));
  return STEPCCL_SUCCESS;
}
stepccl_result_t stepccl_cuda_device_count(uint32_t* count) noexcept {
  if (count != nullptr) *count = 0;
  return no_gpu();
}
stepccl_result_t stepccl_cuda_query(stepccl_cuda_t, stepccl_cuda_info_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_mem_alloc(stepccl_cuda_t, void**, size_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_mem_free(stepccl_cuda_t, void*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_register(stepccl_cuda_t, void*, size_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_deregister(stepccl_cuda_t, void*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_pool_query(stepccl_cuda_t, stepccl_cuda_pool_info_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_defrag(stepccl_cuda_t, uint32_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_defrag_now(stepccl_cuda_t, uint64_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_paging(stepccl_cuda_t, uint64_t, uint32_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_set_pipeline_depth(stepccl_cuda_t, uint32_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_set_sm_budget(stepccl_cuda_t, uint32_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_all_reduce(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, stepccl_redop_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_all_gather(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_reduce_scatter(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, stepccl_redop_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_broadcast(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, uint32_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_reduce(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, stepccl_redop_t, uint32_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_scatter(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, uint32_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_gather(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, uint32_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_all_to_all(stepccl_cuda_t, const void*, void*, size_t, stepccl_datatype_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_all_to_all_v(stepccl_cuda_t, const void*, const size_t*, const size_t*, void*, const size_t*, const size_t*, stepccl_datatype_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_send(stepccl_cuda_t, const void*, size_t, stepccl_datatype_t, uint32_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_recv(stepccl_cuda_t, void*, size_t, stepccl_datatype_t, uint32_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_barrier(stepccl_cuda_t, stepccl_cuda_stream_t, stepccl_cuda_call_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_group_start(stepccl_cuda_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_group_end(stepccl_cuda_t) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_receipt(stepccl_cuda_t, uint64_t, stepccl_cuda_receipt_t*) noexcept { return no_engine(); }
stepccl_result_t stepccl_cuda_wait_page(stepccl_cuda_t, uint64_t, uint64_t, stepccl_cuda_stream_t) noexcept { return no_engine(); }

}  // extern "C"
