// SPDX-License-Identifier: Apache-2.0
// What a peer sends over the GPU engine's local socket: any bytes, in pieces, with and without descriptors, then its end.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda/mesh.hpp"

using namespace stepccl;

namespace {

void send_bytes(int fd, const std::uint8_t* data, std::size_t size, bool descriptor) {
  char mark = 0;
  iovec part{size == 0 ? static_cast<void*>(&mark) : const_cast<std::uint8_t*>(data), size == 0 ? 1 : size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int standard_error = 2;
    std::memcpy(CMSG_DATA(header), &standard_error, sizeof standard_error);
  }
  (void)::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

// The first byte says how the rest is sent: cut after so many bytes, with a descriptor at the cut or not, and whether the head
// is made to announce what really comes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 64 * 1024) return 0;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  const Fd peer(ends[1]);
  std::vector<Fd> sockets(2);
  sockets[1] = Fd(ends[0]);
  const cuda::Mesh mesh = cuda::Mesh::over(0, std::move(sockets));
  std::vector<std::uint8_t> bytes(data + 2, data + size);
  const bool descriptor = (data[0] & 1) != 0;
  if ((data[0] & 2) != 0) {
    const std::uint32_t head[2] = {static_cast<std::uint32_t>(bytes.size()), descriptor ? 1u : 0u};
    bytes.insert(bytes.begin(), reinterpret_cast<const std::uint8_t*>(head), reinterpret_cast<const std::uint8_t*>(head) + sizeof head);
  }
  const std::size_t cut = std::min<std::size_t>(bytes.size(), (data[0] & 4) != 0 ? data[1] : bytes.size());
  send_bytes(peer.get(), bytes.data(), cut, false);
  if (descriptor) send_bytes(peer.get(), nullptr, 0, true);
  if (cut < bytes.size()) send_bytes(peer.get(), bytes.data() + cut, bytes.size() - cut, descriptor);
  ::shutdown(peer.get(), SHUT_WR);
  const std::byte mine[3] = {};
  auto all = mesh.exchange(mine, {}, 1000, [] { return Status(); });
  if (all.ok() && (all.value().size() != 2 || all.value()[0].bytes.size() != sizeof mine)) std::abort();
  return 0;
}
