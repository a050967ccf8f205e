// SPDX-License-Identifier: Apache-2.0
// What a call on a communicator means, and communicators made from one.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "bootstrap/crypto.hpp"
#include "core/comm.hpp"

namespace stepccl {
namespace {

// Beyond it an operation is paged even where nobody asked: a schedule of all its chunks would itself be large.
constexpr std::uint64_t kLongBytes = 2ull << 30;
constexpr std::uint64_t kLongPageBytes = 1ull << 30;

bool sums(const Request& task) {
  const stepccl_collective_t c = task.collective();
  return task.kind == TaskKind::collective && (c == STEPCCL_ALL_REDUCE || c == STEPCCL_REDUCE || c == STEPCCL_REDUCE_SCATTER) &&
         (task.redop() == STEPCCL_SUM || task.redop() == STEPCCL_AVG);
}

double since_us(std::chrono::steady_clock::time_point begin) { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count(); }

}  // namespace

Status Comm::complete(Request& task, const stepccl_call_t& call) const {
  task.timeout_ms = call.timeout_ms != 0 ? call.timeout_ms : settings_.timeout_ms;
  if (call.algorithm != STEPCCL_ALGORITHM_AUTO) task.allowed = 1u << call.algorithm;
  const std::uint8_t compression = call.compression != STEPCCL_COMPRESSION_DEFAULT ? static_cast<std::uint8_t>(call.compression) : engine_settings_.compression;
  const bool compressible = task.datatype() == STEPCCL_FLOAT32 && sums(task) && world_ > 1;
  task.compression = compressible ? compression : static_cast<std::uint8_t>(STEPCCL_COMPRESSION_NONE);
  if (task.message() || task.kind == TaskKind::vector || task.collective() == STEPCCL_BARRIER) return {};

  std::uint64_t page_bytes = call.page_bytes != 0 ? call.page_bytes : page_bytes_.load(std::memory_order_relaxed);
  if (page_bytes == UINT64_MAX) page_bytes = 0;
  if (page_bytes != 0 && page_bytes < kLeastPageBytes) {
    return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "call.page_bytes must be at least " + std::to_string(kLeastPageBytes));
  }
  if (call.prefetch_depth > kMostPrefetch) {
    return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "call.prefetch_depth must be at most " + std::to_string(kMostPrefetch));
  }
  const std::uint64_t bytes = bytes_of_call(task, world_);
  if (page_bytes == 0 && bytes > kLongBytes) page_bytes = kLongPageBytes;
  if (page_bytes == 0 || bytes <= page_bytes) return {};
  const std::uint64_t blocks = schedule::is_blocked(task.collective()) ? world_ : 1;
  task.page_elements = std::max<std::uint64_t>(1, page_bytes / task.element_bytes / blocks);
  task.prefetch = call.prefetch_depth != 0 ? call.prefetch_depth : prefetch_.load(std::memory_order_relaxed);
  return {};
}

Status Comm::gather_bytes(const void* own, void* all, std::size_t bytes) {
  Task task;
  task.call.collective = STEPCCL_ALL_GATHER;
  task.call.datatype = STEPCCL_UINT8;
  task.call.count = bytes;
  task.send = static_cast<const std::byte*>(own);
  task.recv = static_cast<std::byte*>(all);
  task.timeout_ms = settings_.timeout_ms;
  return queue_->run(task);
}

Status Comm::enable_paging(std::uint64_t page_bytes, std::uint32_t prefetch_depth) {
  const auto refuse = [](std::string cause) { return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); };
  if (page_bytes != 0 && page_bytes < kLeastPageBytes) return refuse("page_bytes must be 0 or at least " + std::to_string(kLeastPageBytes));
  if (prefetch_depth > kMostPrefetch) return refuse("prefetch_depth must be at most " + std::to_string(kMostPrefetch));
  if (!queue_->settled()) return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_ARGUMENTS, "an operation has not ended");
  page_bytes_.store(page_bytes, std::memory_order_relaxed);
  prefetch_.store(prefetch_depth == 0 ? 2 : prefetch_depth, std::memory_order_relaxed);
  for (auto& sibling : siblings_) {
    if (!sibling) continue;
    if (Status status = sibling->enable_paging(page_bytes, prefetch_depth); !status.ok()) return status;
  }
  return {};
}

Expected<stepccl_algorithm_t> Comm::explain(stepccl_collective_t collective, std::uint64_t bytes, std::uint32_t allowed, std::string& text) {
  if (collective == STEPCCL_SEND_RECV) {
    text = "send_recv: one message from rank to rank; there is nothing to choose\n";
    return STEPCCL_ALGORITHM_AUTO;
  }
  return planner_->explain(collective, bytes, allowed, text);
}

