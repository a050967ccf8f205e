// SPDX-License-Identifier: Apache-2.0
// One rank's GPU in a communicator: its pool, its lanes, and what is queued on its streams.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/arena.hpp"
#include "cuda/kernels.hpp"
#include "cuda/layout.hpp"
#include "cuda/ledger.hpp"
#include "cuda/live_settings.hpp"
#include "cuda/meeting.hpp"
#include "cuda/mesh.hpp"
#include "cuda/operation.hpp"
#include "memory/pool_map.hpp"
#include "stepccl/cuda.h"
#include "telemetry/control_page.hpp"
#include "telemetry/gpu_board.hpp"

namespace stepccl::cuda {

// stepccl_cuda_config_t with its defaults and the environment applied.
struct Config {
  int device = -1;
  std::uint32_t timeout_ms = 30'000;
  std::uint32_t sm_budget = 0;
  std::uint32_t graph_lanes = 4;
  std::uint32_t dma_concurrency = 1;
  std::uint32_t pipeline_depth = 4;
  bool async_gd = true;
  bool shared_gpu = false;  // several ranks on one GPU, for development
  std::uint64_t pool_bytes = 0;
  double hbm_cache_ratio = 0.1;
  Thresholds thresholds;

  [[nodiscard]] static Expected<Config> resolve(const stepccl_cuda_config_t* config, std::uint32_t world);
};

// Memory that the peers see, at each rank's own address.
struct Window {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  bool pooled = false;  // of mem_alloc; otherwise registered
  std::array<CUdeviceptr, kMaxRanks> base{};
  std::array<std::uint64_t, kMaxRanks> mapped_offset{};  // registered: of base in what CUDA IPC opened
};

class Engine {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Engine>> attach(stepccl_comm_t comm, const stepccl_cuda_config_t* config);
  // Waits for what is queued, within the timeout, and lets everything go.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Status run(Operation operation, CUstream stream, stepccl_cuda_call_t* call);
  [[nodiscard]] Status group_start();
  [[nodiscard]] Status group_end();

  [[nodiscard]] Status mem_alloc(void** pointer, std::size_t bytes);
  [[nodiscard]] Status mem_free(void* pointer);
  [[nodiscard]] Status register_memory(void* pointer, std::size_t bytes);
  [[nodiscard]] Status deregister(void* pointer);
  [[nodiscard]] Status pool_query(stepccl_cuda_pool_info_t& info);
  [[nodiscard]] Status set_defrag(std::uint32_t interval_ms);
  [[nodiscard]] Status defrag_now(std::uint64_t* released_bytes);
  [[nodiscard]] Status set_paging(std::uint64_t page_bytes, std::uint32_t prefetch_depth);
  [[nodiscard]] Status set_pipeline_depth(std::uint32_t depth);
  [[nodiscard]] Status set_sm_budget(std::uint32_t blocks);
  [[nodiscard]] Status receipt(std::uint64_t ticket, stepccl_cuda_receipt_t& receipt);
  [[nodiscard]] Status wait_page(std::uint64_t ticket, std::uint64_t page, CUstream stream, bool on_host);

  // Any thread, never blocking.
  void abort();
  void query(stepccl_cuda_info_t& info);
  [[nodiscard]] std::optional<Error> failure() const;
  void set_last_error(const Error& error);
  [[nodiscard]] std::optional<Error> last_error() const;
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }

 private:
  // Flags and staging that one stream of operations uses at a time. Lane 0 is for eager calls.
  struct Lane {
    CUdeviceptr local = 0;
    std::array<CUdeviceptr, kMaxRanks> base{};  // of each rank's lane, as this rank sees it
    std::array<CUdeviceptr, kMaxRanks> places{};  // pipeline: each rank's places for chunks; 0 before the first use
    CUevent done = nullptr;       // after the last operation
    bool used = false;            // done has been recorded (in this capture)
    CUstream last_stream = nullptr;
    cuuint64_t capture = 0;
  };
  struct Ticket {
    std::uint64_t number = 0;
    stepccl_cuda_path_t path = STEPCCL_CUDA_PATH_AUTO;
    std::uint32_t blocks = 0;
    std::uint32_t copies = 0;
    std::uint64_t link_bytes = 0;
    std::uint64_t pages = 0;       // paged: how many
    std::uint64_t page_base = 0;   // paged: value of the page counter before
    bool captured = false;
  };
  static constexpr std::uint32_t kTickets = 1024;
  struct LaneOwners;  // shared with graphs, which outlive the engine sometimes

  // What one call runs with.
  struct Flight {
    CUstream stream = nullptr;
    Lane* lane = nullptr;
    std::uint32_t lane_index = 0;
    bool capturing = false;
    cuuint64_t capture = 0;
    CUgraph graph = nullptr;
    std::uint32_t budget = 0;
    Ticket* ticket = nullptr;
  };

