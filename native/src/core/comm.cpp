// SPDX-License-Identifier: Apache-2.0
// Joining and leaving. What runs on a communicator is in comm_operations.cpp and in the engine.
#include "core/comm.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "core/calibration.hpp"
#include "transport/host.hpp"
#include "transport/rdma.hpp"
#include "transport/shm.hpp"
#include "transport/tcp.hpp"

namespace stepccl {
namespace {

constexpr std::uint32_t bit(stepccl_transport transport) noexcept { return STEPCCL_TRANSPORT_BIT(transport); }

// From fast to slow: what a pair of ranks takes when both can.
constexpr stepccl_transport kPreference[] = {STEPCCL_TRANSPORT_SHM, STEPCCL_TRANSPORT_RDMA, STEPCCL_TRANSPORT_TCP};

std::ptrdiff_t slowness(stepccl_transport kind) { return std::find(std::begin(kPreference), std::end(kPreference), kind) - std::begin(kPreference); }

std::string names_of(std::uint32_t mask) {
  std::string text;
  for (const stepccl_transport kind : kPreference) {
    if ((mask & bit(kind)) != 0) text += (text.empty() ? "" : ", ") + std::string(stepccl_transport_name(kind));
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Expected<std::unique_ptr<Comm>> Comm::init(std::uint32_t world, bootstrap::UniqueId id, std::uint32_t rank, Settings settings) {
  std::unique_ptr<Comm> comm(new Comm(world, rank, std::move(settings)));
  if (Status status = comm->start(std::move(id)); !status.ok()) {
    Error error = status.take_error();
    return comm->control_ ? comm->control_->report(error) : error;
  }
  return comm;
}

Status Comm::start(bootstrap::UniqueId id) {
  const Deadline deadline = Deadline::after_ms(settings_.timeout_ms);
  comm_id_ = id.comm_id;
  if (Status status = poller_.open(); !status.ok()) return status;
  if (!settings_.telemetry_dir.empty()) {
    ring_.open(settings_.telemetry_dir, comm_id_, rank_, world_, settings_.job_name);
    flight_.open(settings_.telemetry_dir, comm_id_, rank_, world_, settings_.job_name);
  }
  control_page_.open(settings_.control_file);
  if (rank_ == 0) apply_page();
  if (rank_ == 0 && !settings_.calibration_file.empty()) {
    if (Status status = read_calibration(settings_.calibration_file, settings_.engine); !status.ok()) return status;
  }
  if (Status status = join(std::move(id), deadline); !status.ok()) return status;
  if (Status status = choose_transports(deadline); !status.ok()) return status;
  if (Status status = make_engine(); !status.ok()) return status;
  if (Status status = control_->barrier(deadline); !status.ok()) return status;
  for (auto& transport : transports_) {
    if (transport) transport->all_connected();
  }
  if (transports_[STEPCCL_TRANSPORT_SHM]) planner_->set_node_engine(transports_[STEPCCL_TRANSPORT_SHM]->node_engine());
  // Each further priority has connections of its own, so that its messages wait for nobody else's.
  for (std::uint32_t priority = 1; priority < engine_settings_.priority_levels && settings_.priority == STEPCCL_PRIORITY_NORMAL; ++priority) {
    Settings own = settings_;
    own.engine = engine_settings_;
    own.engine.priority_levels = 1;
    own.calibration_file.clear();
    own.priority = priority;
    if (Status status = split(0, static_cast<std::int32_t>(rank_), std::move(own), siblings_[priority]); !status.ok()) return status;
  }
  return {};
}

// What all ranks have to do alike is taken from the daemon's page once, by rank 0: nodes do not change at one moment.
void Comm::apply_page() {
  constexpr std::uint8_t kOff = 1;
  constexpr std::uint8_t kOn = 2;
  const stepccl_control page = control_page_.read();
  EngineSettings& engine = settings_.engine;
  if (page.paging == kOff) engine.page_bytes = 0;
  if (page.paging == kOn && page.page_bytes >= kLeastPageBytes) engine.page_bytes = page.page_bytes;
  if (page.paging == kOn && page.prefetch_depth != 0) engine.prefetch_depth = std::min(page.prefetch_depth, kMostPrefetch);
  // Off is nobody's word against a process that asks for TLS itself.
  if (page.encryption == kOn) settings_.encryption = true;
  if (page.compression == kOff) engine.compression = STEPCCL_COMPRESSION_NONE;
  if (page.compression == kOn && engine.compression == STEPCCL_COMPRESSION_NONE) engine.compression = STEPCCL_COMPRESSION_BFLOAT16;
}

Status Comm::join(bootstrap::UniqueId id, Deadline deadline) {
  bootstrap::ControlPlane::Options options;
  options.rank = rank_;
  options.world = world_;
  options.timeout_ms = settings_.timeout_ms;
  options.settings.transports = settings_.transports;
  options.settings.algorithm = static_cast<std::uint32_t>(settings_.algorithm);
  options.settings.chunk_bytes = settings_.chunk_bytes;
  options.settings.heartbeat_timeout_ms = settings_.heartbeat_timeout_ms;
  encode_engine_settings(settings_.engine, options.settings.engine);
  options.settings.encryption = settings_.encryption ? 1 : 0;
  options.settings.sockets = settings_.sockets;
  options.on_tick = [this](std::uint64_t now_ns) { ring_.heartbeat(now_ns); };
  if (!settings_.net_interface.empty()) {
    auto address = bootstrap::interface_endpoint(settings_.net_interface);
    if (!address.ok()) return address.take_error();
    options.data_address = address.value();
  }
  if (rank_ == 0) {
    options.rendezvous = bootstrap::take_listener(id.comm_id);
    if (!options.rendezvous) {
      return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_RENDEZVOUS,
                        "rank 0 must run in the process that made the unique id, and an id serves one communicator");
    }
  }
  options.id = std::move(id);

  const std::uint32_t wanted = settings_.transports;
  auto joined = bootstrap::ControlPlane::join(std::move(options), deadline, [&](bootstrap::Member& self) -> Status {
    self.host = transport::host_identity(settings_.host_id);
    self.pid = static_cast<std::uint32_t>(getpid());
    self.transports = bit(STEPCCL_TRANSPORT_TCP);
    if (self.host != 0) self.transports |= bit(STEPCCL_TRANSPORT_SHM);
    if (wanted == 0 ? !settings_.ib_disable : (wanted & bit(STEPCCL_TRANSPORT_RDMA)) != 0) {
      auto device = transport::find_rdma_device(self.endpoint(), settings_.rdma.choice);
      if (device.ok()) {
        self.transports |= bit(STEPCCL_TRANSPORT_RDMA);
        self.link_layer = device.value().ethernet ? 2 : 1;
      } else if (wanted == bit(STEPCCL_TRANSPORT_RDMA)) {
        return device.take_error();
      }
    }
    return {};
  });
  if (!joined.ok()) return joined.take_error();
  control_ = std::move(joined.value());
  if (Status status = poller_.add(control_->notify_fd(), EPOLLIN, [this](std::uint32_t) { control_->clear_notification(); }); !status.ok()) {
    return status;
  }
  auto engine = decode_engine_settings(control_->settings().engine);
  if (!engine.ok()) return engine.take_error();
  engine_settings_ = engine.value();
  page_bytes_ = engine_settings_.page_bytes;
  prefetch_ = engine_settings_.prefetch_depth;
  return {};
}

Status Comm::make_engine() {
  const auto& members = control_->members();
  std::vector<std::uint32_t> node_of(world_);
  stepccl_transport inside = STEPCCL_TRANSPORT_NONE;
  for (std::uint32_t a = 0; a < world_; ++a) {
    node_of[a] = a;  // an unknown host shares with nobody
    for (std::uint32_t b = 0; b < a && members[a].host != 0; ++b) {
      if (members[b].host != members[a].host) continue;
      node_of[a] = node_of[b];
      auto kind = transport_between(a, b);
      if (!kind.ok()) return kind.take_error();
      if (inside == STEPCCL_TRANSPORT_NONE || slowness(kind.value()) > slowness(inside)) inside = kind.value();
      break;
    }
  }
  planner_ = std::make_unique<Planner>(rank_, world_, engine_settings_);
  planner_->set_chunk_bytes(control_->settings().chunk_bytes);
  planner_->set_topology(std::move(node_of), slowest_, inside == STEPCCL_TRANSPORT_NONE ? slowest_ : inside);

  Engine::Options options;
  options.rank = rank_;
  options.world = world_;
  options.timeout_ms = settings_.timeout_ms;
  options.pipeline_depth = settings_.pipeline_depth;
  options.priority = settings_.priority;
  options.bandwidth_MBps = settings_.bandwidth_MBps;
  // Where every rank of this node has a CPU, polling for a moment beats a sleep; otherwise whoever polls yields.
  const auto here = std::count_if(members.begin(), members.end(), [&](const auto& m) { return m.host == members[rank_].host; });  // 0 = unknown: too many rather than too few
  options.crowded = static_cast<std::size_t>(here) > transport::available_cpus();
  options.spin_us = settings_.spin_us >= 0 ? settings_.spin_us : 50;
  engine_ = std::make_unique<Engine>(options, *planner_, *control_, poller_, ring_, log_, control_page_, transport_table_, transport_of_, slowest_);
  if (Status status = engine_->open(); !status.ok()) return status;
  queue_ = std::make_unique<Queue>(*engine_, *control_, log_, engine_settings_.fusion_bytes);
  return {};
}

Expected<stepccl_transport> Comm::transport_between(std::uint32_t a, std::uint32_t b) const {
  const auto& one = control_->members()[a];
  const auto& two = control_->members()[b];
  const std::uint32_t allowed = control_->settings().transports != 0 ? control_->settings().transports : ~0u;
  std::uint32_t both = one.transports & two.transports;
  if (one.host != two.host || one.host == 0) both &= ~bit(STEPCCL_TRANSPORT_SHM);
  if (one.link_layer != two.link_layer) both &= ~bit(STEPCCL_TRANSPORT_RDMA);
  const bool encrypted = control_->settings().encryption != 0;
  if (encrypted) both &= ~bit(STEPCCL_TRANSPORT_RDMA);  // nothing here encrypts what a device writes by itself
  for (const stepccl_transport kind : kPreference) {
    if ((both & allowed & bit(kind)) != 0) return kind;
  }
  return make_error(STEPCCL_ERROR_TRANSPORT_UNAVAILABLE, STEPCCL_PHASE_CONNECT,
                    "ranks " + std::to_string(a) + " and " + std::to_string(b) + " have in common: " + names_of(both) + "; allowed: " + names_of(allowed) +
                        (encrypted ? "; encryption leaves RDMA out" : ""),
                    static_cast<std::int32_t>(b == rank_ ? a : b));
}

Status Comm::choose_transports(Deadline deadline) {
  transport_of_.assign(world_, STEPCCL_TRANSPORT_NONE);
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    auto kind = transport_between(rank_, peer);
    if (!kind.ok()) return kind.take_error();
    transport_of_[peer] = kind.value();
    if (Status status = open_transport(kind.value(), deadline); !status.ok()) return status;
  }
  // The cost model must see the same on every rank: the slowest transport that any pair uses.
  slowest_ = STEPCCL_TRANSPORT_SHM;
  for (std::uint32_t a = 0; a < world_; ++a) {
    for (std::uint32_t b = a + 1; b < world_ && slowest_ != STEPCCL_TRANSPORT_TCP; ++b) {
      auto kind = transport_between(a, b);
      if (!kind.ok()) return kind.take_error();
      if (slowness(kind.value()) > slowness(slowest_)) slowest_ = kind.value();
    }
  }
  return {};
}

Status Comm::open_transport(stepccl_transport kind, Deadline deadline) {
  if (transports_[kind]) return {};
  std::unique_ptr<transport::Transport> made;
  switch (kind) {
    case STEPCCL_TRANSPORT_TCP: made = transport::make_tcp(*control_, poller_, ring_, settings_.timeout_ms); break;
    case STEPCCL_TRANSPORT_RDMA: {
      auto rdma = transport::make_rdma(*control_, poller_, ring_, settings_.rdma);
      if (!rdma.ok()) return rdma.take_error();
      made = std::move(rdma.value());
      break;
    }
    case STEPCCL_TRANSPORT_SHM: {
      auto shm = transport::make_shm(*control_, poller_, ring_, settings_.single_copy, deadline);
      if (!shm.ok()) return shm.take_error();
      made = std::move(shm.value());
      break;
    }
    default: return make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_CONNECT, "a transport without an implementation was chosen");
  }
  transport_table_[kind] = made.get();
  transports_[kind] = std::move(made);
  return {};
}

Comm::~Comm() {
  for (auto& sibling : siblings_) sibling.reset();
  queue_.reset();  // its thread uses all that follows
  engine_.reset();
  for (auto& transport : transports_) transport.reset();  // they use the control plane and the poller
  control_.reset();
}

Comm* Comm::of_priority(std::uint32_t priority) noexcept {
  return priority == settings_.priority ? this : priority < siblings_.size() ? siblings_[priority].get() : nullptr;
}

Status Comm::leave() {
  const auto refuse = [] { return make_error(STEPCCL_ERROR_INVALID_USAGE, STEPCCL_PHASE_FINISH, "an operation runs or has not been waited for"); };
  for (auto& sibling : siblings_) {
    if (sibling && !sibling->queue_->settled()) return refuse();
  }
  if (!queue_->hold()) return refuse();
  for (auto& sibling : siblings_) {
    if (!sibling) continue;
    if (Status status = sibling->leave(); !status.ok()) return status;
  }
  if (!control_->failed()) control_->leave(Deadline::after_ms(settings_.timeout_ms));
  return {};
}

void Comm::abort() {
  for (auto& sibling : siblings_) {
    if (sibling) sibling->abort();
  }
  set_last_error(control_->report(make_error(STEPCCL_ERROR_ABORTED, STEPCCL_PHASE_NONE, "the application aborted the communicator")));
}

void Comm::query(stepccl_comm_info_t& info) const {
  info.rank = rank_;
  info.world_size = world_;
  info.transport = static_cast<std::uint32_t>(slowest_);
  info.comm_id = comm_id_;
  info.operations = engine_->operations();
  info.state = static_cast<std::uint32_t>(control_->failed() ? control_->failure().code : STEPCCL_SUCCESS);
  info.last_algorithm = engine_->last_algorithm();
  info.telemetry = ring_.is_open() ? 1 : 0;
  info.pipeline_depth = engine_->pipeline_depth();
  info.fused_operations = queue_->fused();
  info.page_bytes = page_bytes_.load(std::memory_order_relaxed);
  info.held_bytes = engine_->held_bytes();
  info.last_compression_error = engine_->last_compression_error();
  info.encryption = control_->settings().encryption;
  info.sockets = control_->settings().sockets;
}

void Comm::set_last_error(const Error& error) {
  const std::lock_guard lock(error_mutex_);
  last_error_ = error;
}

std::optional<Error> Comm::last_error() const {
  const std::lock_guard lock(error_mutex_);
  return last_error_;
}

}  // namespace stepccl