Status Comm::split(std::int32_t color, std::int32_t key, Settings settings, std::unique_ptr<Comm>& out) {
  struct Wish {
    std::int32_t color;
    std::int32_t key;
  };
  const Wish own{color, key};
  std::vector<Wish> wishes(world_);
  if (Status status = gather_bytes(&own, wishes.data(), sizeof own); !status.ok()) return status;
  ++splits_;
  std::vector<std::uint32_t> group;
  for (std::uint32_t r = 0; r < world_; ++r) {
    if (color >= 0 && wishes[r].color == color) group.push_back(r);
  }
  std::stable_sort(group.begin(), group.end(), [&](std::uint32_t a, std::uint32_t b) { return wishes[a].key < wishes[b].key; });
  const auto position = std::find(group.begin(), group.end(), rank_);
  const auto number = static_cast<std::uint32_t>(position - group.begin());

  // The child's secret never travels: every rank of the parent can compute it.
  bootstrap::UniqueId id;
  if (color >= 0) {
    const std::uint64_t words[3] = {comm_id_, splits_, static_cast<std::uint32_t>(color)};
    static constexpr char kSecret[] = "stepccl split secret";
    static constexpr char kNumber[] = "stepccl split number";
    const auto derive = [&](std::span<const char> purpose) {
      return bootstrap::hmac_sha256(std::as_bytes(std::span(control_->key().secret)), {std::as_bytes(purpose), std::as_bytes(std::span(words))});
    };
    const bootstrap::Mac secret = derive(kSecret);
    static_assert(sizeof secret == sizeof id.secret);
    std::memcpy(id.secret.data(), secret.data(), sizeof secret);
    const bootstrap::Mac name = derive(kNumber);
    std::memcpy(&id.comm_id, name.data(), sizeof id.comm_id);
  }
  struct Place {
    std::uint8_t family;
    std::uint8_t reserved;
    std::uint16_t port;  // 0 = this rank does not listen
    std::array<std::uint8_t, 16> address;
  };
  Place here{};
  Status listening;
  if (color >= 0 && number == 0) {
    bootstrap::Endpoint endpoint = control_->members()[rank_].endpoint();
    endpoint.port = 0;
    auto listener = bootstrap::listen_on(endpoint, 1024);
    if (listener.ok()) {
      bootstrap::keep_listener(id.comm_id, std::move(listener.value()));
      here = {endpoint.family, 0, endpoint.port, endpoint.address};
    } else {
      listening = listener.take_error();
    }
  }
  std::vector<Place> places(world_);
  if (Status status = gather_bytes(&here, places.data(), sizeof here); !status.ok()) return status;
  if (!listening.ok()) return listening;
  if (color < 0) return {};
  const Place& leader = places[group.front()];
  if (leader.port == 0) {
    return make_error(STEPCCL_ERROR_RENDEZVOUS, STEPCCL_PHASE_RENDEZVOUS, "it could not listen for the new communicator", static_cast<std::int32_t>(group.front()));
  }
  id.endpoint = {leader.family, leader.port, leader.address};
  auto made = Comm::init(static_cast<std::uint32_t>(group.size()), std::move(id), number, std::move(settings));
  if (!made.ok()) return made.take_error();
  out = std::move(made.value());
  return {};
}

Status Comm::tune_depth(std::uint32_t& depth, double& latency_us) {
  // Round trips with both neighbours at a time, the fastest of some; then the slowest of all ranks.
  constexpr int kRounds = 20;
  const auto everywhere = [&](double own, double& worst) -> Status {
    std::vector<double> all(world_);
    if (Status status = gather_bytes(&own, all.data(), sizeof own); !status.ok()) return status;
    worst = *std::max_element(all.begin(), all.end());
    return {};
  };
  const auto barrier = [&]() -> Status {
    Task task;
    task.call.collective = STEPCCL_BARRIER;
    task.call.datatype = STEPCCL_UINT8;
    task.call.count = 1;
    task.timeout_ms = settings_.timeout_ms;
    return queue_->run(task);
  };
  double fastest = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (Status status = barrier(); !status.ok()) return status;
    fastest = std::min(fastest, since_us(begin));
  }
  // A barrier is ceil(lg n) messages one after another.
  const double rounds = world_ < 2 ? 1 : std::bit_width(world_ - 1);
  if (Status status = everywhere(fastest / rounds, latency_us); !status.ok()) return status;
  if (latency_us < 5 || latency_us > 20) {
    depth = latency_us < 5 ? 4 : 8;
    set_pipeline_depth(depth);
    return {};
  }
  std::vector<std::byte> data(4u << 20);
  double best = 1e18;
  for (const std::uint32_t candidate : {4u, 6u, 8u}) {
    set_pipeline_depth(candidate);
    double time = 1e18;
    for (int i = 0; i < 3; ++i) {
      Task task;
      task.call.collective = STEPCCL_ALL_REDUCE;
      task.call.datatype = STEPCCL_UINT8;
      task.call.redop = STEPCCL_MAX;
      task.call.count = data.size();
      task.send = data.data();
      task.recv = data.data();
      task.in_place = true;
      task.timeout_ms = settings_.timeout_ms;
      const auto begin = std::chrono::steady_clock::now();
      if (Status status = queue_->run(task); !status.ok()) return status;
      time = std::min(time, since_us(begin));
    }
    double slowest = 0;
    if (Status status = everywhere(time, slowest); !status.ok()) return status;
    if (slowest < best) {
      best = slowest;
      depth = candidate;
    }
  }
  set_pipeline_depth(depth);
  return {};
}

}  // namespace stepccl
