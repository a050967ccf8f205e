// SPDX-License-Identifier: Apache-2.0
#include "perf/launcher.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bootstrap/handshake.hpp"
#include "bootstrap/unique_id.hpp"
#include "perf/output.hpp"

namespace perf {
namespace {

std::optional<std::uint32_t> number(const Lookup& lookup, const char* name) {
  const char* text = lookup(name);
  if (text == nullptr) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || *end != '\0') return std::nullopt;
  return value;
}

std::string text_of(const Lookup& lookup, std::initializer_list<const char*> names) {
  std::string all;
  for (const char* name : names) {
    const char* value = lookup(name);
    if (value == nullptr) continue;
    if (!all.empty()) all += '.';
    all += value;
  }
  return all;
}

// FNV-1a, for a file's and a port's name only.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// "host:port" of rank 0 in a job of several nodes; empty where nobody says.
std::string address_of(const Lookup& lookup, const std::string& job) {
  if (const char* given = lookup("STEPCCL_RENDEZVOUS"); given != nullptr && *given != '\0') return given;
  const char* master = lookup("MASTER_ADDR");
  if (master == nullptr || *master == '\0') return {};
  // The launcher's own port is taken: the next one; without it one that the job's name gives.
  const auto port = number(lookup, "MASTER_PORT");
  const std::uint32_t ours = port && *port < 65535 ? *port + 1 : 20'000 + static_cast<std::uint32_t>(hash_of(job) % 20'000);
  return std::string(master) + ":" + std::to_string(ours);
}

std::string file_of(const Launched& job) {
  char name[96];
  std::snprintf(name, sizeof name, "/dev/shm/stepccl-perf.%u.%016llx", static_cast<unsigned>(::getuid()), static_cast<unsigned long long>(hash_of(job.job)));
  return name;
}

std::optional<std::string> hand_on(const Launched& job, const stepccl_unique_id_t& id) {
  const std::string path = file_of(job);
  const std::string next = path + ".new";
  ::unlink(path.c_str());
  ::unlink(next.c_str());
  const int fd = ::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return path + ": " + std::strerror(errno);
  const std::string text = to_hex(id);
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!whole || ::rename(next.c_str(), path.c_str()) != 0) return path + ": " + std::strerror(errno);
  return std::nullopt;
}

std::optional<std::string> take(const Launched& job, std::uint32_t timeout_ms, stepccl_unique_id_t& id) {
  const std::string path = file_of(job);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
      struct stat info {};
      char text[2 * STEPCCL_UNIQUE_ID_BYTES + 1];
      const bool ours = ::fstat(fd, &info) == 0 && info.st_uid == ::getuid() && (info.st_mode & 077) == 0;
      const ssize_t got = ::read(fd, text, sizeof text);
      ::close(fd);
      if (!ours) return path + " belongs to someone else or can be read by others";
      if (got > 0 && from_hex(std::string(text, static_cast<std::size_t>(got)), id)) return std::nullopt;
    } else if (errno != ENOENT) {
      return path + ": " + std::strerror(errno);
    }
    if (std::chrono::steady_clock::now() >= deadline) return "rank 0 did not leave its unique id in " + path;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// The numeric form of "host:port".
std::optional<std::string> resolve(const std::string& address, stepccl::bootstrap::Endpoint& endpoint) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "\"" + address + "\" is not host:port";
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found); error != 0) return address + ": " + ::gai_strerror(error);
  sockaddr_storage storage{};
  std::memcpy(&storage, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  endpoint = stepccl::bootstrap::Endpoint::from_sockaddr(storage);
  return std::nullopt;
}

}  // namespace

