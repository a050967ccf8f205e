// SPDX-License-Identifier: Apache-2.0
// How an engine comes to be, and how it ends.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "core/clock.hpp"
#include "cuda/engine.hpp"
#include "cuda/lane_owners.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_CONNECT;
constexpr std::size_t kCardBytes = 256;  // what each rank shares over the communicator in one step

// What ranks must know of each other's GPU before they may share memory.
struct GpuCard {
  std::uint32_t version = 1;
  std::int32_t ordinal = -1;
  std::uint64_t uuid[2] = {};
  char bus[32] = {};
  std::uint32_t graph_lanes = 0;
  std::uint32_t sm_budget = 0;
  std::uint64_t thresholds[16] = {};
};

std::string uuid_text(const CUuuid& uuid) {
  char text[48];
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  std::snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
                b[11], b[12], b[13], b[14], b[15]);
  return text;
}

Error error_of(stepccl_comm_t comm, stepccl_result_t code) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm, &info);
  return make_error(code, kPhase, std::string("the communicator: ") + info.text, info.peer);
}

}  // namespace

Expected<std::vector<std::vector<std::byte>>> Engine::share_over_comm(std::span<const std::byte> mine) {
  if (mine.size() > kCardBytes) return make_error(STEPCCL_ERROR_INTERNAL, kPhase, "a card is too large");
  // A sum of arrays in which each rank has filled only its own place.
  std::vector<std::uint8_t> all(kCardBytes * world_, 0);
  std::memcpy(all.data() + kCardBytes * rank_, mine.data(), mine.size());
  if (const stepccl_result_t result = stepccl_all_reduce(comm_, all.data(), all.data(), all.size(), STEPCCL_UINT8, STEPCCL_SUM, nullptr); result != STEPCCL_SUCCESS) {
    return error_of(comm_, result);
  }
  std::vector<std::vector<std::byte>> cards(world_);
  for (std::uint32_t rank = 0; rank < world_; ++rank) {
    const auto* from = reinterpret_cast<const std::byte*>(all.data() + kCardBytes * rank);
    cards[rank].assign(from, from + mine.size());
  }
  return cards;
}

Expected<std::unique_ptr<Engine>> Engine::attach(stepccl_comm_t comm, const stepccl_cuda_config_t* config) {
  stepccl_comm_info_t info{};
  info.size = sizeof info;
  if (const stepccl_result_t result = stepccl_comm_query(comm, &info); result != STEPCCL_SUCCESS) return error_of(comm, result);
  auto resolved = Config::resolve(config, info.world_size);
  if (!resolved.ok()) return resolved.take_error();
  std::unique_ptr<Engine> engine(new Engine(comm, info.rank, info.world_size, std::move(resolved.value())));
  if (Status status = engine->start(); !status.ok()) return status.take_error();
  return engine;
}

