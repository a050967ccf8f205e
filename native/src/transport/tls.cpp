// SPDX-License-Identifier: Apache-2.0
#include "transport/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace stepccl::transport {
namespace {

constexpr std::size_t kRecordBytes = 16u << 10;  // the longest that TLS allows
constexpr std::size_t kReadBytes = 8 * (kRecordBytes + 512);
constexpr char kIdentity[] = "stepccl";
constexpr unsigned char kCipher[2] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// A socket as OpenSSL's own source and sink would use it, but without a SIGPIPE.
int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))); }
int socket_write(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(socket_of(bio), data, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}
int socket_read(BIO* bio, char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(socket_of(bio), data, static_cast<std::size_t>(bytes), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}
long socket_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stepccl socket");
    BIO_meth_set_write(made, socket_write);
    BIO_meth_set_read(made, socket_read);
    BIO_meth_set_ctrl(made, socket_control);
    return made;
  }();
  return method;
}

struct ContextDeleter {
  void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
};

Error tls_error(stepccl_result_t code, const std::string& cause) { return Error{code, -1, STEPCCL_PHASE_NONE, STEPCCL_TRANSPORT_TCP, "TLS: " + cause}; }

std::string last_reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason != nullptr ? reason : "failed without a reason";
}

}  // namespace

struct TlsSession::State {
  bootstrap::Mac key{};  // pre-shared, of this pair of ranks
  std::unique_ptr<SSL_CTX, ContextDeleter> context;
  std::unique_ptr<SSL, ContextDeleter> ssl;
  std::array<std::byte, kRecordBytes> gathered;  // small parts leave as one record
  std::size_t offered = 0;                       // of a write that has to be repeated with as many bytes

  ~State() { OPENSSL_cleanse(key.data(), key.size()); }

  // A session that carries the pre-shared key; nullptr when memory has run out.
  static SSL_SESSION* session_for(SSL* ssl, const bootstrap::Mac& key) {
    SSL_SESSION* session = SSL_SESSION_new();
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
    if (session == nullptr || cipher == nullptr || SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()), key.size()) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 || SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
      SSL_SESSION_free(session);
      return nullptr;
    }
    return session;
  }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** session) {
    *session = session_for(ssl, static_cast<const State*>(SSL_get_app_data(ssl))->key);
    *id = reinterpret_cast<const unsigned char*>(kIdentity);
    *id_bytes = sizeof kIdentity - 1;
    return *session != nullptr ? 1 : 0;
  }

  static int find_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
    *session = nullptr;  // an unknown identity: the handshake then fails, since there is no certificate either
    if (id_bytes != sizeof kIdentity - 1 || std::memcmp(id, kIdentity, id_bytes) != 0) return 1;
    *session = session_for(ssl, static_cast<const State*>(SSL_get_app_data(ssl))->key);
    return *session != nullptr ? 1 : 0;
  }

  bool prepare(int fd, Side side) {
    context.reset(SSL_CTX_new(TLS_method()));
    if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") != 1 || SSL_CTX_set_num_tickets(context.get(), 0) != 1) {
      return false;
    }
    SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // One call brings all records that have come, instead of two calls a record.
    SSL_CTX_set_read_ahead(context.get(), 1);
    SSL_CTX_set_default_read_buffer_len(context.get(), kReadBytes);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_use_session_callback(context.get(), offer_key);
    SSL_CTX_set_psk_find_session_callback(context.get(), find_key);
    ssl.reset(SSL_new(context.get()));
    BIO* bio = BIO_new(socket_method());
    if (!ssl || bio == nullptr) {
      BIO_free(bio);
      return false;
    }
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);
    SSL_set_app_data(ssl.get(), this);
    side == Side::client ? SSL_set_connect_state(ssl.get()) : SSL_set_accept_state(ssl.get());
    return true;
  }

  // After a call that did nothing: 0 = later; else what went wrong.
  Expected<std::size_t> none_or_error(int result) {
    const int saved = errno;
    switch (SSL_get_error(ssl.get(), result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE: return std::size_t{0};
      case SSL_ERROR_ZERO_RETURN: return tls_error(STEPCCL_ERROR_PEER_CLOSED, "the peer closed the connection");
      case SSL_ERROR_SYSCALL: return tls_error(STEPCCL_ERROR_PEER_CLOSED, saved == 0 ? "the peer closed the connection" : errno_text(saved));
      default: return tls_error(STEPCCL_ERROR_PROTOCOL, last_reason());
    }
  }
};

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::~TlsSession() = default;

