// SPDX-License-Identifier: Apache-2.0
// What goes wrong around a GPU engine, over the emulated driver: bad input is refused and changes nothing, ranks that differ,
// stay away or end are named in time, and hosts that can't do it say why.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include "gpu_job.hpp"

using namespace stepccl::testing;

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

struct Ending {
  stepccl_result_t code = STEPCCL_SUCCESS;
  std::int32_t peer = -1;
  std::string text;
};

Ending last(stepccl_cuda_t engine) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_cuda_last_error(engine, &info);
  return {static_cast<stepccl_result_t>(info.code), info.peer, info.text};
}

// How the engine ends once it waits for what does not come.
Ending end_of(const gpu::Rank& self) {
  self.driver->cuStreamSynchronize(self.stream);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return last(self.engine);
}

stepccl_result_t gather(const gpu::Rank& self, CUdeviceptr send, CUdeviceptr recv, std::uint64_t bytes, std::uint32_t path) {
  stepccl_cuda_call_t call = STEPCCL_CUDA_CALL_INIT;
  call.path = path;
  return stepccl_cuda_all_gather(self.engine, reinterpret_cast<void*>(send), reinterpret_cast<void*>(recv), bytes, STEPCCL_UINT8, self.stream, &call);
}

// Rank 1 goes wrong; the ending of rank 0, which waits on this path.
Ending wait_for(std::uint32_t path, std::uint32_t timeout_ms, const std::function<void(gpu::Rank&)>& wrong) {
  Ending ending;
  run_gpus(2, {.timeout_ms = timeout_ms}, [&](gpu::Rank& self) {
    const CUdeviceptr send = self.window(kMiB);
    const CUdeviceptr recv = self.window(2 * kMiB);
    self.ok(gather(self, send, recv, kMiB, path), "first call");
    self.sync();
    self.meet();
    if (self.rank == 1) return wrong(self);
    (void)gather(self, send, recv, kMiB, path);  // refused, where it is known already
    ending = end_of(self);
    CHECK(gather(self, send, recv, kMiB, path) == ending.code);  // and it stays ended
  });
  return ending;
}