Status Engine::start() {
  // Every rank tells how far it came, so that one that has no GPU is everyone's error and nobody waits for it.
  Status status = choose_device();
  struct {
    std::uint32_t code;
    char cause[200];
  } report{};
  if (!status.ok()) {
    report.code = static_cast<std::uint32_t>(status.error().code);
    std::snprintf(report.cause, sizeof report.cause, "%s", status.error().cause.c_str());
  }
  auto reports = share_over_comm(std::as_bytes(std::span(&report, 1)));
  if (!status.ok()) return status;
  if (!reports.ok()) return reports.take_error();
  for (std::uint32_t rank = 0; rank < world_; ++rank) {
    std::memcpy(&report, reports.value()[rank].data(), sizeof report);
    report.cause[sizeof report.cause - 1] = '\0';
    if (report.code != 0) return make_error(static_cast<stepccl_result_t>(report.code), kPhase, report.cause, static_cast<std::int32_t>(rank), STEPCCL_TRANSPORT_GPU_PEER);
  }
  if (world_ > kMaxRanks) return make_error(STEPCCL_ERROR_UNSUPPORTED, kPhase, "more than " + std::to_string(kMaxRanks) + " GPUs of one host");

  const ContextScope scope(*driver_, context_);
  std::size_t free_before = 0;
  std::size_t total = 0;
  STEPCCL_CU(*driver_, kPhase, cuMemGetInfo_v2, &free_before, &total);
  const auto gather = [this](std::span<const std::byte> mine) { return share_over_comm(mine); };
  for (Mesh* mesh : {&calls_, &epochs_}) {
    auto made = Mesh::connect(rank_, world_, config_.timeout_ms, gather);
    if (!made.ok()) return made.take_error();
    *mesh = std::move(made.value());
  }
  if (status = check_peers(); !status.ok()) return status;

  Fd memory;
  if (rank_ == 0) {
    auto made = Ledger::create(world_);
    if (!made.ok()) return made.take_error();
    memory = std::move(made.value());
  }
  const int descriptor = memory.get();
  auto shared = agree("ledger", {}, rank_ == 0 ? std::span(&descriptor, 1) : std::span<const int>());
  if (!shared.ok()) return shared.take_error();
  if (rank_ != 0) {
    if (shared.value()[0].descriptors.size() != 1) return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "no ledger came", 0);
    memory = std::move(shared.value()[0].descriptors[0]);
  }
  auto ledger = Ledger::open(memory, rank_, world_);
  if (!ledger.ok()) return ledger.take_error();
  ledger_ = std::move(ledger.value());

  if (status = open_meeting(); !status.ok()) return status;
  if (status = open_pairs(); !status.ok()) return status;
  if (status = make_streams(); !status.ok()) return status;
  if (status = make_pool(); !status.ok()) return status;
  if (status = make_lanes(); !status.ok()) return status;
  auto ready = agree("ready", {});
  if (!ready.ok()) return ready.take_error();
  std::size_t free_after = 0;
  STEPCCL_CU(*driver_, kPhase, cuMemGetInfo_v2, &free_after, &total);
  attach_used_bytes_ = free_before > free_after ? free_before - free_after : 0;
  pool_bytes_at_attach_ = pool_->held_bytes();
  watcher_ = std::thread([this] { watch(); });
  open_background();
  return {};
}

Status Engine::open_meeting() {
  Fd memory;
  if (rank_ == 0) {
    auto made = Meeting::create();
    if (!made.ok()) return made.take_error();
    memory = std::move(made.value());
  }
  const int descriptor = memory.get();
  auto shared = agree("meeting", {}, rank_ == 0 ? std::span(&descriptor, 1) : std::span<const int>());
  if (!shared.ok()) return shared.take_error();
  if (rank_ != 0) {
    if (shared.value()[0].descriptors.size() != 1) return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "no meeting place came", 0);
    memory = std::move(shared.value()[0].descriptors[0]);
  }
  auto meeting = Meeting::open(memory, rank_, world_);
  if (!meeting.ok()) return meeting.take_error();
  meeting_ = std::move(meeting.value());
  return {};
}

