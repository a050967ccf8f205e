// SPDX-License-Identifier: Apache-2.0
#include "transport/single_copy.hpp"

#include <sys/uio.h>

#include <cerrno>

namespace stepccl::transport {
namespace {

class CrossMemoryAttach final : public SingleCopy {
 public:
  explicit CrossMemoryAttach(std::vector<pid_t> pids) : pids_(std::move(pids)) {}

  Expected<RemoteMemory> expose(std::span<const std::byte> memory) override {
    return RemoteMemory{reinterpret_cast<std::uint64_t>(memory.data()), 0};
  }

  Status read(std::uint32_t peer, const RemoteMemory& memory, std::size_t offset, std::span<std::byte> into) override {
    std::size_t done = 0;
    while (done < into.size()) {
      const iovec local{into.data() + done, into.size() - done};
      const iovec remote{reinterpret_cast<void*>(memory.address + offset + done), into.size() - done};
      const ssize_t got = ::process_vm_readv(pids_[peer], &local, 1, &remote, 1, 0);
      if (got <= 0) {
        if (got < 0 && errno == EINTR) continue;
        const int problem = got == 0 ? EFAULT : errno;
        const stepccl_result_t code = problem == ESRCH || problem == EFAULT ? STEPCCL_ERROR_PEER_CLOSED : STEPCCL_ERROR_TRANSPORT_FAILED;
        return make_error(code, STEPCCL_PHASE_TRANSFER, "process_vm_readv: " + errno_text(problem), static_cast<std::int32_t>(peer),
                          STEPCCL_TRANSPORT_SHM);
      }
      done += static_cast<std::size_t>(got);
    }
    return {};
  }

  const char* name() const noexcept override { return "cma"; }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace

std::unique_ptr<SingleCopy> make_cross_memory_attach(std::vector<pid_t> pids) { return std::make_unique<CrossMemoryAttach>(std::move(pids)); }

}  // namespace stepccl::transport