std::optional<Launched> launched_by(const Lookup& lookup, std::string& problem) {
  struct Variables {
    const char* launcher;
    const char* rank;
    const char* world;
    const char* local_world;  // ranks on this node
    std::initializer_list<const char*> job;
  };
  static const Variables rows[] = {
      {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
      {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", {"PMIX_NAMESPACE"}},
      {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {"SLURM_JOB_ID"}},
      {"srun", "SLURM_PROCID", "SLURM_NTASKS", nullptr, {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
  };
  for (const Variables& row : rows) {
    const auto rank = number(lookup, row.rank);
    const auto world = number(lookup, row.world);
    if (!rank || !world) continue;
    if (*rank >= *world) {
      problem = std::string(row.rank) + " and " + row.world + " do not fit together";
      return std::nullopt;
    }
    Launched job;
    job.launcher = row.launcher;
    job.rank = *rank;
    job.world = *world;
    job.job = text_of(lookup, row.job);
    if (job.job.empty()) job.job = "child of " + std::to_string(::getppid());  // tells jobs of one node apart
    const auto local = row.local_world != nullptr ? number(lookup, row.local_world) : std::nullopt;
    job.one_node = local ? *local == *world : number(lookup, "SLURM_NNODES") == 1 || *world == 1;
    if (!job.one_node) {
      job.address = address_of(lookup, job.job);
      if (job.address.empty()) {
        problem = std::string("the job of ") + row.launcher + " runs on several nodes: set STEPCCL_RENDEZVOUS=host:port of rank 0 for all ranks";
        return std::nullopt;
      }
    }
    return job;
  }
  return std::nullopt;
}

std::optional<std::string> rendezvous(const Launched& job, const Lookup& lookup, std::uint32_t timeout_ms, stepccl_unique_id_t& id) {
  if (job.one_node) {
    if (job.rank != 0) return take(job, timeout_ms, id);
    if (stepccl_unique_id_create("127.0.0.1", &id) != STEPCCL_SUCCESS) {
      stepccl_error_info_t error{};
      error.size = sizeof error;
      stepccl_last_error(nullptr, &error);
      return error.text;
    }
    return hand_on(job, id);
  }
  const char* secret = lookup("STEPCCL_JOB_SECRET");
  if (secret == nullptr || std::strlen(secret) < 16) {
    return "the job runs on several nodes: set STEPCCL_JOB_SECRET to the same 16 or more random characters for all ranks";
  }
  stepccl::bootstrap::UniqueId made;
  if (auto problem = resolve(job.address, made.endpoint)) return problem;
  static constexpr char kSecret[] = "stepccl-perf job secret";
  static constexpr char kNumber[] = "stepccl-perf job number";
  const auto derive = [&](std::span<const char> purpose) {
    return stepccl::bootstrap::hmac_sha256(std::as_bytes(std::span(secret, std::strlen(secret))),
                                           {std::as_bytes(purpose), std::as_bytes(std::span(job.job)), std::as_bytes(std::span(job.address))});
  };
  const auto key = derive(kSecret);
  std::memcpy(made.secret.data(), key.data(), made.secret.size());
  const auto name = derive(kNumber);
  std::memcpy(&made.comm_id, name.data(), sizeof made.comm_id);
  if (job.rank == 0) {
    auto listener = stepccl::bootstrap::listen_on(made.endpoint, 1024);
    if (!listener.ok()) return "rank 0 can't listen on " + job.address + ": " + listener.error().cause;
    stepccl::bootstrap::keep_listener(made.comm_id, std::move(listener.value()));
  }
  if (job.rank != 0) {
    // Rank 0 may be started later: the library's own patience is for one that listens already.
    const auto deadline = stepccl::Deadline::after_ms(timeout_ms);
    while (!stepccl::bootstrap::connect_to(made.endpoint, deadline, {}).ok()) {
      if (deadline.passed()) return "rank 0 does not listen on " + job.address;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  id = made.encode();
  stepccl::bootstrap::wipe(made.secret);
  return std::nullopt;
}

void forget_rendezvous(const Launched& job) {
  if (job.one_node && job.rank == 0) ::unlink(file_of(job).c_str());
}

}  // namespace perf
