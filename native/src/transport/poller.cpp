// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "transport/transport.hpp"

namespace stepccl::transport {
namespace {
Error system_error(const char* call) {
  return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_TRANSFER, std::string(call) + ": " + errno_text(errno));
}
}  // namespace

Status Poller::open() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error("epoll_create1");
  return {};
}

Status Poller::add(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("epoll_ctl");
  handlers_[fd] = std::move(handler);
  return {};
}

void Poller::remove(int fd) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

Status Poller::wait(int timeout_ms) {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  if (ready < 0) {
    if (errno == EINTR) return {};
    return system_error("epoll_wait");
  }
  for (int i = 0; i < ready; ++i) {
    const auto found = handlers_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (found != handlers_.end()) found->second(events[static_cast<std::size_t>(i)].events);
  }
  return {};
}

}  // namespace stepccl::transport
