// SPDX-License-Identifier: Apache-2.0
// Shared memory in which the ranks of one host tell each other, at the time of a call, where its buffers are, and agree
// whether all of them will read and write those directly. Needs no GPU.
//
// Nobody waits long: a rank whose peers have not come within the limit decides against it for all, by one
// compare-and-swap, and the late ones find that decision. A rank that takes no part makes every decision a "no".
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/fd.hpp"
#include "cuda/layout.hpp"

namespace stepccl::cuda {

// Where a buffer is: inside a window, or inside an allocation of the rank that the others open by its handle.
struct BufferRef {
  enum Kind : std::uint32_t { kNone, kWindow, kSegment };
  std::uint32_t kind = kNone;
  std::uint32_t segment = 0;
  std::uint64_t window = 0;
  std::uint64_t offset = 0;
};

// What a rank tells of one call.
struct Post {
  std::uint32_t usable = 0;   // its buffers can be shared and are aligned
  std::uint32_t fresh = 0;    // a peer has not yet opened one of its segments
  std::uint32_t closed = 0;   // it can't open segments itself
  std::uint64_t signature = 0;  // of the call; ranks in different calls decide against it
  std::uint64_t bytes = 0;    // largest message; between two ranks: what this one sends
  std::uint64_t expects = 0;  // between two ranks: what this one receives
  BufferRef send;
  BufferRef recv;
  std::uint64_t recv_at[kMaxRanks] = {};  // all_to_all_v: from the beginning of recv, by source
};

// An allocation of a rank: its IPC handle, for the peers.
struct Segment {
  std::uint64_t generation = 0;  // 0: no segment; changes when the place is used again
  std::uint64_t bytes = 0;
  std::uint8_t handle[64] = {};
};

class Meeting {
 public:
  static constexpr std::uint32_t kSegments = 256;  // of one rank

  Meeting() = default;
  Meeting(Meeting&& other) noexcept { *this = std::move(other); }
  Meeting& operator=(Meeting&& other) noexcept;
  ~Meeting();

  // Memory for all ranks, by one of them; the descriptor goes to the others.
  [[nodiscard]] static Expected<Fd> create();
  [[nodiscard]] static Expected<Meeting> open(const Fd& memory, std::uint32_t rank, std::uint32_t ranks);

  // One call. `decide` looks at all ranks' posts and must be a pure function of them; `prepare` opens what this rank lacks
  // and says whether it could. Gives the posts of all when the answer is yes on every rank. All ranks make the calls in one order.
  using Decide = std::function<bool(const std::vector<Post>&)>;
  using Prepare = std::function<bool(const std::vector<Post>&)>;
  [[nodiscard]] std::optional<std::vector<Post>> meet(const Post& mine, std::uint64_t limit_ns, const Decide& decide, const Prepare& prepare) {
    arrive(mine);
    return conclude(limit_ns, decide, prepare, {});
  }
  // The same in two steps, for who meets several at once: tells all of them first. `give_up` ends the wait early.
  void arrive(const Post& mine);
  [[nodiscard]] std::optional<std::vector<Post>> conclude(std::uint64_t limit_ns, const Decide& decide, const Prepare& prepare, const std::function<bool()>& give_up);

  // Segments. Own ones are offered and withdrawn by their rank; peers look, open, and say so.
  [[nodiscard]] std::optional<std::uint32_t> offer(const Segment& segment);  // nothing: no place is left
  void withdraw(std::uint32_t index) noexcept;
  [[nodiscard]] Segment segment(std::uint32_t rank, std::uint32_t index) const noexcept;
  void opened(std::uint32_t rank, std::uint32_t index) noexcept;
  // By all the others, or those of `ranks`, bit by rank.
  [[nodiscard]] bool opened_by(std::uint32_t index, std::uint32_t ranks) const noexcept;
  [[nodiscard]] bool opened_by_all(std::uint32_t index) const noexcept { return opened_by(index, (1u << ranks_) - 1u); }

 private:
  struct Shared;
  struct Slot;
  [[nodiscard]] bool settle(std::atomic<std::uint64_t>& decision, bool wish) const noexcept;

  Shared* shared_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 0;
  std::uint64_t call_ = 0;
  bool posted_ = false;  // this call: not where the place was still in use
  std::uint64_t next_generation_ = 1;
};

}  // namespace stepccl::cuda