Expected<std::unique_ptr<TlsSession>> TlsSession::open(int fd, Side side, const bootstrap::JobKey& key, std::uint32_t peer, Deadline deadline,
                                                       const std::function<bool()>& cancelled) {
  auto state = std::make_unique<State>();
  static constexpr char kLabel[] = "stepccl tls 1.3 psk";
  const std::array<std::uint32_t, 2> pair{std::min(key.rank, peer), std::max(key.rank, peer)};
  state->key = bootstrap::hmac_sha256(key.secret, {std::as_bytes(std::span(kLabel)), bootstrap::bytes_of(key.comm_id), std::as_bytes(std::span(pair))});
  if (!state->prepare(fd, side)) return tls_error(STEPCCL_ERROR_OUT_OF_MEMORY, last_reason());
  while (true) {
    ERR_clear_error();
    const int result = SSL_do_handshake(state->ssl.get());
    if (result == 1) return std::unique_ptr<TlsSession>(new TlsSession(std::move(state)));
    const bool wants_write = SSL_get_error(state->ssl.get(), result) == SSL_ERROR_WANT_WRITE;
    auto none = state->none_or_error(result);
    if (!none.ok()) {
      Error error = none.take_error();
      if (error.code == STEPCCL_ERROR_PROTOCOL) error.code = STEPCCL_ERROR_AUTHENTICATION;
      return error;
    }
    if (cancelled && cancelled()) return tls_error(STEPCCL_ERROR_ABORTED, "the communicator has failed");
    if (deadline.passed()) return tls_error(STEPCCL_ERROR_TIMEOUT, "the handshake took too long");
    pollfd entry{fd, static_cast<short>(wants_write ? POLLOUT : POLLIN), 0};
    ::poll(&entry, 1, deadline.left_ms(100));
  }
}

Expected<std::size_t> TlsSession::write(std::span<const iovec> parts) {
  // Whole records straight from a long part; what is shorter is gathered, so that a header shares its data's record.
  const void* data = nullptr;
  std::size_t bytes = 0;
  if (!parts.empty() && parts[0].iov_len >= kRecordBytes) {
    data = parts[0].iov_base;
    bytes = parts[0].iov_len;
  } else {
    for (const iovec& part : parts) {
      const std::size_t now = std::min(part.iov_len, kRecordBytes - bytes);
      if (now != 0) std::memcpy(state_->gathered.data() + bytes, part.iov_base, now);
      bytes += now;
    }
    data = state_->gathered.data();
  }
  if (state_->offered != 0) bytes = state_->offered;  // OpenSSL wants the same again
  if (bytes == 0) return std::size_t{0};
  ERR_clear_error();
  std::size_t taken = 0;
  const int result = SSL_write_ex(state_->ssl.get(), data, bytes, &taken);
  if (result == 1) {
    state_->offered = 0;
    return taken;
  }
  state_->offered = bytes;
  return state_->none_or_error(result);
}

Expected<std::size_t> TlsSession::read(std::span<const iovec> parts) {
  std::size_t total = 0;
  for (const iovec& part : parts) {
    std::size_t done = 0;
    while (done < part.iov_len) {
      ERR_clear_error();
      std::size_t got = 0;
      const int result = SSL_read_ex(state_->ssl.get(), static_cast<std::byte*>(part.iov_base) + done, part.iov_len - done, &got);
      if (result != 1) {
        auto none = state_->none_or_error(result);
        if (total + done != 0) return total + done;  // an error comes again at the next call
        return none;
      }
      done += got;
    }
    total += done;
  }
  return total;
}

}  // namespace stepccl::transport
