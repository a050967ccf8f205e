// SPDX-License-Identifier: Apache-2.0
// The GPU engine over an emulated driver: what it shows to the daemon, what the daemon changes of it while it works, and
// the pool's compaction under operations of the copy engines.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "ranks.hpp"
#include "stepccl/cuda.h"
#include "stepccl/telemetry.h"

extern "C" const unsigned char stepccl_fatbin[1] = {0};  // no kernel is launched

namespace {

using namespace stepccl::testing;
namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1u << 20;

// A job's folder with a control page, as the daemon makes them.
class Node {
 public:
  Node() {
    std::string pattern = (fs::temp_directory_path() / "stepccl-gpu-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    folder = pattern;
    control_file = folder + "/control";
    const int fd = ::open(control_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    REQUIRE(::ftruncate(fd, sizeof(stepccl_control)) == 0);
    page_ = static_cast<stepccl_control*>(::mmap(nullptr, sizeof(stepccl_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    page_->magic = STEPCCL_CONTROL_MAGIC;
    page_->version = 1;
    page_->seq = 2;
    ::setenv("STEPCCL_CONTROL_FILE", control_file.c_str(), 1);
  }
  ~Node() {
    ::munmap(page_, sizeof *page_);
    ::unsetenv("STEPCCL_CONTROL_FILE");
    fs::remove_all(folder);
  }
  template <class F>
  void set(F&& change) {
    __atomic_store_n(&page_->seq, page_->seq | 1u, __ATOMIC_RELEASE);
    change(*page_);
    __atomic_store_n(&page_->seq, page_->seq + 1, __ATOMIC_RELEASE);
  }
  // The board of a rank, whole; without one `magic` is 0.
  stepccl_gpu_board board(std::uint32_t rank) const {
    stepccl_gpu_board copy{};
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      const char dotted[] = {'.', static_cast<char>('0' + rank), '.', '\0'};
      if (name.find(dotted) == std::string::npos || entry.path().extension() != ".gpu") continue;
      const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
      for (int attempt = 0; attempt < 1000; ++attempt) {
        if (::pread(fd, &copy, sizeof copy, 0) != sizeof copy) break;
        stepccl_gpu_board again{};
        if (::pread(fd, &again, sizeof again, 0) == sizeof again && copy.edits % 2 == 0 && again.edits == copy.edits) break;
      }
      ::close(fd);
    }
    return copy;
  }
  template <class F>
  bool comes(std::uint32_t rank, F&& condition) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      const stepccl_gpu_board now = board(rank);
      if (now.magic == STEPCCL_GPU_MAGIC && condition(now)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::string folder;
  std::string control_file;

 private:
  stepccl_control* page_ = nullptr;
};

// A page that sets nothing.
stepccl_control unset_of(const stepccl_control& page) {
  stepccl_control empty{};
  empty.magic = page.magic;
  empty.version = page.version;
  empty.seq = page.seq;
  return empty;
}

struct Gpu {
  std::uint32_t rank = 0;
  stepccl_comm_t comm = nullptr;
  stepccl_cuda_t engine = nullptr;

  std::uint8_t* window(std::uint64_t bytes) const {
    void* pointer = nullptr;
    REQUIRE(stepccl_cuda_mem_alloc(engine, &pointer, bytes) == STEPCCL_SUCCESS);
    return static_cast<std::uint8_t*>(pointer);
  }
  void release(void* pointer) const { REQUIRE(stepccl_cuda_mem_free(engine, pointer) == STEPCCL_SUCCESS); }
  stepccl_result_t gather(const std::uint8_t* send, std::uint8_t* recv, std::uint64_t bytes) const {
    stepccl_cuda_call_t call = STEPCCL_CUDA_CALL_INIT;
    call.path = STEPCCL_CUDA_PATH_COPY_ENGINE;
    return stepccl_cuda_all_gather(engine, send, recv, bytes, STEPCCL_UINT8, nullptr, &call);
  }
  // The emulated memory is the host's: looks until the streams have written it.
  bool holds(const std::uint8_t* at, std::uint64_t bytes, std::uint8_t value) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      bool all = true;
      for (std::uint64_t i = 0; i < bytes && all; i += 997) all = reinterpret_cast<const volatile std::uint8_t*>(at)[i] == value;
      if (all) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  void meet() const {
    std::uint8_t nothing = 0;
    REQUIRE(stepccl_all_reduce(comm, &nothing, &nothing, 1, STEPCCL_UINT8, STEPCCL_SUM, nullptr) == STEPCCL_SUCCESS);
  }
};

void run_gpus(const std::string& folder, std::uint64_t pool_bytes, const std::function<void(const Gpu&)>& body, const char* calibration = nullptr) {
  stepccl_config_t config = config_for(0);
  config.telemetry_dir = folder.c_str();
  config.job_name = "emulated";
  run_ranks(2, config, [&](std::uint32_t rank, stepccl_comm_t comm) {
    stepccl_cuda_config_t gpu = STEPCCL_CUDA_CONFIG_INIT;
    gpu.device = static_cast<std::int32_t>(rank);
    gpu.pool_bytes = pool_bytes;
    gpu.timeout_ms = 10'000;
    gpu.calibration_file = calibration;
    Gpu self{rank, comm, nullptr};
    const stepccl_result_t attached = stepccl_cuda_attach(&self.engine, comm, &gpu);
    stepccl_error_info_t problem{};
    problem.size = sizeof problem;
    stepccl_cuda_last_error(nullptr, &problem);
    CHECK_MESSAGE(attached == STEPCCL_SUCCESS, problem.text);
    if (attached != STEPCCL_SUCCESS) return;
    body(self);
    CHECK(stepccl_cuda_detach(self.engine) == STEPCCL_SUCCESS);
  });
}

}  // namespace

TEST_CASE("GPU engine: the board shows pool, map and async level; it goes with the engine") {
  Node node;
  run_gpus(node.folder, 256 * kMiB, [&](const Gpu& self) {
    std::uint8_t* buffers[3];
    for (auto& buffer : buffers) buffer = self.window(6 * kMiB);
    self.release(buffers[1]);
    CHECK(node.comes(self.rank, [&](const stepccl_gpu_board& board) {
      return board.buffers == 2 && board.used_bytes == board.staging_bytes + 12 * kMiB && board.largest_free_bytes >= 6 * kMiB;
    }));
    const stepccl_gpu_board board = node.board(self.rank);
    CHECK(board.version == STEPCCL_GPU_VERSION);
    CHECK(board.rank == self.rank);
    CHECK(board.world_size == 2);
    CHECK(std::string(reinterpret_cast<const char*>(board.job_name)) == "emulated");
    CHECK(std::string(reinterpret_cast<const char*>(board.gpu_uuid)).substr(0, 8) == (self.rank == 0 ? "GPU-1010" : "GPU-1111"));
    CHECK(board.async_level == STEPCCL_CUDA_ASYNC_STREAM);
    CHECK(board.async_reason[0] != 0);
    CHECK(board.capacity_bytes == 256 * kMiB);
    CHECK(board.fragmentation_permille == (board.held_bytes - board.used_bytes) * 1000 / board.held_bytes);
    CHECK(board.device_total_bytes == 1u << 30);
    CHECK(board.device_free_bytes < board.device_total_bytes);
    std::uint64_t by_kind[3] = {};
    REQUIRE(board.range_count <= STEPCCL_GPU_RANGES);
    for (std::uint32_t i = 0; i < board.range_count; ++i) by_kind[board.ranges[i].kind] += board.ranges[i].bytes;
    CHECK(by_kind[STEPCCL_GPU_RANGE_BUFFER] == 12 * kMiB);
    CHECK(by_kind[STEPCCL_GPU_RANGE_ENGINE] == board.staging_bytes);
    CHECK(by_kind[STEPCCL_GPU_RANGE_FREE] == board.held_bytes - board.used_bytes);
    for (const auto& row : board.settings) CHECK(row.state == STEPCCL_GPU_SETTING_OWN);
    self.meet();
  });
  for (const auto& entry : fs::directory_iterator(node.folder)) CHECK(entry.path().extension() != ".gpu");
}

TEST_CASE("GPU engine: the daemon's hbm_defrag compacts the pool under running operations, addresses and contents kept") {
  Node node;
  run_gpus(node.folder, 512 * kMiB, [&](const Gpu& self) {
    // Sixteen buffers in one extent, every second of them given back.
    std::uint8_t* large = self.window(64 * kMiB);
    self.release(large);
    std::vector<std::uint8_t*> kept;
    std::vector<std::uint8_t*> gone;
    for (int i = 0; i < 16; ++i) (i % 2 == 0 ? kept : gone).push_back(self.window(4 * kMiB));
    for (std::size_t i = 0; i < kept.size(); ++i) std::memset(kept[i], static_cast<int>(10 + i), 4 * kMiB);
    std::uint8_t* send = self.window(kMiB);
    std::uint8_t* recv = self.window(2 * kMiB);
    for (std::uint8_t* buffer : gone) self.release(buffer);
    self.meet();
    CHECK(node.comes(self.rank, [&](const stepccl_gpu_board& board) { return board.buffers == 10; }));
    const stepccl_gpu_board before = node.board(self.rank);
    self.meet();
    if (self.rank == 0) {
      node.set([](stepccl_control& page) {
        page.hbm_defrag = 2;
        page.hbm_defrag_interval_ms = 10;
      });
    }
    bool right = true;
    bool compacted = false;
    for (std::uint8_t round = 1; round < 250 && right; ++round) {
      std::memset(send, round + self.rank, kMiB);
      right = self.gather(send, recv, kMiB) == STEPCCL_SUCCESS && self.holds(recv, kMiB, round) && self.holds(recv + kMiB, kMiB, static_cast<std::uint8_t>(round + 1));
      // All ranks make the same calls: they stop together.
      std::uint8_t enough = node.board(self.rank).defrag_released_bytes >= 32 * kMiB;
      REQUIRE(stepccl_all_reduce(self.comm, &enough, &enough, 1, STEPCCL_UINT8, STEPCCL_MIN, nullptr) == STEPCCL_SUCCESS);
      compacted = enough != 0;
      if (compacted && round > 20) break;
    }
    CHECK(right);
    CHECK(compacted);
    const stepccl_gpu_board after = node.board(self.rank);
    CHECK(after.held_bytes + 32 * kMiB <= before.held_bytes);
    CHECK(after.last_before_permille == before.fragmentation_permille);
    CHECK(after.last_after_permille < after.last_before_permille);
    CHECK(after.last_epoch_ns > before.updated_ns);
    CHECK(after.defrag_interval_ms == 10);
    CHECK(after.settings[STEPCCL_GPU_HBM_DEFRAG].state == STEPCCL_GPU_SETTING_APPLIED);
    CHECK(after.settings[STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS].state == STEPCCL_GPU_SETTING_APPLIED);
    for (std::size_t i = 0; i < kept.size(); ++i) CHECK(self.holds(kept[i], 4 * kMiB, static_cast<std::uint8_t>(10 + i)));
    self.meet();
    if (self.rank == 0) node.set([](stepccl_control& page) { page.hbm_defrag = 1; });
    CHECK(node.comes(self.rank, [&](const stepccl_gpu_board& board) { return board.defrag_interval_ms == 0; }));
    CHECK(node.comes(self.rank, [&](const stepccl_gpu_board& board) {
      const auto& row = board.settings[STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS];
      return row.state == STEPCCL_GPU_SETTING_REFUSED && row.reason == STEPCCL_GPU_REASON_NEEDS_OTHER;
    }));
    self.meet();
  });
}

TEST_CASE("GPU engine: settings change a running process, come into force on all ranks at one call, or say why not") {
  Node node;
  run_gpus(node.folder, 128 * kMiB, [&](const Gpu& self) {
    std::uint8_t* send = self.window(kMiB);
    std::uint8_t* recv = self.window(2 * kMiB);
    std::memset(send, 7, kMiB);
    const auto row_is = [&](stepccl_gpu_setting setting, stepccl_gpu_setting_state state, stepccl_gpu_reason reason, std::uint64_t in_force) {
      const bool came = node.comes(self.rank, [&](const stepccl_gpu_board& board) {
        const auto& row = board.settings[setting];
        return row.state == state && row.reason == reason && row.in_force == in_force;
      });
      const auto row = node.board(self.rank).settings[setting];
      CHECK_MESSAGE(came, "setting ", static_cast<int>(setting), ": state ", static_cast<int>(row.state), ", reason ", static_cast<int>(row.reason), ", in force ", row.in_force);
    };
    if (self.rank == 0) {
      node.set([](stepccl_control& page) {
        page.pipeline_depth = 6;
        page.sm_budget = 33;  // more than an engine has
        page.async_gd = 1;
        page.paging = 2;
        page.page_bytes = 4 * kMiB;
        page.prefetch_depth = 3;
        page.hbm_cache_ratio_permille = 250;
      });
    }
    row_is(STEPCCL_GPU_PIPELINE_DEPTH, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 6);
    row_is(STEPCCL_GPU_SM_BUDGET, STEPCCL_GPU_SETTING_REFUSED, STEPCCL_GPU_REASON_OUT_OF_RANGE, 0);
    row_is(STEPCCL_GPU_ASYNC_GD, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 0);
    row_is(STEPCCL_GPU_PAGING, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 1);
    row_is(STEPCCL_GPU_PREFETCH_DEPTH, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 3);
    row_is(STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 250);
    const stepccl_gpu_board board = node.board(self.rank);
    CHECK(board.async_level == STEPCCL_CUDA_ASYNC_NONE);
    CHECK(std::string(reinterpret_cast<const char*>(board.async_reason)).find("daemon") != std::string::npos);
    CHECK(board.page_bytes == 4 * kMiB);
    CHECK(board.capacity_bytes == (std::uint64_t{1} << 30) / 1000 * 250 / (2 * kMiB) * (2 * kMiB));
    self.meet();

    // A process's own setting gives way to the daemon's, and comes back with its end.
    REQUIRE(stepccl_cuda_set_pipeline_depth(self.engine, 2) == STEPCCL_SUCCESS);
    row_is(STEPCCL_GPU_PIPELINE_DEPTH, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 6);
    self.meet();
    if (self.rank == 0) node.set([](stepccl_control& page) { page = unset_of(page); });
    row_is(STEPCCL_GPU_PIPELINE_DEPTH, STEPCCL_GPU_SETTING_OWN, STEPCCL_GPU_REASON_NONE, 2);
    row_is(STEPCCL_GPU_PAGING, STEPCCL_GPU_SETTING_OWN, STEPCCL_GPU_REASON_NONE, 0);
    CHECK(node.board(self.rank).async_level == STEPCCL_CUDA_ASYNC_STREAM);
    CHECK(node.board(self.rank).capacity_bytes == 128 * kMiB);
    self.meet();

    // More pages than the pool has room for.
    if (self.rank == 0) {
      node.set([](stepccl_control& page) {
        page.paging = 2;
        page.page_bytes = 64 * kMiB;
      });
    }
    row_is(STEPCCL_GPU_PAGING, STEPCCL_GPU_SETTING_REFUSED, STEPCCL_GPU_REASON_NO_MEMORY, 0);
    self.meet();
    if (self.rank == 0) node.set([](stepccl_control& page) { page.paging = 0, page.page_bytes = 0; });
    row_is(STEPCCL_GPU_PAGING, STEPCCL_GPU_SETTING_OWN, STEPCCL_GPU_REASON_NONE, 0);
    self.meet();

    // Rank 0 is a call ahead: the change waits for the next one that both make.
    if (self.rank == 0) REQUIRE(self.gather(send, recv, kMiB) == STEPCCL_SUCCESS);
    self.meet();
    if (self.rank == 0) node.set([](stepccl_control& page) { page.sm_budget = 8; });
    row_is(STEPCCL_GPU_SM_BUDGET, STEPCCL_GPU_SETTING_PENDING, STEPCCL_GPU_REASON_NEXT_CALL, 0);
    self.meet();
    if (self.rank == 1) REQUIRE(self.gather(send, recv, kMiB) == STEPCCL_SUCCESS);
    row_is(STEPCCL_GPU_SM_BUDGET, STEPCCL_GPU_SETTING_PENDING, STEPCCL_GPU_REASON_NEXT_CALL, 0);
    self.meet();
    REQUIRE(self.gather(send, recv, kMiB) == STEPCCL_SUCCESS);
    row_is(STEPCCL_GPU_SM_BUDGET, STEPCCL_GPU_SETTING_APPLIED, STEPCCL_GPU_REASON_NONE, 8);
    CHECK(self.holds(recv, 2 * kMiB, 7));
    self.meet();
  });
}

TEST_CASE("GPU engine: large calls take an application's own buffers as they are, and let go of what was freed") {
  // The ranks wait for each other however late the machine makes one.
  const Node node;
  const std::string calibration = node.folder + "/calibration.json";
  std::ofstream(calibration) << R"({"plain_wait_us": 20000000})";
  run_gpus("", 64 * kMiB, [&](const Gpu& self) {
    const stepccl::cuda::Driver& driver = *stepccl::cuda::Driver::get().value();
    CUcontext context = nullptr;
    REQUIRE(driver.cuDevicePrimaryCtxRetain(&context, static_cast<CUdevice>(self.rank)) == CUDA_SUCCESS);
    const stepccl::cuda::ContextScope scope(driver, context);
    const auto path = [&] {
      stepccl_cuda_info_t info{};
      info.size = sizeof info;
      REQUIRE(stepccl_cuda_query(self.engine, &info) == STEPCCL_SUCCESS);
      return info.last_path;
    };
    constexpr std::uint64_t kBytes = 20 * kMiB;  // above what a kernel would copy
    for (int round = 1; round <= 4; ++round) {
      // Elsewhere in every round, and at another place in it on each rank.
      CUdeviceptr memory[2] = {};
      REQUIRE(driver.cuMemAlloc_v2(&memory[0], kBytes + kMiB) == CUDA_SUCCESS);
      REQUIRE(driver.cuMemAlloc_v2(&memory[1], 2 * kBytes + kMiB) == CUDA_SUCCESS);
      auto* send = reinterpret_cast<std::uint8_t*>(memory[0]) + self.rank * 512;
      auto* recv = reinterpret_cast<std::uint8_t*>(memory[1]) + self.rank * 1024;
      for (int again = 0; again < 3; ++again) {
        const int value = round * 16 + again * 2;
        std::memset(send, value + static_cast<int>(self.rank), kBytes);
        self.meet();
        REQUIRE(stepccl_cuda_all_gather(self.engine, send, recv, kBytes, STEPCCL_UINT8, nullptr, nullptr) == STEPCCL_SUCCESS);
        CHECK(path() == STEPCCL_CUDA_PATH_COPY_ENGINE);
        for (int from = 0; from < 2; ++from) CHECK(self.holds(recv + from * kBytes, kBytes, static_cast<std::uint8_t>(value + from)));
        self.meet();
      }
      // Uneven blocks: rank r sends (r + 1) MiB to itself and (r + 3) MiB to the other.
      const auto size = [&](std::uint32_t from, std::uint32_t to) { return (from + (from == to ? 1 : 3)) * kMiB; };
      std::size_t counts[2], offsets[2], from_counts[2], from_offsets[2];
      for (std::uint32_t peer = 0; peer < 2; ++peer) {
        counts[peer] = size(self.rank, peer);
        offsets[peer] = peer * 8 * kMiB;
        from_counts[peer] = size(peer, self.rank);
        from_offsets[peer] = (1 - peer) * 10 * kMiB;  // in the other order
        std::memset(send + offsets[peer], round + static_cast<int>(10 * self.rank + peer), counts[peer]);
      }
      self.meet();
      REQUIRE(stepccl_cuda_all_to_all_v(self.engine, send, counts, offsets, recv, from_counts, from_offsets, STEPCCL_UINT8, nullptr, nullptr) == STEPCCL_SUCCESS);
      CHECK(path() == STEPCCL_CUDA_PATH_COPY_ENGINE);
      for (std::uint32_t peer = 0; peer < 2; ++peer) CHECK(self.holds(recv + from_offsets[peer], from_counts[peer], static_cast<std::uint8_t>(round + static_cast<int>(10 * peer + self.rank))));
      self.meet();
      for (const CUdeviceptr one : memory) REQUIRE(driver.cuMemFree_v2(one) == CUDA_SUCCESS);
      self.meet();
    }
  }, calibration.c_str());
}

TEST_CASE("GPU engine: without a daemon it works and shows nothing") {
  ::setenv("STEPCCL_CONTROL_FILE", "/nonexistent/control", 1);
  run_gpus("", 64 * kMiB, [&](const Gpu& self) {
    std::uint8_t* send = self.window(kMiB);
    std::uint8_t* recv = self.window(2 * kMiB);
    std::memset(send, 3, kMiB);
    CHECK(self.gather(send, recv, kMiB) == STEPCCL_SUCCESS);
    CHECK(self.holds(recv, 2 * kMiB, 3));
  });
  ::unsetenv("STEPCCL_CONTROL_FILE");
}