void wait_for_the_end(gpu::Rank& self) {
  while (stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

TEST_CASE("GPU failures: a rank that stays away, aborts, or calls something else is named, be it a kernel or a stream that waits") {
  for (const std::uint32_t path : {STEPCCL_CUDA_PATH_STAGED, STEPCCL_CUDA_PATH_COPY_ENGINE}) {
    CAPTURE(path);
    const auto begin = std::chrono::steady_clock::now();
    Ending ending = wait_for(path, 700, wait_for_the_end);
    CHECK(ending.code == STEPCCL_ERROR_TIMEOUT);
    CHECK(ending.peer == 1);
    CHECK(ending.text.find("call 1") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(650));

    ending = wait_for(path, 20'000, [](gpu::Rank& self) { self.ok(stepccl_cuda_abort(self.engine), "abort"); });
    CHECK(ending.code == STEPCCL_ERROR_PEER_FAILED);
    CHECK(ending.peer == 1);

    ending = wait_for(path, 20'000, [](gpu::Rank& self) {
      const CUdeviceptr buffer = self.plain(kMiB);
      self.ok(stepccl_cuda_all_reduce(self.engine, reinterpret_cast<void*>(buffer), reinterpret_cast<void*>(buffer), 77, STEPCCL_FLOAT32, STEPCCL_SUM, self.stream, nullptr), "another call");
      wait_for_the_end(self);
    });
    // Whoever looks first names both calls, the other hears of it.
    CHECK((ending.code == STEPCCL_ERROR_MISMATCH || ending.code == STEPCCL_ERROR_PEER_FAILED));
    CHECK(ending.peer == 1);
  }
}

TEST_CASE("GPU failures: many short operations in a row are none that stands still") {
  const std::string problems = run_gpus(2, {.timeout_ms = 900}, [&](gpu::Rank& self) {
    const CUdeviceptr send = self.window(4 * kMiB);
    const CUdeviceptr recv = self.window(8 * kMiB);
    // Some are always queued ahead, so that the lane is hardly ever seen idle.
    CUevent behind[2] = {};
    for (CUevent& event : behind) self.cu(self.driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2200);
    std::uint8_t going = 1;
    for (std::uint32_t turn = 0; going != 0; turn ^= 1u) {
      for (int i = 0; i < 10; ++i) self.ok(gather(self, send, recv, 4 * kMiB, STEPCCL_CUDA_PATH_COPY_ENGINE), "call");
      self.cu(self.driver->cuEventRecord(behind[turn], self.stream), "event");
      self.cu(self.driver->cuEventSynchronize(behind[turn ^ 1u]), "event");
      going = std::chrono::steady_clock::now() < end;
      self.ok(stepccl_all_reduce(self.comm, &going, &going, 1, STEPCCL_UINT8, STEPCCL_MIN, nullptr), "agreeing");
    }
    self.sync();
    for (const CUevent event : behind) self.cu(self.driver->cuEventDestroy_v2(event), "event");
    CHECK(stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS);
  });
  CHECK(problems == "");
}

TEST_CASE("GPU failures: bad buffers are refused by name and leave the engine usable") {
  const std::string problems = run_gpus(2, {}, [&](gpu::Rank& self) {
    const CUdeviceptr good = self.plain(kMiB);
    const auto sum = [&](const void* send, void* recv, std::size_t count) {
      return stepccl_cuda_all_reduce(self.engine, send, recv, count, STEPCCL_FLOAT32, STEPCCL_SUM, self.stream, nullptr);
    };
    auto* at = reinterpret_cast<char*>(good);
    const auto refused = [&](stepccl_result_t got, stepccl_result_t code, const char* why) {
      CHECK(got == code);
      CHECK(last(self.engine).text.find(why) != std::string::npos);
    };
    // Of another GPU; of none; pinned, where paging is off; freed.
    CUdeviceptr elsewhere = 0;
    {
      CUcontext other = nullptr;
      self.cu(self.driver->cuDevicePrimaryCtxRetain(&other, static_cast<CUdevice>(1 - self.rank)), "context");
      const stepccl::cuda::ContextScope scope(*self.driver, other);
      self.cu(self.driver->cuMemAlloc_v2(&elsewhere, kMiB), "cuMemAlloc");
    }
    refused(sum(reinterpret_cast<void*>(elsewhere), at, 16), STEPCCL_ERROR_WRONG_DEVICE, self.rank == 0 ? "memory of GPU 1, this rank's is GPU 0" : "memory of GPU 0, this rank's is GPU 1");
    std::vector<float> host(16);
    refused(sum(host.data(), at, 16), STEPCCL_ERROR_WRONG_DEVICE, "send is neither memory of a GPU nor pinned");
    refused(sum(at, host.data(), 16), STEPCCL_ERROR_WRONG_DEVICE, "recv is neither memory of a GPU nor pinned");
    void* pinned = nullptr;
    self.cu(self.driver->cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    refused(sum(pinned, pinned, 16), STEPCCL_ERROR_WRONG_DEVICE, "turn paging on");
    self.cu(self.driver->cuMemFreeHost(pinned), "cuMemFreeHost");
    self.cu(self.driver->cuMemFree_v2(elsewhere), "cuMemFree");
    refused(sum(reinterpret_cast<void*>(elsewhere), at, 16), STEPCCL_ERROR_WRONG_DEVICE, "neither memory of a GPU");
    void* window = nullptr;
    self.ok(stepccl_cuda_mem_alloc(self.engine, &window, 4096), "mem_alloc");
    self.ok(stepccl_cuda_mem_free(self.engine, window), "mem_free");
    refused(stepccl_cuda_mem_free(self.engine, window), STEPCCL_ERROR_INVALID_ARGUMENT, "no buffer of stepccl_cuda_mem_alloc");
    // Misaligned, overlapping, absent, out of every range.
    refused(sum(at + 2, at, 16), STEPCCL_ERROR_INVALID_ARGUMENT, "aligned");
    refused(sum(at, at + 4, 16), STEPCCL_ERROR_INVALID_ARGUMENT, "overlap");
    refused(sum(nullptr, at, 16), STEPCCL_ERROR_INVALID_ARGUMENT, "send is NULL");
    refused(sum(at, at, SIZE_MAX / 4), STEPCCL_ERROR_INVALID_ARGUMENT, "count is larger");
    refused(stepccl_cuda_broadcast(self.engine, at, at, 16, STEPCCL_FLOAT32, 2, self.stream, nullptr), STEPCCL_ERROR_INVALID_ARGUMENT, "root 2");
    refused(stepccl_cuda_send(self.engine, at, 16, STEPCCL_FLOAT32, 9, self.stream, nullptr), STEPCCL_ERROR_INVALID_ARGUMENT, "peer 9");
    stepccl_cuda_call_t call = STEPCCL_CUDA_CALL_INIT;
    call.path = STEPCCL_CUDA_PATH_DIRECT;
    refused(stepccl_cuda_all_reduce(self.engine, at, at, 16, STEPCCL_FLOAT32, STEPCCL_SUM, self.stream, &call), STEPCCL_ERROR_UNSUPPORTED, "windows");
    // Nothing at all is a barrier.
    CHECK(sum(nullptr, nullptr, 0) == STEPCCL_SUCCESS);
    std::vector<float> ones(16, 1.0f);
    self.upload(good, ones.data(), 64);
    CHECK(sum(at, at, 16) == STEPCCL_SUCCESS);
    self.download(ones.data(), good, 64);
    CHECK(ones[15] == 2.0f);
    CHECK(stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS);
  });
  CHECK(problems == "");
}

TEST_CASE("GPU failures: lengths of a message that differ are told to both ranks") {
  std::atomic<int> named{0};
  run_gpus(2, {}, [&](gpu::Rank& self) {
    const CUdeviceptr buffer = self.plain(8 * kMiB);
    const stepccl_result_t got = self.rank == 0 ? stepccl_cuda_send(self.engine, reinterpret_cast<void*>(buffer), 4 * kMiB, STEPCCL_UINT8, 1, self.stream, nullptr)
                                                : stepccl_cuda_recv(self.engine, reinterpret_cast<void*>(buffer), 3 * kMiB, STEPCCL_UINT8, 0, self.stream, nullptr);
    const Ending ending = last(self.engine);
    named += got == STEPCCL_ERROR_MISMATCH && ending.text.find(self.rank == 0 ? "4194304" : "3145728") != std::string::npos;
  });
  CHECK(named == 2);
}

TEST_CASE("GPU failures: a late rank makes its pair stage, and both go the same way in every call") {
  std::atomic<std::uint32_t> returned{0};  // of rank 0's calls
  const std::string problems = run_gpus(2, {.thresholds = R"({"plain_wait_us": 20000})"}, [&](gpu::Rank& self) {
    constexpr std::uint64_t kBytes = 3 * kMiB;
    const CUdeviceptr buffer = self.plain(kBytes);
    for (std::uint32_t round = 0; round < 12; ++round) {
      self.meet();
      const bool late = round % 6 == 0;
      while (late && self.rank == 1 && returned <= round && stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<unsigned char> data(kBytes, static_cast<unsigned char>(round));
      if (self.rank == 0) self.upload(buffer, data.data(), kBytes);
      self.ok(self.rank == 0 ? stepccl_cuda_send(self.engine, reinterpret_cast<void*>(buffer), kBytes, STEPCCL_UINT8, 1, self.stream, nullptr)
                             : stepccl_cuda_recv(self.engine, reinterpret_cast<void*>(buffer), kBytes, STEPCCL_UINT8, 0, self.stream, nullptr),
              "message");
      if (self.rank == 0) ++returned;
      stepccl_cuda_info_t info{};
      info.size = sizeof info;
      self.ok(stepccl_cuda_query(self.engine, &info), "query");
      const bool staged = info.last_path == STEPCCL_CUDA_PATH_STAGED;
      const std::uint64_t both = self.sum(staged ? 1 : 0);
      CHECK((both == 0 || both == 2));
      if (late) CHECK(staged);
      std::vector<unsigned char> got(kBytes);
      self.download(got.data(), buffer, kBytes);
      CHECK(got == data);
    }
  });
  CHECK(problems == "");
}

TEST_CASE("GPU failures: no GPU, no way between two, one GPU for two ranks: each rank is told, and why") {
  ::unsetenv("STEPCCL_CUDA_SHARED_GPU");
  const auto attach = [](const char* variable, const char* value, std::int32_t of_last) {
    if (variable != nullptr) ::setenv(variable, value, 1);
    std::vector<Ending> endings(2);
    run_ranks(2, config_for(0), [&](std::uint32_t rank, stepccl_comm_t comm) {
      stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
      config.device = rank == 0 ? 0 : of_last;
      config.timeout_ms = 10'000;
      stepccl_cuda_t engine = nullptr;
      const stepccl_result_t got = stepccl_cuda_attach(&engine, comm, &config);
      endings[rank] = last(nullptr);
      CHECK(engine == nullptr);
      CHECK(endings[rank].code == got);
    });
    if (variable != nullptr) ::unsetenv(variable);
    return endings;
  };
  for (const Ending& ending : attach("EMULATED_CUDA_DEVICES", "0", 1)) {
    CHECK(ending.code == STEPCCL_ERROR_NO_GPU);
    CHECK(ending.text.find("the driver shows ") != std::string::npos);
  }
  // One rank's trouble is everyone's error.
  for (const Ending& ending : attach(nullptr, nullptr, 77)) {
    CHECK(ending.code == STEPCCL_ERROR_NO_GPU);
    CHECK(ending.text.find("device 77") != std::string::npos);
  }
  for (const Ending& ending : attach("EMULATED_CUDA_PEERS", "0", 1)) {
    CHECK(ending.code == STEPCCL_ERROR_NO_PEER_ACCESS);
    CHECK(ending.text.find("can't reach") != std::string::npos);
  }
  for (const Ending& ending : attach(nullptr, nullptr, 0)) {
    CHECK(ending.code == STEPCCL_ERROR_WRONG_DEVICE);
    CHECK(ending.text.find("same GPU") != std::string::npos);
  }
}

// Loaded once in a process, so in one of its own.
TEST_CASE("GPU failures: in a child, a driver too old" * doctest::skip()) {
  std::uint32_t count = 9;
  CHECK(stepccl_cuda_device_count(&count) == STEPCCL_ERROR_DRIVER_TOO_OLD);
  CHECK(count == 0);
  CHECK(last(nullptr).text.find("CUDA 11.8, needed is 12.0") != std::string::npos);
}
TEST_CASE("GPU failures: a driver too old says which version it is and which is needed") {
  const int status = std::system("EMULATED_CUDA_VERSION=11080 /proc/$PPID/exe --no-skip --test-case='GPU failures: in a child, a driver*' >/dev/null");
  CHECK(WEXITSTATUS(status) == 0);
}
