// SPDX-License-Identifier: Apache-2.0
// Shared memory in which every rank notes its calls, so that ranks that differ are found and named, though no call ever
// waits for another rank's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/fd.hpp"

namespace stepccl::cuda {

struct Entry {
  std::uint64_t sequence = 0;  // from 1
  std::uint64_t count = 0;
  std::uint64_t window = 0;    // what the path depends on: windows and offsets, hashed
  std::uint8_t collective = 0;
  std::uint8_t datatype = 0;
  std::uint8_t redop = 0;
  std::uint8_t path = 0;
  std::uint16_t root = 0;
  std::uint16_t budget = 0;
};

class Ledger {
 public:
  static constexpr std::uint32_t kEntries = 256;

  Ledger() = default;
  Ledger(Ledger&& other) noexcept;
  Ledger& operator=(Ledger&& other) noexcept;
  ~Ledger();

  // Memory for all ranks, by one of them; the descriptor goes to the others.
  [[nodiscard]] static Expected<Fd> create(std::uint32_t ranks);
  [[nodiscard]] static Expected<Ledger> open(const Fd& memory, std::uint32_t rank, std::uint32_t ranks);

  // The owner's thread only. Gives the entry its sequence.
  void note(Entry entry) noexcept;
  [[nodiscard]] std::uint64_t calls_of(std::uint32_t rank) const noexcept;
  // Compares what is new since the last look; one thread only. An error names the peer and both calls.
  [[nodiscard]] std::optional<Error> look();
  [[nodiscard]] std::string describe_last(std::uint32_t rank) const;

 private:
  struct Page;
  [[nodiscard]] std::optional<Entry> read(std::uint32_t rank, std::uint64_t sequence) const noexcept;

  Page* pages_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 0;
  std::uint64_t looked_[16] = {};
};

}  // namespace stepccl::cuda