  Engine(stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, Config config) : comm_(comm), rank_(rank), world_(world), config_(std::move(config)) {}

  // attach.cpp
  [[nodiscard]] Status start();
  [[nodiscard]] Status open_meeting();
  [[nodiscard]] Status choose_device();
  [[nodiscard]] Status check_peers();
  [[nodiscard]] Status make_pool();
  [[nodiscard]] Status make_lanes();
  [[nodiscard]] Status make_streams();
  [[nodiscard]] Expected<std::vector<std::vector<std::byte>>> share_over_comm(std::span<const std::byte> mine);

  // pool.cpp
  // What the ranks tell each other in one step, all of the same kind; a rank that is in another call is a mismatch.
  [[nodiscard]] Expected<std::vector<Contribution>> agree(const char* what, std::span<const std::byte> mine, std::span<const int> descriptors = {});
  [[nodiscard]] Expected<Window> allocate_window(std::uint64_t bytes);
  [[nodiscard]] Status settle_streams(bool patient = false);
  [[nodiscard]] std::uint64_t staging_bytes() const;
  [[nodiscard]] std::uint64_t pool_capacity(std::uint64_t bytes, std::uint64_t by_ratio) const;
  [[nodiscard]] std::uint64_t offset_of(const Window& window) const { return window.base[rank_] - arena_->base(rank_); }
  [[nodiscard]] const Window* window_of(const void* pointer, std::uint64_t bytes) const;
  [[nodiscard]] const Window* window_of(CUdeviceptr pointer, std::uint64_t bytes) const;
  // Where a pointer inside a window is at `peer`, as this rank sees it.
  [[nodiscard]] static CUdeviceptr at_peer(const Window& window, std::uint32_t rank, CUdeviceptr pointer, std::uint32_t peer) {
    return window.base[peer] + (pointer - window.base[rank]);
  }

  // run.cpp
  [[nodiscard]] Status check_pointers(const Operation& operation, bool& host_memory) const;
  [[nodiscard]] Status execute(Operation& operation, CUstream stream, stepccl_cuda_call_t* call);
  [[nodiscard]] Status find_capture(Flight& flight, CUstream stream) const;
  [[nodiscard]] Status enter(Flight& flight, CUstream stream, Operation& operation);
  [[nodiscard]] Status leave(Flight& flight);
  [[nodiscard]] Status lane_for(cuuint64_t capture, CUgraph graph, Flight& flight);
  [[nodiscard]] Status dispatch(Flight& flight, Operation& operation, stepccl_cuda_path_t path, bool host_memory);
  [[nodiscard]] Status gate(Flight& flight, bool entering);
  [[nodiscard]] Expected<stepccl_cuda_path_t> choose_path(const Operation& operation, std::uint32_t wanted, const Flight& flight) const;
  Ticket& new_ticket();

  // guests.cpp: plain buffers as windows, for one call
  [[nodiscard]] Status invite_guests(const Operation& operation, bool capturing);
  [[nodiscard]] BufferRef locate(const void* pointer, std::uint64_t bytes, std::uint32_t readers, bool& fresh);
  [[nodiscard]] CUdeviceptr open_segment(std::uint32_t peer, std::uint32_t index);
  [[nodiscard]] CUdeviceptr peer_address(const BufferRef& ref, std::uint32_t peer);
  void tend_own_segments();
  void tend_segments();

  // pairs.cpp: sends and receives
  [[nodiscard]] Status open_pairs();
  [[nodiscard]] Status invite_pairs(const Operation& operation, bool forced, bool capturing);
  [[nodiscard]] Status launch_agreed(Flight& flight, const Operation& operation);
  [[nodiscard]] Status launch_mixed(Flight& flight, const Operation& operation);
  [[nodiscard]] bool all_agreed(const Operation& operation) const {
    const std::uint32_t others = (operation.varying ? (1u << world_) - 1u : operation.involved) & ~(1u << rank_);
    return operation.pairwise() && others != 0 && (agreed_ & others) == others;
  }