Status Engine::choose_device() {
  auto driver = Driver::get();
  if (!driver.ok()) return driver.take_error();
  driver_ = driver.value();
  int count = 0;
  STEPCCL_CU(*driver_, kPhase, cuDeviceGetCount, &count);
  int ordinal = config_.device;
  CUcontext current = nullptr;
  if (ordinal < 0 && driver_->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) {
    CUdevice device = 0;
    STEPCCL_CU(*driver_, kPhase, cuCtxGetDevice, &device);
    ordinal = device;
  }
  if (ordinal < 0) ordinal = 0;
  if (ordinal >= count) {
    return make_error(STEPCCL_ERROR_NO_GPU, STEPCCL_PHASE_ARGUMENTS, "device " + std::to_string(ordinal) + " is not there: the driver shows " + std::to_string(count) + " to this process");
  }
  config_.device = ordinal;
  STEPCCL_CU(*driver_, kPhase, cuDeviceGet, &device_, ordinal);
  CUuuid uuid{};
  STEPCCL_CU(*driver_, kPhase, cuDeviceGetUuid_v2, &uuid, device_);
  std::snprintf(uuid_.data(), uuid_.size(), "%s", uuid_text(uuid).c_str());
  int major = 0;
  int shared = 0;
  STEPCCL_CU(*driver_, kPhase, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_);
  STEPCCL_CU(*driver_, kPhase, cuDeviceGetAttribute, &multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  STEPCCL_CU(*driver_, kPhase, cuDeviceGetAttribute, &shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device_);
  if (major < 8) return make_error(STEPCCL_ERROR_UNSUPPORTED, kPhase, "GPUs before compute capability 8.0 are not supported");
  hopper_ = major >= 9;
  shared_limit_ = static_cast<std::uint32_t>(shared) - 2048;  // static shared memory of the kernels beside it
  auto granule = Arena::granule_of(*driver_, device_);
  if (!granule.ok()) return granule.take_error();
  if (granule.value() == 0) return make_error(STEPCCL_ERROR_UNSUPPORTED, kPhase, "this GPU's memory can't be shared by file descriptor (virtual memory management)");
  STEPCCL_CU(*driver_, kPhase, cuDevicePrimaryCtxRetain, &context_, device_);
  const ContextScope scope(*driver_, context_);
  return kernels_.load(*driver_, hopper_, shared_limit_);
}

Status Engine::check_peers() {
  GpuCard card;
  card.ordinal = config_.device;
  std::memcpy(card.bus, uuid_.data() + 4, sizeof card.bus - 1);
  card.graph_lanes = config_.graph_lanes;
  card.sm_budget = config_.sm_budget;
  const Thresholds& t = config_.thresholds;
  const std::uint64_t thresholds[16] = {t.flagged_bytes, t.one_shot_bytes, t.staged_reduce_bytes, t.staged_copy_bytes, t.flagged_block_bytes, t.staged_block_bytes, t.bulk_blocks, t.direct_blocks, t.pipeline_bytes, t.pipeline_blocks, t.paged_bytes, t.packed_bytes, t.spread_bytes, t.plain_wait_us, t.push_bytes, t.packed_block_bytes};
  std::copy(std::begin(thresholds), std::end(thresholds), card.thresholds);
  auto cards = agree("gpu", std::as_bytes(std::span(&card, 1)));
  if (!cards.ok()) return cards.take_error();
  std::string refusal;
  std::int32_t refused = -1;
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    GpuCard theirs;
    if (cards.value()[peer].bytes.size() != sizeof theirs) return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "a rank's card has another size", static_cast<std::int32_t>(peer));
    std::memcpy(&theirs, cards.value()[peer].bytes.data(), sizeof theirs);
    const auto at_fault = static_cast<std::int32_t>(peer);
    if (std::memcmp(theirs.bus, card.bus, sizeof card.bus) == 0 && !config_.shared_gpu) {
      return make_error(STEPCCL_ERROR_WRONG_DEVICE, kPhase, std::string("it uses the same GPU as this rank (") + uuid_.data() + ")", at_fault, STEPCCL_TRANSPORT_GPU_PEER);
    }
    if (theirs.graph_lanes != card.graph_lanes || theirs.sm_budget != card.sm_budget || std::memcmp(theirs.thresholds, card.thresholds, sizeof card.thresholds) != 0) {
      return make_error(STEPCCL_ERROR_MISMATCH, kPhase, "its graph_lanes, sm_budget or calibration differ from this rank's", at_fault, STEPCCL_TRANSPORT_GPU_PEER);
    }
    // The peer's GPU as this process sees it; where it doesn't (CUDA_VISIBLE_DEVICES), mapping its memory will tell.
    int count = 0;
    STEPCCL_CU(*driver_, kPhase, cuDeviceGetCount, &count);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice device = 0;
      CUuuid uuid{};
      if (driver_->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS || driver_->cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) continue;
      if (device == device_ || std::memcmp(uuid_text(uuid).c_str() + 4, theirs.bus, sizeof theirs.bus - 1) != 0) continue;
      int can = 0;
      STEPCCL_CU(*driver_, kPhase, cuDeviceCanAccessPeer, &can, device_, device);
      if (can == 0 && refused < 0) {
        refused = at_fault;
        refusal = std::string("GPU ") + uuid_.data() + " can't reach GPU-" + theirs.bus + " directly";
      }
    }
  }
  // All ranks must come to the same end.
  const std::uint32_t failed = refused >= 0 ? 1 : 0;
  auto verdicts = agree("peer access", std::as_bytes(std::span(&failed, 1)));
  if (!verdicts.ok()) return verdicts.take_error();
  if (failed != 0) return make_error(STEPCCL_ERROR_NO_PEER_ACCESS, kPhase, refusal, refused, STEPCCL_TRANSPORT_GPU_PEER);
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    std::uint32_t theirs = 0;
    std::memcpy(&theirs, verdicts.value()[peer].bytes.data(), std::min(sizeof theirs, verdicts.value()[peer].bytes.size()));
    if (theirs != 0) return make_error(STEPCCL_ERROR_NO_PEER_ACCESS, kPhase, "its GPU can't reach another rank's directly", static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
  }
  return {};
}

