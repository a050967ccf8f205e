// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, loaded when the first engine is made: the same binary runs on nodes without one.
#pragma once

#include <cuda.h>

#include <string>

#include "core/error.hpp"

namespace stepccl::cuda {

// cuStreamGetCaptureInfo as driver 12.0 has it; newer headers declare only newer versions.
using StreamGetCaptureInfo = CUresult(CUDAAPI*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*);

#define STEPCCL_CUDA_SYMBOLS(X)                                                                                                      \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetUuid_v2) X(cuDeviceGetAttribute)                  \
  X(cuDeviceCanAccessPeer) X(cuDeviceTotalMem_v2) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)                        \
  X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuCtxEnablePeerAccess)     \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncSetAttribute) X(cuLaunchKernel)                              \
  X(cuStreamCreateWithPriority) X(cuCtxGetStreamPriorityRange) X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamWaitEvent)                                 \
  X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)                                      \
  X(cuMemGetInfo_v2) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)            \
  X(cuMemSetAccess) X(cuMemGetAllocationGranularity) X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)              \
  X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemcpyAsync) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyHtoDAsync_v2)              \
  X(cuMemsetD8Async) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuPointerGetAttributes)                                                    \
  X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle) X(cuMemGetAddressRange_v2)                                   \
  X(cuStreamBatchMemOp_v2) X(cuThreadExchangeStreamCaptureMode) X(cuUserObjectCreate) X(cuUserObjectRelease)                        \
  X(cuGraphRetainUserObject) X(cuGetErrorName) X(cuGetErrorString)

struct Driver {
#define STEPCCL_X(name) decltype(&::name) name = nullptr;
  STEPCCL_CUDA_SYMBOLS(STEPCCL_X)
#undef STEPCCL_X
  StreamGetCaptureInfo cuStreamGetCaptureInfo_v2 = nullptr;
  int version = 0;  // 12040 for 12.4

  // Loads it once and calls cuInit. NO_GPU where it is missing or shows no device, DRIVER_TOO_OLD before 12.0.
  [[nodiscard]] static Expected<const Driver*> get();

  // `result` of `call` as an error of this library.
  [[nodiscard]] Error error(CUresult result, const char* call, stepccl_phase_t phase) const;
  [[nodiscard]] Status check(CUresult result, const char* call, stepccl_phase_t phase) const {
    if (result == CUDA_SUCCESS) return {};
    return error(result, call, phase);
  }
};

// Makes a context current and lifts a capture's ban on calls that don't touch streams, both for the scope's life.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
    pushed_ = driver_.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    exchanged_ = driver_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~ContextScope() {
    if (exchanged_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    CUcontext old = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&old);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool pushed_ = false;
  bool exchanged_ = false;
};

}  // namespace stepccl::cuda

// Leaves the function with an error unless the driver's call succeeds.
#define STEPCCL_CU(driver, phase, call, ...)                                                                   \
  do {                                                                                                         \
    if (const CUresult cu_result = (driver).call(__VA_ARGS__); cu_result != CUDA_SUCCESS)                       \
      return (driver).error(cu_result, #call, phase);                                                          \
  } while (false)