  // exchange.cpp: kernels through lanes
  [[nodiscard]] Status launch_exchange(Flight& flight, const Operation& operation, Kernels::Kind kind);
  [[nodiscard]] Status launch_messages(Flight& flight, const Messages& messages, Kernels::Kind kind, bool last);
  // direct.cpp: kernels on windows
  [[nodiscard]] bool direct_possible(const Operation& operation, bool bulk) const;
  [[nodiscard]] bool spread_possible(const Operation& operation) const;
  [[nodiscard]] Status launch_spread(Flight& flight, const Operation& operation);
  [[nodiscard]] Status launch_direct(Flight& flight, const Operation& operation, bool bulk);
  void fill_common(Common& common, const Flight& flight, const Operation& operation) const;
  [[nodiscard]] Status launch(Flight& flight, CUfunction kernel, std::uint32_t blocks, std::uint32_t threads, std::uint32_t shared_bytes, void* args);
  // copies.cpp: copy engines
  [[nodiscard]] bool copies_possible(const Operation& operation) const;
  [[nodiscard]] Status launch_copies(Flight& flight, const Operation& operation);
  // relay.cpp: broadcasts that go on from rank to rank
  [[nodiscard]] bool worth_relaying(const Operation& operation) const;
  [[nodiscard]] Status launch_relay(Flight& flight, const Operation& operation);
  // Stream memory operations, gathered and then queued as one.
  static void post(std::vector<CUstreamBatchMemOpParams>& ops, CUdeviceptr flag, std::uint32_t value);
  static void await(std::vector<CUstreamBatchMemOpParams>& ops, CUdeviceptr flag);  // for 1, then puts it back to 0
  static void await_at_least(std::vector<CUstreamBatchMemOpParams>& ops, CUdeviceptr flag, std::uint32_t value);
  [[nodiscard]] Status submit(CUstream stream, std::vector<CUstreamBatchMemOpParams>& ops);
  // pipeline.cpp: copy engines and a few blocks together
  [[nodiscard]] bool pipeline_possible(const Operation& operation) const;
  [[nodiscard]] Status launch_pipeline(Flight& flight, const Operation& operation);
  [[nodiscard]] Status make_places(Lane& lane);
  static constexpr std::uint64_t kPlacesBytes = 64u << 20;  // of a lane that runs a pipeline
  enum class Phase { kReady, kComplete };
  [[nodiscard]] Status synchronise(Flight& flight, CUstream stream, Phase phase, std::uint32_t peers = ~0u);  // bit by peer
  struct Copy {
    CUdeviceptr to = 0;
    CUdeviceptr from = 0;
    std::uint64_t bytes = 0;
    bool local = false;
  };
  [[nodiscard]] Status run_copies(Flight& flight, const std::vector<Copy>& copies, std::uint32_t peers = ~0u);
  // paging.cpp
  [[nodiscard]] Status make_pages(std::uint64_t page_bytes, std::uint32_t prefetch_depth);
  [[nodiscard]] Status change_paging(std::uint64_t page_bytes, std::uint32_t prefetch_depth);
  [[nodiscard]] Status run_paged(Flight& flight, const Operation& operation, bool host_memory);
  // watch.cpp
  void watch();
  void fail(Error error);
  [[nodiscard]] Error communicator_error(stepccl_result_t code) const;
  void release_waiters();
  // background.cpp
  void open_background();
  void background();
  [[nodiscard]] bool hold_epoch(std::span<const std::byte> note);
  [[nodiscard]] Status keep_epoch() const;
  [[nodiscard]] Status settings_epoch(const stepccl_control& page);
  [[nodiscard]] Status apply_page(const stepccl_control& page);
  [[nodiscard]] Status apply_pending();
  [[nodiscard]] Status follow_plan();
  [[nodiscard]] bool changes_paging(const LivePlan& plan) const;
  [[nodiscard]] Status set_own(std::initializer_list<std::pair<stepccl_gpu_setting, std::uint64_t>> values);
  void publish_board();
  // defrag.cpp
  [[nodiscard]] Expected<std::uint64_t> defrag_epoch(const Mesh& mesh, std::uint32_t lock_ms);
  [[nodiscard]] Expected<bool> quiesce();
  [[nodiscard]] Status set_gate(std::uint32_t closed);
  [[nodiscard]] Status compact(memory::Compaction& plan);

  const stepccl_comm_t comm_;
  const std::uint32_t rank_;
  const std::uint32_t world_;
  Config config_;
  const Driver* driver_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::array<char, 48> uuid_{};
  int multiprocessors_ = 0;
  bool hopper_ = false;        // bulk kernels
  std::uint32_t shared_limit_ = 0;
  bool stream_memory_ops_ = false;
  std::atomic<bool> async_gd_{true};
  std::atomic<bool> async_by_daemon_{false};
  Mesh calls_;                 // for calls that all ranks make
  Mesh epochs_;                // for the background
  Kernels kernels_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<memory::PoolMap> pool_;
  std::set<std::uint64_t> own_offsets_;  // of the pool's buffers, the engine's own
  std::uint64_t attach_used_bytes_ = 0;
  std::uint64_t pool_bytes_at_attach_ = 0;
  LaneLayout layout_{};
  std::vector<Lane> lanes_;
  std::shared_ptr<LaneOwners> owners_;
  std::atomic<std::uint32_t> shared_lanes_{0};
  std::map<CUdeviceptr, Window> windows_;
  std::uint64_t next_window_ = 1;
  Ledger ledger_;

