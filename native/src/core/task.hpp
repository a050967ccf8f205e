// SPDX-License-Identifier: Apache-2.0
// One call of the interface, as the engine runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bootstrap/wire.hpp"
#include "core/error.hpp"

namespace stepccl {

enum class TaskKind : std::uint8_t { collective, vector, send, recv };

// What its caller asked for, but for the arrays of a vector exchange.
struct Request {
  TaskKind kind = TaskKind::collective;
  bool in_place = false;
  std::uint8_t compression = STEPCCL_COMPRESSION_NONE;
  std::uint32_t timeout_ms = 0;
  std::uint32_t allowed = ~0u;                  // algorithms that may be chosen: bits 1 << stepccl_algorithm_t
  std::uint32_t prefetch = 1;                   // pages in flight
  bootstrap::Call call;                         // of send and receive: root is the peer
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::size_t element_bytes = 1;
  std::uint64_t page_elements = 0;              // of each block; 0 = not paged

  [[nodiscard]] stepccl_datatype_t datatype() const noexcept { return static_cast<stepccl_datatype_t>(call.datatype); }
  [[nodiscard]] stepccl_redop_t redop() const noexcept { return static_cast<stepccl_redop_t>(call.redop); }
  [[nodiscard]] stepccl_collective_t collective() const noexcept { return static_cast<stepccl_collective_t>(call.collective); }
  [[nodiscard]] bool message() const noexcept { return kind == TaskKind::send || kind == TaskKind::recv; }
};

struct Task : Request {
  Task() = default;
  explicit Task(const Request& request) : Request(request) {}

  bool on_node = false;                         // the node engine runs it, without a schedule
  bool background = false;                      // of the progress thread: someone may wait for it on `changed`
  std::vector<std::size_t> arrays;              // of a vector exchange: send counts, displacements, then those of recv
  std::vector<std::shared_ptr<Task>> parts;     // of a fused task; its buffers are these tasks'

  // The engine's.
  std::uint64_t sequence = 0;                   // of a collective: which one of the communicator, given when it is called; of a message: of its pair, from its start
  std::uint64_t record = 0;                     // its number in the flight recorder; 0 = none
  std::uint64_t begin_ns = 0;                   // 0 = has not begun
  std::uint64_t pages = 1;
  std::uint64_t pages_started = 0;
  std::uint64_t pages_ended = 0;                // bits of pages that ended beyond pages_done
  std::uint32_t signature = 0;

  // Read by other threads under the mutex, or after done.
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> done{false};
  std::atomic<std::uint8_t> state{0};           // enum stepccl_op_state; 0 = waits
  std::atomic<std::uint64_t> pages_done{0};
  std::optional<Error> error;
  double compression_error = 0;
  std::uint32_t fused = 1;

  void end(std::optional<Error> why);
  // What the caller asked for, from a task that has not been started.
  void take_call(Task& other);
};

// Bytes of the full array, as nccl-tests counts an operation's size. The first: of any call but a vector exchange.
[[nodiscard]] std::uint64_t bytes_of_call(const Request& request, std::uint32_t world) noexcept;
[[nodiscard]] std::uint64_t bytes_of_task(const Task& task, std::uint32_t world) noexcept;

// How long a rank's input and output are, in elements of a block of `count` with `stride` to the next.
struct Extent {
  std::uint64_t input = 0;
  std::uint64_t output = 0;
};
[[nodiscard]] Extent extent_of(stepccl_collective_t collective, std::uint32_t rank, std::uint32_t world, std::uint32_t root, std::uint64_t count,
                               std::uint64_t stride) noexcept;

// FNV-1a of what all ranks must have in common.
[[nodiscard]] std::uint32_t signature_of(const bootstrap::Call& call) noexcept;
// The same for all that a message can show of a call.
[[nodiscard]] inline std::uint32_t task_signature(const bootstrap::Call& call, const Request& request) noexcept {
  return signature_of(call) ^ (std::uint32_t{request.compression} << 8) ^ static_cast<std::uint32_t>(request.page_elements);
}
// "all_reduce of 10 float sum by ring", for messages.
[[nodiscard]] std::string call_text(const bootstrap::Call& call);

}  // namespace stepccl
