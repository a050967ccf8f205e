// SPDX-License-Identifier: Apache-2.0
// One call, as data, and how it is cut into messages between pairs of ranks. No device needed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/error.hpp"
#include "cuda/layout.hpp"
#include "stepccl/cuda.h"

namespace stepccl::cuda {

struct Operation {
  stepccl_collective_t kind = STEPCCL_BARRIER;
  bool varying = false;  // all_to_all_v
  const unsigned char* send = nullptr;
  unsigned char* recv = nullptr;
  std::uint64_t count = 0;
  stepccl_datatype_t datatype = STEPCCL_UINT8;
  stepccl_redop_t redop = STEPCCL_SUM;
  std::uint32_t root = 0;
  // By peer, in bytes; all_to_all_v and send/recv.
  std::array<const unsigned char*, kMaxRanks> send_to{};
  std::array<std::uint64_t, kMaxRanks> send_bytes{};
  std::array<unsigned char*, kMaxRanks> recv_from{};
  std::array<std::uint64_t, kMaxRanks> recv_bytes{};
  std::uint32_t involved = 0;  // send/recv: bit by peer

  [[nodiscard]] std::uint64_t element() const noexcept { return stepccl_datatype_bytes(datatype); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * element(); }  // of `count`
  [[nodiscard]] bool reduces() const noexcept { return kind == STEPCCL_ALL_REDUCE || kind == STEPCCL_REDUCE_SCATTER || kind == STEPCCL_REDUCE; }
  [[nodiscard]] bool pairwise() const noexcept { return kind == STEPCCL_SEND_RECV || varying; }
  // Bytes read at `send` and written at `recv` by `rank` of `ranks`.
  [[nodiscard]] std::uint64_t send_span(std::uint32_t rank, std::uint32_t ranks) const noexcept;
  [[nodiscard]] std::uint64_t recv_span(std::uint32_t rank, std::uint32_t ranks) const noexcept;
  // The largest message between two ranks: what the choice of a path goes by. The same on every rank for collectives.
  [[nodiscard]] std::uint64_t message_bytes(std::uint32_t ranks) const noexcept;

  // What a rank's link to one peer carries: the message, or both shares of an all_reduce in two steps.
  [[nodiscard]] std::uint64_t load_bytes(std::uint32_t ranks, std::uint64_t one_shot_bytes) const noexcept;

  // INVALID_ARGUMENT for what can be seen without a device.
  [[nodiscard]] Status check(std::uint32_t rank, std::uint32_t ranks) const;
};

// One launch of an exchange kernel.
struct Messages {
  bool reduce = false;
  std::array<const unsigned char*, kMaxRanks> send{};
  std::array<std::uint64_t, kMaxRanks> send_bytes{};
  std::array<unsigned char*, kMaxRanks> recv{};
  std::array<std::uint64_t, kMaxRanks> recv_bytes{};
  std::array<bool, kMaxRanks> paired{};  // whether anything passes between this rank and the peer, if only a flag
  const unsigned char* own = nullptr;
  unsigned char* own_out = nullptr;
  std::uint64_t own_bytes = 0;
  const Operation* operation = nullptr;
};

// The launches, one after another, that carry an operation out. one_shot_bytes: up to which size every rank sends all of
// an all_reduce to every other instead of a share to each.
[[nodiscard]] std::vector<Messages> messages_of(const Operation& operation, std::uint32_t rank, std::uint32_t ranks, std::uint64_t one_shot_bytes);

// The part of an array of `bytes` that a rank reduces: begin and length, begin a multiple of 128.
struct Share {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};
[[nodiscard]] Share share_of(std::uint64_t bytes, std::uint32_t rank, std::uint32_t ranks) noexcept;

// Up to which message size a path is taken, and how many blocks a kernel gets; measured between two ranks. With more of them a
// rank's links carry as many messages as it has peers, so choose_path divides: see per_peer.
struct Thresholds {
  std::uint64_t flagged_bytes = 256u << 10;
  std::uint64_t packed_bytes = 0;                // above flagged_bytes, as far as the lane's lines go
  std::uint64_t spread_bytes = 16u << 20;        // broadcast between windows: by kernels, above by copy engines
  std::uint64_t one_shot_bytes = 256u << 10;  // with more than two ranks; see one_shot_for
  std::uint64_t staged_reduce_bytes = 768u << 10;  // above: direct, where the buffers are windows
  std::uint64_t pipeline_bytes = 64u << 20;      // above: copy engines and a few blocks, where direct is not possible
  std::uint64_t push_bytes = 1ull << 40;         // all_reduce above: copy engines and a few blocks, though direct were possible
  std::uint64_t staged_copy_bytes = 2u << 20;    // above: kernels or copy engines, where the buffers are windows
  std::uint64_t paged_bytes = 8u << 20;          // above: page by page, where the buffers are no windows
  std::uint32_t plain_wait_us = 2000;            // how long a call on plain buffers waits for the other ranks' calls; 0 = it stages them
  std::uint32_t flagged_block_bytes = 4u << 10;  // one more block for each
  std::uint32_t staged_block_bytes = 16u << 10;
  std::uint32_t bulk_blocks = 16;
  std::uint32_t direct_blocks = 24;
  std::uint32_t packed_block_bytes = 8u << 10;
  std::uint32_t pipeline_blocks = 24;

  // Of a threshold between two ranks, what it is for the messages of a rank to each of its peers.
  [[nodiscard]] static constexpr std::uint64_t per_peer(std::uint64_t bytes, std::uint32_t ranks) noexcept { return ranks <= 2 ? bytes : bytes / (ranks - 1); }
  // Up to which size every rank had better send all of an all_reduce to everyone. Sending it whole instead of in shares, twice,
  // costs (ranks - 1)(1 - 2 / ranks) times its bytes more on each rank's links; it saves one hop, 2.8 us between two H200, in
  // which 560 KB go by with the flags beside the data (400 GB/s).
  [[nodiscard]] static constexpr std::uint64_t one_shot_for(std::uint32_t ranks) noexcept {
    constexpr std::uint64_t kOneHop = 560'000;
    return ranks <= 2 ? 256u << 10 : std::min<std::uint64_t>(256u << 10, kOneHop * ranks / ((ranks - 1) * (ranks - 2)));
  }

  // JSON object with any of the members above. INVALID_CONFIGURATION names what is wrong.
  [[nodiscard]] static Expected<Thresholds> parse(const std::string& json, const Thresholds& standard);
};

[[nodiscard]] std::uint32_t flagged_blocks(std::uint64_t bytes, std::uint32_t budget, const Thresholds& thresholds) noexcept;
[[nodiscard]] std::uint32_t packed_blocks(std::uint64_t bytes, std::uint32_t budget, std::uint32_t lines, const Thresholds& thresholds) noexcept;
[[nodiscard]] std::uint32_t staged_blocks(std::uint64_t bytes, std::uint32_t budget, const Thresholds& thresholds) noexcept;

}  // namespace stepccl::cuda
