// SPDX-License-Identifier: Apache-2.0
#include "gpu/ranks.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include "core/clock.hpp"
#include "core/float16.hpp"

namespace gpu {
namespace {

struct Shared {
  std::atomic<std::uint32_t> ready;
  stepccl_unique_id_t id;
};

std::uint64_t mix(std::uint64_t x) {  // SplitMix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int rank_main(std::uint32_t rank, std::uint32_t world, Shared& shared, stepccl_cuda_config_t config, const std::function<void(Rank&)>& body, bool orderly_end) {
  Rank self;
  self.rank = rank;
  self.world = world;
  try {
    if (rank == 0) {
      self.ok(stepccl_unique_id_create("127.0.0.1", &shared.id), "unique id");
      shared.ready.store(1, std::memory_order_release);
    }
    while (shared.ready.load(std::memory_order_acquire) == 0) usleep(500);
    stepccl_config_t comm_config = STEPCCL_CONFIG_INIT;
    comm_config.telemetry_dir = "";
    self.ok(stepccl_comm_init_rank(&self.comm, world, &shared.id, rank, &comm_config), "comm_init_rank");
    // Fewer GPUs than ranks: the engine says whether it may be so (STEPCCL_CUDA_SHARED_GPU).
    std::uint32_t gpus = 0;
    self.ok(stepccl_cuda_device_count(&gpus), "device_count");
    config.device = static_cast<std::int32_t>(rank % gpus);
    self.ok(stepccl_cuda_attach(&self.engine, self.comm, &config), "attach");
    auto driver = stepccl::cuda::Driver::get();
    if (!driver.ok()) throw Problem(driver.error().cause);
    self.driver = driver.value();
    CUdevice device = 0;
    self.cu(self.driver->cuDeviceGet(&device, config.device), "cuDeviceGet");
    self.cu(self.driver->cuDevicePrimaryCtxRetain(&self.context, device), "cuDevicePrimaryCtxRetain");
    self.cu(self.driver->cuCtxPushCurrent_v2(self.context), "cuCtxPushCurrent");
    self.cu(self.driver->cuStreamCreateWithPriority(&self.stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    body(self);
    if (orderly_end) {
      self.ok(stepccl_cuda_detach(self.engine), "detach");
      self.ok(stepccl_comm_destroy(self.comm), "comm_destroy");
    }
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "rank %u: %s\n", rank, problem.what());
    return 1;
  }
}

}  // namespace

void Rank::ok(stepccl_result_t result, const char* what) const {
  if (result == STEPCCL_SUCCESS) return;
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_cuda_last_error(engine, &info);
  if (engine == nullptr && info.code == 0) stepccl_last_error(comm, &info);
  throw Problem(std::string(what) + ": " + stepccl_result_code(result) + " " + info.text);
}

void Rank::cu(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  throw Problem(driver->error(result, what, STEPCCL_PHASE_NONE).cause);
}

CUdeviceptr Rank::window(std::uint64_t bytes) const {
  void* pointer = nullptr;
  ok(stepccl_cuda_mem_alloc(engine, &pointer, bytes), "mem_alloc");
  return reinterpret_cast<CUdeviceptr>(pointer);
}
CUdeviceptr Rank::plain(std::uint64_t bytes) const {
  CUdeviceptr pointer = 0;
  cu(driver->cuMemAlloc_v2(&pointer, bytes), "cuMemAlloc");
  return pointer;
}
void Rank::upload(CUdeviceptr to, const void* from, std::uint64_t bytes) const {
  cu(driver->cuMemcpyHtoDAsync_v2(to, from, bytes, stream), "cuMemcpyHtoDAsync");
  sync();
}
void Rank::download(void* to, CUdeviceptr from, std::uint64_t bytes) const {
  cu(driver->cuMemcpyDtoHAsync_v2(to, from, bytes, stream), "cuMemcpyDtoHAsync");
  sync();
}
void Rank::sync() const { cu(driver->cuStreamSynchronize(stream), "cuStreamSynchronize"); }
void Rank::meet() const {
  std::uint8_t byte = 0;
  ok(stepccl_all_reduce(comm, &byte, &byte, 1, STEPCCL_UINT8, STEPCCL_SUM, nullptr), "meeting on the host");
}
double Rank::largest(double mine) const {
  ok(stepccl_all_reduce(comm, &mine, &mine, 1, STEPCCL_FLOAT64, STEPCCL_MAX, nullptr), "comparing on the host");
  return mine;
}
std::uint64_t Rank::sum(std::uint64_t mine) const {
  ok(stepccl_all_reduce(comm, &mine, &mine, 1, STEPCCL_UINT64, STEPCCL_SUM, nullptr), "adding on the host");
  return mine;
}

bool Outcome::well() const {
  return !timed_out && std::all_of(status.begin(), status.end(), [](int one) { return one == 0; });
}

Outcome run(std::uint32_t world, std::uint32_t timeout_s, const stepccl_cuda_config_t& config, const std::function<void(Rank&)>& body, bool orderly_end) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Problem("mmap failed");
  auto* shared = new (memory) Shared{};
  Outcome outcome;
  outcome.status.assign(world, -1);
  std::vector<pid_t> children(world, -1);
  std::fflush(nullptr);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int status = rank_main(rank, world, *shared, config, body, orderly_end);
      std::fflush(nullptr);
      ::_exit(status);
    }
    children[rank] = child;
  }
  const stepccl::Deadline deadline = stepccl::Deadline::after_ms(std::uint64_t{timeout_s} * 1000);
  std::uint32_t left = world;
  while (left > 0) {
    int wait_status = 0;
    const pid_t ended = ::waitpid(-1, &wait_status, WNOHANG);
    if (ended > 0) {
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        if (children[rank] != ended) continue;
        outcome.status[rank] = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
        children[rank] = -1;
        --left;
      }
      continue;
    }
    if (deadline.passed() && !outcome.timed_out) {
      outcome.timed_out = true;
      for (const pid_t child : children) {
        if (child > 0) ::kill(child, SIGKILL);
      }
    }
    ::usleep(2000);
  }
  ::munmap(memory, sizeof(Shared));
  return outcome;
}

void fill(void* to, stepccl_datatype_t type, std::uint64_t first, std::uint64_t count, std::uint32_t rank, std::uint64_t seed) {
  const std::uint64_t key = mix(seed * 1024 + rank);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(key ^ (first + i));
    const float value = static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * 0x1p-20f;  // -8 .. 8
    switch (type) {
      case STEPCCL_INT8:
      case STEPCCL_UINT8: static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(bits); break;
      case STEPCCL_INT32:
      case STEPCCL_UINT32: static_cast<std::uint32_t*>(to)[i] = static_cast<std::uint32_t>(bits); break;
      case STEPCCL_INT64:
      case STEPCCL_UINT64: static_cast<std::uint64_t*>(to)[i] = bits; break;
      case STEPCCL_FLOAT16: static_cast<std::uint16_t*>(to)[i] = stepccl::half_from_float(value); break;
      case STEPCCL_BFLOAT16: static_cast<std::uint16_t*>(to)[i] = stepccl::bfloat_from_float(value); break;
      case STEPCCL_FLOAT32: static_cast<float*>(to)[i] = value; break;
      case STEPCCL_FLOAT64: static_cast<double*>(to)[i] = static_cast<double>(value) * 1.0000001; break;
    }
  }
}

}  // namespace gpu