  // Plain buffers
  struct OwnSegment {
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    std::uint32_t index = 0;
  };
  struct OpenedSegment {
    std::uint64_t generation = 0;
    CUdeviceptr base = 0;
  };
  Meeting meeting_;
  std::array<Window, 2> guests_;     // of the call that is being made
  std::uint32_t guest_count_ = 0;
  // all_to_all_v, send and receive: the peers, bit by rank, to which copy engines write in this call, and where
  std::uint32_t agreed_ = 0;
  std::array<CUdeviceptr, kMaxRanks> peer_to_{};
  struct Pair {
    Meeting meeting;
    std::uint32_t misses = 0;     // times in a row that it did not agree
    std::uint32_t leave_out = 0;  // calls before it meets again
  };
  std::vector<Pair> pairs_;          // by peer
  bool guests_off_ = false;          // the devices can't
  std::map<unsigned long long, OwnSegment> own_segments_;  // by the driver's number of the allocation
  std::set<unsigned long long> unshareable_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, OpenedSegment> opened_segments_;  // by peer and index

  CUstream null_stream_ = nullptr;    // stands in for the legacy default stream
  CUevent null_event_ = nullptr;
  std::vector<CUstream> side_streams_;
  std::vector<CUevent> side_events_;
  CUevent fork_ = nullptr;
  CUstream watch_stream_ = nullptr;
  CUdeviceptr words_ = 0;              // device memory: gate (0), active (64), by lane (128): whom a copy-engine operation waits for, and the watcher's mark
  CUdeviceptr receipts_ = 0;           // device memory: ReceiptSlot[kTickets]
  DeviceStatus* status_ = nullptr;     // pinned host memory
  std::uint32_t* phase_words_ = nullptr;  // pinned: copies of the lanes' words, for the watcher
  std::uint32_t* ones_ = nullptr;      // pinned: 1, 1, 1, ...
  std::uint32_t* plenty_ = nullptr;    // pinned: more than any count that is waited for
  std::uint32_t* gate_words_ = nullptr;  // pinned: what goes to and comes from words_
  std::uint64_t* page_word_ = nullptr; // pinned: pages done, in all

  std::array<Ticket, kTickets> tickets_;
  std::uint64_t next_ticket_ = 1;
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint32_t> last_path_{0};
  std::atomic<std::uint32_t> last_blocks_{0};

  // Paging
  std::uint64_t page_bytes_ = 0;  // as asked for; 0 = off
  std::uint64_t page_size_ = 0;   // of page_window_
  std::uint32_t prefetch_depth_ = 0;
  std::optional<Window> page_window_;
  std::array<CUevent, 32> page_events_{};
  std::uint64_t pages_queued_ = 0;

  // Defragmentation
  std::atomic<std::uint32_t> defrag_interval_ms_{0};
  std::atomic<bool> gated_{false};     // graphs captured from now on pass the gate
  std::atomic<bool> ungated_graphs_{false};
  std::uint64_t defrag_epochs_ = 0;
  std::uint64_t defrag_moved_bytes_ = 0;
  std::uint64_t defrag_released_bytes_ = 0;
  std::uint32_t last_before_permille_ = 0;
  std::uint32_t last_after_permille_ = 0;
  std::uint64_t last_epoch_us_ = 0;
  std::uint64_t last_epoch_ns_ = 0;
  std::uint32_t defrag_blocked_ = 0;   // stepccl_gpu_reason

  // The daemon's settings, and the board
  std::thread background_;
  std::atomic<bool> stop_background_{false};
  telemetry::ControlPage page_;        // rank 0's counts
  std::string control_file_;
  telemetry::GpuBoard board_;
  std::atomic<bool> board_stale_{true};
  LiveValues own_{};                   // what the process set itself
  LiveWishes wishes_;
  LivePlan plan_;
  LiveLimits limits_;
  std::uint64_t settled_seq_ = 0;      // of the page that all ranks know
  std::uint64_t applied_seq_ = 0;
  std::optional<stepccl_control> pending_;
  std::uint64_t pending_after_call_ = 0;
  std::array<std::uint64_t, kMaxRanks> pair_calls_{};  // sends and receives, by peer
  std::uint64_t memory_looked_ns_ = 0;
  std::uint64_t device_free_bytes_ = 0;
  std::uint64_t device_total_bytes_ = 0;

  std::timed_mutex mutex_;             // one call at a time
  struct Held {
    Operation operation;
    CUstream stream = nullptr;
  };
  std::uint32_t group_depth_ = 0;
  std::vector<Held> group_;

  std::thread watcher_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  std::optional<Error> failure_;
  std::optional<Error> last_error_;
};

}  // namespace stepccl::cuda
