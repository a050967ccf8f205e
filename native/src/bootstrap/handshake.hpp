// SPDX-License-Identifier: Apache-2.0
// Mutual authentication with the job's secret. Each side proves that it holds the secret over a nonce of the
// other's choosing before any payload flows; the secret itself never crosses the network.
#pragma once

#include <functional>

#include "bootstrap/wire.hpp"
#include "core/clock.hpp"

namespace stepccl::bootstrap {

// Who I am and what I must be shown.
struct JobKey {
  Secret secret{};
  std::uint64_t comm_id = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 0;

  ~JobKey() { wipe(secret); }
};

// Whether an authenticated peer may have this role and rank now; SUCCESS or the reason.
using AdmissionCheck = std::function<stepccl_result_t(const Hello&)>;

// The accepting side, without a socket: bytes in, bytes out.
class ServerHandshake {
 public:
  enum class State { hello, proof, accepted, refused };

  ServerHandshake(const JobKey& key, const AdmissionCheck& check) : key_(key), check_(check) {}

  // At most this many bytes may be fed next; whatever follows belongs to what comes after the handshake.
  [[nodiscard]] std::size_t wanted() const noexcept;
  // Appends what must be sent to `out`, also when it refuses. May be fed byte by byte.
  State feed(std::span<const std::byte> bytes, std::vector<std::byte>& out);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] const Hello& hello() const noexcept { return hello_; }

 private:
  void on_hello(std::vector<std::byte>& out);
  void on_proof(std::vector<std::byte>& out);

  const JobKey& key_;
  const AdmissionCheck& check_;
  State state_ = State::hello;
  std::vector<std::byte> buffer_;
  Hello hello_;
  Challenge challenge_;
};

// The connecting side, over a non-blocking socket. `cancelled` is asked at least every 50 ms.
// AUTHENTICATION, VERSION, RANK_CONFLICT, PROTOCOL, TIMEOUT, PEER_CLOSED (worth another try), ABORTED.
[[nodiscard]] Status client_handshake(int fd, const JobKey& key, Role role, Deadline deadline,
                                      const std::function<bool()>& cancelled);

// Connects a new non-blocking socket. PEER_UNREACHABLE, TIMEOUT, ABORTED.
[[nodiscard]] Expected<Fd> connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<bool()>& cancelled);

// Control connections: a host that acknowledges nothing for so long is gone; one that does may run a process which is only stopped.
inline constexpr std::uint32_t kDeadHostMs = 10'000;

// Options of every TCP connection: no delay, keepalive, and a bound on unacknowledged data.
void tune_socket(int fd, std::uint32_t user_timeout_ms) noexcept;

[[nodiscard]] Status write_all(int fd, std::span<const std::byte> bytes, Deadline deadline, const std::function<bool()>& cancelled);
[[nodiscard]] Status read_exact(int fd, std::span<std::byte> bytes, Deadline deadline, const std::function<bool()>& cancelled);

}  // namespace stepccl::bootstrap