Status Engine::make_streams() {
  int least = 0;
  int greatest = 0;
  STEPCCL_CU(*driver_, kPhase, cuCtxGetStreamPriorityRange, &least, &greatest);
  STEPCCL_CU(*driver_, kPhase, cuStreamCreateWithPriority, &null_stream_, CU_STREAM_NON_BLOCKING, greatest);
  STEPCCL_CU(*driver_, kPhase, cuStreamCreateWithPriority, &watch_stream_, CU_STREAM_NON_BLOCKING, greatest);
  STEPCCL_CU(*driver_, kPhase, cuEventCreate, &null_event_, CU_EVENT_DISABLE_TIMING);
  STEPCCL_CU(*driver_, kPhase, cuEventCreate, &fork_, CU_EVENT_DISABLE_TIMING);
  // One for local copies, the others for peers beyond the first at a time; two for each place of the pipeline.
  const std::uint32_t sides = std::max(1 + 2 * kChunkSlots, config_.dma_concurrency);
  side_streams_.assign(sides, nullptr);
  side_events_.assign(sides, nullptr);
  for (std::uint32_t i = 0; i < sides; ++i) {
    STEPCCL_CU(*driver_, kPhase, cuStreamCreateWithPriority, &side_streams_[i], CU_STREAM_NON_BLOCKING, greatest);
    STEPCCL_CU(*driver_, kPhase, cuEventCreate, &side_events_[i], CU_EVENT_DISABLE_TIMING);
  }
  for (CUevent& event : page_events_) STEPCCL_CU(*driver_, kPhase, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  void* host = nullptr;
  STEPCCL_CU(*driver_, kPhase, cuMemHostAlloc, &host, 32768, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  std::memset(host, 0, 32768);
  status_ = static_cast<DeviceStatus*>(host);
  phase_words_ = reinterpret_cast<std::uint32_t*>(static_cast<char*>(host) + 1024);
  page_word_ = reinterpret_cast<std::uint64_t*>(static_cast<char*>(host) + 2048);
  ones_ = reinterpret_cast<std::uint32_t*>(static_cast<char*>(host) + 4096);
  std::fill_n(ones_, 1024, 1u);
  plenty_ = ones_ + 1024;
  *plenty_ = 0x7fffffff;
  gate_words_ = ones_ + 2048;
  // With the driver's second version of these operations, every device has them.
  stream_memory_ops_ = driver_->version >= 12000;
  async_gd_.store(config_.async_gd);
  return {};
}

Status Engine::make_pool() {
  std::size_t total = 0;
  STEPCCL_CU(*driver_, kPhase, cuDeviceTotalMem_v2, &total, device_);
  limits_.device_bytes = total;
  arena_ = std::make_unique<Arena>(*driver_, config_.device, rank_, world_);
  auto granule = Arena::granule_of(*driver_, device_);
  if (!granule.ok()) return granule.take_error();
  const std::uint64_t unit = granule.value();
  std::uint64_t capacity = config_.pool_bytes != 0 ? config_.pool_bytes : static_cast<std::uint64_t>(config_.hbm_cache_ratio * static_cast<double>(total));
  capacity = std::max<std::uint64_t>(capacity / unit, 1) * unit;
  // Addresses are wasted by compaction and by alignment: reserve four times the capacity.
  const std::uint64_t addresses = capacity * 4;
  if (Status status = arena_->reserve(addresses); !status.ok()) return status;
  pool_ = std::make_unique<memory::PoolMap>(addresses, capacity, unit);
  return {};
}

Status Engine::make_lanes() {
  layout_ = {world_, LaneLayout::piece_for(world_), LaneLayout::packed_lines_for(world_)};
  const std::uint64_t lane_bytes = (layout_.bytes() + 511) / 512 * 512;
  const std::uint32_t lanes = 1 + config_.graph_lanes;
  const std::uint64_t own_bytes = 4096 + kTickets * sizeof(ReceiptSlot);
  const std::uint64_t lanes_bytes = lane_bytes * lanes;
  auto window = allocate_window(lanes_bytes + own_bytes);
  if (!window.ok()) return window.take_error();
  windows_.erase(window.value().base[rank_]);  // nobody's buffer
  own_offsets_.insert(offset_of(window.value()));
  lanes_.resize(lanes);
  for (std::uint32_t i = 0; i < lanes; ++i) {
    for (std::uint32_t rank = 0; rank < world_; ++rank) lanes_[i].base[rank] = window.value().base[rank] + lane_bytes * i;
    lanes_[i].local = lanes_[i].base[rank_];
    STEPCCL_CU(*driver_, kPhase, cuEventCreate, &lanes_[i].done, CU_EVENT_DISABLE_TIMING);
  }
  words_ = window.value().base[rank_] + lanes_bytes;
  receipts_ = words_ + 4096;
  STEPCCL_CU(*driver_, kPhase, cuMemsetD8Async, window.value().base[rank_], 0, lanes_bytes + own_bytes, watch_stream_);
  STEPCCL_CU(*driver_, kPhase, cuStreamSynchronize, watch_stream_);
  owners_ = std::make_shared<LaneOwners>(lanes);
  return {};
}

Engine::~Engine() {
  stop_background_.store(true);
  if (background_.joinable()) background_.join();
  if (context_ != nullptr) {
    const ContextScope scope(*driver_, context_);
    if (watcher_.joinable()) {
      // An engine that has failed goes on releasing waiters until its streams are idle.
      const Deadline deadline = Deadline::after_ms(config_.timeout_ms);
      for (Lane& lane : lanes_) {
        if (&lane != &lanes_[0] || !lane.used) continue;
        while (driver_->cuEventQuery(lane.done) == CUDA_ERROR_NOT_READY && !deadline.passed()) std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      // Peers may still read what this rank gave them: leave together, unless somebody is gone.
      if (!failed_.load()) (void)agree("detach", {});
      stopping_.store(true);
      watcher_.join();
      driver_->cuStreamSynchronize(watch_stream_);  // what it queued writes to the lanes
    }
    for (auto& [base, window] : windows_) {
      if (window.pooled) continue;
      for (std::uint32_t peer = 0; peer < world_; ++peer) {
        if (peer != rank_) driver_->cuIpcCloseMemHandle(window.base[peer] - window.mapped_offset[peer]);
      }
    }
    for (const auto& [key, segment] : opened_segments_) {
      if (segment.base != 0) driver_->cuIpcCloseMemHandle(segment.base);
    }
    arena_.reset();
    for (Lane& lane : lanes_) {
      if (lane.done != nullptr) driver_->cuEventDestroy_v2(lane.done);
    }
    for (const CUevent event : side_events_) {
      if (event != nullptr) driver_->cuEventDestroy_v2(event);
    }
    for (const CUevent event : page_events_) {
      if (event != nullptr) driver_->cuEventDestroy_v2(event);
    }
    for (const CUevent event : {null_event_, fork_}) {
      if (event != nullptr) driver_->cuEventDestroy_v2(event);
    }
    for (const CUstream stream : side_streams_) {
      if (stream != nullptr) driver_->cuStreamDestroy_v2(stream);
    }
    for (const CUstream stream : {null_stream_, watch_stream_}) {
      if (stream != nullptr) driver_->cuStreamDestroy_v2(stream);
    }
    if (status_ != nullptr) driver_->cuMemFreeHost(status_);
    kernels_.unload(*driver_);
  }
  if (context_ != nullptr) driver_->cuDevicePrimaryCtxRelease_v2(device_);
}

}  // namespace stepccl::cuda
