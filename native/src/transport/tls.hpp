// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 over an authenticated connection of a job. The pre-shared key comes from the job's secret and the two ranks, so
// there are no certificates; an ephemeral key exchange keeps what was recorded secret when the job's secret leaks later.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <memory>
#include <span>

#include "bootstrap/handshake.hpp"

namespace stepccl::transport {

class TlsSession {
 public:
  enum class Side { client, server };

  // Runs the handshake on a non-blocking socket. AUTHENTICATION where the peer doesn't hold the job's secret, PROTOCOL where it
  // speaks no TLS 1.3, TIMEOUT, PEER_CLOSED.
  [[nodiscard]] static Expected<std::unique_ptr<TlsSession>> open(int fd, Side side, const bootstrap::JobKey& key, std::uint32_t peer, Deadline deadline,
                                                                  const std::function<bool()>& cancelled);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // How many bytes were taken or given. 0: the socket is not ready, and the same bytes have to be offered again.
  [[nodiscard]] Expected<std::size_t> write(std::span<const iovec> parts);
  [[nodiscard]] Expected<std::size_t> read(std::span<const iovec> parts);

 private:
  struct State;
  explicit TlsSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stepccl::transport
