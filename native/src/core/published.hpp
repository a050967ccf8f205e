// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace stepccl {

// A value that one thread changes often and others read seldom: changing it takes stores alone (a sequence lock).
template <class T>
class Published {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;

 public:
  Published() { store({}); }

  // One thread at a time.
  void store(const T& value) noexcept {
    const auto words = std::bit_cast<Words>(value);
    const std::uint64_t edits = edits_.load(std::memory_order_relaxed);
    edits_.store(edits + 1, std::memory_order_relaxed);
    // Release: whoever sees a new word sees that it is being changed.
    for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    edits_.store(edits + 2, std::memory_order_release);
  }

  // Any thread: the value of one store().
  [[nodiscard]] T load() const noexcept {
    Words words;
    while (true) {
      const std::uint64_t before = edits_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if ((before & 1u) == 0 && edits_.load(std::memory_order_relaxed) == before) break;
    }
    return std::bit_cast<T>(words);
  }

 private:
  std::atomic<std::uint64_t> edits_{0};
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> words_{};
};

}  // namespace stepccl
