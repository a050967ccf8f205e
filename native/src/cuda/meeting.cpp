// SPDX-License-Identifier: Apache-2.0
#include "cuda/meeting.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/clock.hpp"

namespace stepccl::cuda {
namespace {

constexpr std::uint32_t kSlotsInUse = 64;
constexpr std::uint64_t kPrepareNs = 5'000'000'000;

static_assert(std::is_trivially_copyable_v<Post> && std::is_trivially_copyable_v<Segment>);

}  // namespace

struct Meeting::Slot {
  std::atomic<std::uint64_t> decision;  // call * 2 + 1 (yes) or + 0 (no); calls count from 1
  std::atomic<std::uint64_t> ready;     // the same, once segments had to be opened
  std::atomic<std::uint64_t> posted[kMaxRanks];
  std::atomic<std::uint64_t> opened[kMaxRanks];  // call * 2 + whether it could
  Post posts[kMaxRanks];
};

struct Meeting::Shared {
  std::atomic<std::uint64_t> done[kMaxRanks];  // calls that a rank has left
  Slot slots[kSlotsInUse];
  struct Place {
    Segment segment;
    std::atomic<std::uint64_t> generation;  // of `segment`, 0 = withdrawn
    std::atomic<std::uint32_t> opened_by;
  };
  Place places[kMaxRanks][kSegments];
};

Expected<Fd> Meeting::create() {
  Fd memory(static_cast<int>(::memfd_create("stepccl-meeting", MFD_CLOEXEC)));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(sizeof(Shared))) != 0) {
    return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_CONNECT, "memfd_create: " + errno_text(errno));
  }
  return memory;
}

Expected<Meeting> Meeting::open(const Fd& memory, std::uint32_t rank, std::uint32_t ranks) {
  if (::lseek(memory.get(), 0, SEEK_END) != static_cast<off_t>(sizeof(Shared))) return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, "the ranks' meeting place has another size");
  void* map = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (map == MAP_FAILED) return make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_CONNECT, "mmap: " + errno_text(errno));
  Meeting meeting;
  meeting.shared_ = static_cast<Shared*>(map);
  meeting.bytes_ = sizeof(Shared);
  meeting.rank_ = rank;
  meeting.ranks_ = ranks;
  return meeting;
}

Meeting& Meeting::operator=(Meeting&& other) noexcept {
  std::swap(shared_, other.shared_);
  std::swap(bytes_, other.bytes_);
  rank_ = other.rank_;
  ranks_ = other.ranks_;
  call_ = other.call_;
  posted_ = other.posted_;
  next_generation_ = other.next_generation_;
  return *this;
}
Meeting::~Meeting() {
  if (shared_ != nullptr) ::munmap(shared_, bytes_);
}

// Puts this rank's wish down unless the call is decided, and gives the decision.
bool Meeting::settle(std::atomic<std::uint64_t>& decision, bool wish) const noexcept {
  std::uint64_t found = decision.load(std::memory_order_acquire);
  while (found / 2 < call_) {
    const std::uint64_t own = call_ * 2 + (wish ? 1 : 0);
    if (decision.compare_exchange_weak(found, own, std::memory_order_acq_rel)) return wish;
  }
  return found % 2 != 0;
}

void Meeting::arrive(const Post& mine) {
  ++call_;
  Slot& slot = shared_->slots[call_ % kSlotsInUse];
  posted_ = true;
  // Somebody may still read what stood here: without this rank's post nobody can say yes.
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) posted_ = posted_ && shared_->done[peer].load(std::memory_order_acquire) + kSlotsInUse >= call_;
  if (!posted_) return;
  slot.posts[rank_] = mine;
  slot.posted[rank_].store(call_, std::memory_order_release);
}

std::optional<std::vector<Post>> Meeting::conclude(std::uint64_t limit_ns, const Decide& decide, const Prepare& prepare, const std::function<bool()>& give_up) {
  Slot& slot = shared_->slots[call_ % kSlotsInUse];
  const auto leave = [&] { shared_->done[rank_].store(call_, std::memory_order_release); };
  if (!posted_) return leave(), std::nullopt;

  const auto all = [&](const std::atomic<std::uint64_t>* words, std::uint64_t scale) {
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (words[peer].load(std::memory_order_acquire) / scale != call_) return false;
    }
    return true;
  };
  // Waits for all, no longer than the limit, or until the call is decided.
  const auto wait = [&](const std::atomic<std::uint64_t>* words, std::uint64_t scale, const std::atomic<std::uint64_t>& decision, std::uint64_t ns) {
    const std::uint64_t end = monotonic_ns() + ns;
    for (std::uint32_t spins = 0;; ++spins) {
      if (all(words, scale)) return true;
      if (decision.load(std::memory_order_acquire) / 2 == call_) return false;
      if (spins % 64 == 63) {
        if (monotonic_ns() >= end || (give_up && give_up())) return false;
        ::sched_yield();
      }
    }
  };
  std::vector<Post> posts;
  bool wish = false;
  if (wait(slot.posted, 1, slot.decision, limit_ns) || all(slot.posted, 1)) {
    posts.assign(slot.posts, slot.posts + ranks_);
    wish = decide(posts);
  }
  if (!settle(slot.decision, wish)) return leave(), std::nullopt;
  // Yes: so all have posted.
  if (posts.empty()) posts.assign(slot.posts, slot.posts + ranks_);
  bool fresh = false;
  for (const Post& post : posts) fresh = fresh || post.fresh != 0;
  if (fresh) {
    slot.opened[rank_].store(call_ * 2 + (prepare(posts) ? 1 : 0), std::memory_order_release);
    bool opened = wait(slot.opened, 2, slot.ready, kPrepareNs) || all(slot.opened, 2);
    for (std::uint32_t peer = 0; peer < ranks_ && opened; ++peer) opened = slot.opened[peer].load(std::memory_order_acquire) % 2 != 0;
    if (!settle(slot.ready, opened)) return leave(), std::nullopt;
  }
  leave();
  return posts;
}

std::optional<std::uint32_t> Meeting::offer(const Segment& segment) {
  for (std::uint32_t index = 0; index < kSegments; ++index) {
    Shared::Place& place = shared_->places[rank_][index];
    if (place.generation.load(std::memory_order_relaxed) != 0) continue;
    place.segment = segment;
    place.segment.generation = next_generation_;
    place.opened_by.store(0, std::memory_order_relaxed);
    place.generation.store(next_generation_++, std::memory_order_release);
    return index;
  }
  return std::nullopt;
}
void Meeting::withdraw(std::uint32_t index) noexcept { shared_->places[rank_][index].generation.store(0, std::memory_order_release); }

Segment Meeting::segment(std::uint32_t rank, std::uint32_t index) const noexcept {
  const Shared::Place& place = shared_->places[rank][index];
  const std::uint64_t generation = place.generation.load(std::memory_order_acquire);
  if (generation == 0) return {};
  Segment copy = place.segment;
  // The owner may have used the place again meanwhile.
  std::atomic_thread_fence(std::memory_order_acquire);
  return place.generation.load(std::memory_order_relaxed) == generation && copy.generation == generation ? copy : Segment();
}
void Meeting::opened(std::uint32_t rank, std::uint32_t index) noexcept { shared_->places[rank][index].opened_by.fetch_or(1u << rank_, std::memory_order_acq_rel); }
bool Meeting::opened_by(std::uint32_t index, std::uint32_t ranks) const noexcept {
  const std::uint32_t others = ranks & ~(1u << rank_);
  return (shared_->places[rank_][index].opened_by.load(std::memory_order_acquire) & others) == others;
}

}  // namespace stepccl::cuda
