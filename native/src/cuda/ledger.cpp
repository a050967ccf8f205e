// SPDX-License-Identifier: Apache-2.0
#include "cuda/ledger.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "stepccl/cuda.h"

namespace stepccl::cuda {

struct Ledger::Page {
  std::atomic<std::uint64_t> calls;  // entries written
  Entry entries[kEntries];
};

Expected<Fd> Ledger::create(std::uint32_t ranks) {
  Fd memory(static_cast<int>(::memfd_create("stepccl-ledger", MFD_CLOEXEC)));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(sizeof(Page) * ranks)) != 0) {
    return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_CONNECT, "memfd_create: " + errno_text(errno));
  }
  return memory;
}

Expected<Ledger> Ledger::open(const Fd& memory, std::uint32_t rank, std::uint32_t ranks) {
  Ledger ledger;
  const std::size_t bytes = sizeof(Page) * ranks;
  if (::lseek(memory.get(), 0, SEEK_END) != static_cast<off_t>(bytes)) return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, "the ranks' ledger has another size");
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (map == MAP_FAILED) return make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_CONNECT, "mmap: " + errno_text(errno));
  ledger.pages_ = static_cast<Page*>(map);
  ledger.bytes_ = bytes;
  ledger.rank_ = rank;
  ledger.ranks_ = ranks;
  return ledger;
}

Ledger::Ledger(Ledger&& other) noexcept { *this = std::move(other); }
Ledger& Ledger::operator=(Ledger&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(bytes_, other.bytes_);
  rank_ = other.rank_;
  ranks_ = other.ranks_;
  std::memcpy(looked_, other.looked_, sizeof looked_);
  return *this;
}
Ledger::~Ledger() {
  if (pages_ != nullptr) ::munmap(pages_, bytes_);
}

void Ledger::note(Entry entry) noexcept {
  Page& page = pages_[rank_];
  const std::uint64_t calls = page.calls.load(std::memory_order_relaxed);
  entry.sequence = calls + 1;
  page.entries[calls % kEntries] = entry;
  page.calls.store(calls + 1, std::memory_order_release);
}

std::uint64_t Ledger::calls_of(std::uint32_t rank) const noexcept { return pages_[rank].calls.load(std::memory_order_acquire); }

std::optional<Entry> Ledger::read(std::uint32_t rank, std::uint64_t sequence) const noexcept {
  Page& page = pages_[rank];
  const std::uint64_t before = page.calls.load(std::memory_order_acquire);
  if (sequence == 0 || sequence > before || before - sequence >= kEntries - 1) return std::nullopt;
  const Entry entry = page.entries[(sequence - 1) % kEntries];
  std::atomic_thread_fence(std::memory_order_acquire);
  // Overwritten while it was read?
  if (page.calls.load(std::memory_order_relaxed) - sequence >= kEntries - 1 || entry.sequence != sequence) return std::nullopt;
  return entry;
}

namespace {

std::string words(const Entry& entry) {
  const auto kind = static_cast<stepccl_collective_t>(entry.collective);
  std::string text = std::string(stepccl_collective_name(kind)) + " of " + std::to_string(entry.count) + " " + stepccl_datatype_name(static_cast<stepccl_datatype_t>(entry.datatype));
  if (kind == STEPCCL_ALL_REDUCE || kind == STEPCCL_REDUCE || kind == STEPCCL_REDUCE_SCATTER) text += std::string(" ") + stepccl_redop_name(static_cast<stepccl_redop_t>(entry.redop));
  if (kind == STEPCCL_BROADCAST || kind == STEPCCL_REDUCE || kind == STEPCCL_SCATTER || kind == STEPCCL_GATHER) text += " root " + std::to_string(entry.root);
  return text;
}

bool same(const Entry& a, const Entry& b) {
  return a.count == b.count && a.window == b.window && a.collective == b.collective && a.datatype == b.datatype && a.redop == b.redop && a.path == b.path && a.root == b.root &&
         a.budget == b.budget;
}

}  // namespace

std::optional<Error> Ledger::look() {
  const std::uint64_t mine = calls_of(rank_);
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const std::uint64_t both = std::min(mine, calls_of(peer));
    for (std::uint64_t sequence = looked_[peer] + 1; sequence <= both; ++sequence) {
      looked_[peer] = sequence;
      const auto here = read(rank_, sequence);
      const auto there = read(peer, sequence);
      if (!here || !there || same(*here, *there)) continue;
      std::string cause = "call " + std::to_string(sequence) + " is " + words(*here) + " here and " + words(*there) + " there";
      if (words(*here) == words(*there)) {
        cause += here->budget != there->budget || here->path != there->path ? ", with another path or sm_budget" : ", in buffers that are not the same window and offset";
      }
      return make_error(STEPCCL_ERROR_MISMATCH, STEPCCL_PHASE_TRANSFER, cause, static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
    }
  }
  return std::nullopt;
}

std::string Ledger::describe_last(std::uint32_t rank) const {
  const std::uint64_t calls = calls_of(rank);
  if (calls == 0) return "no call yet";
  const auto entry = read(rank, calls);
  return "call " + std::to_string(calls) + (entry ? ", " + words(*entry) : std::string());
}

}  // namespace stepccl::cuda
