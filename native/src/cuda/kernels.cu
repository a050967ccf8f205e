// SPDX-License-Identifier: Apache-2.0
// The entry points of the fat binary, by name.
#include "cuda/direct.cuh"
#include "cuda/exchange.cuh"
#include "cuda/packed.cuh"
#include "cuda/pipeline.cuh"
#include "cuda/spread.cuh"

using namespace stepccl::cuda;

#define STEPCCL_ENTRY(name, bounds, kernel, Args)                                                                     \
  extern "C" __global__ void __launch_bounds__(bounds) name(const __grid_constant__ Args args) { kernel(args); }

#define STEPCCL_REDUCERS(X) X(any, kAny) X(float, kSumFloat) X(bfloat, kSumBfloat) X(half, kSumHalf)

#define STEPCCL_X(suffix, reducer)                                                                  \
  STEPCCL_ENTRY(stepccl_flagged_##suffix, kThreads, flagged_body<reducer>, ExchangeArgs)            \
  STEPCCL_ENTRY(stepccl_packed_##suffix, kThreads, packed_body<reducer>, ExchangeArgs)              \
  STEPCCL_ENTRY(stepccl_staged_##suffix, kThreads, staged_body<reducer>, ExchangeArgs)              \
  STEPCCL_ENTRY(stepccl_pipeline_##suffix, kThreads, pipeline_body<reducer>, PipelineArgs)          \
  STEPCCL_ENTRY(stepccl_direct_##suffix, kThreads, direct_body<reducer>, DirectArgs)                \
  STEPCCL_ENTRY(stepccl_bulk_##suffix, kBulkThreads, bulk_body<reducer>, DirectArgs)
STEPCCL_REDUCERS(STEPCCL_X)
STEPCCL_ENTRY(stepccl_flagged_copy, kThreads, flagged_body<kCopy>, ExchangeArgs)
STEPCCL_ENTRY(stepccl_packed_copy, kThreads, packed_body<kCopy>, ExchangeArgs)
STEPCCL_ENTRY(stepccl_spread_copy, kThreads, spread_body, DirectArgs)
STEPCCL_ENTRY(stepccl_staged_copy, kThreads, staged_body<kCopy>, ExchangeArgs)

// Operations of captured graphs pass here, so that defragmentation can hold them back: either the host sees this one
// as active, or this one sees the gate closed.
extern "C" __global__ void stepccl_gate_enter(const __grid_constant__ GateArgs args) {
  volatile u32* gate = args.gate;
  for (;;) {
    atomicAdd_system(args.active, 1);
    __threadfence_system();
    if (*gate == 0) return;
    atomicSub_system(args.active, 1);
    while (*gate != 0) {
      if (args.status->abort != 0) return;
      __nanosleep(1000);
    }
  }
}
extern "C" __global__ void stepccl_gate_leave(const __grid_constant__ GateArgs args) {
  __threadfence_system();
  atomicSub_system(args.active, 1);
}
