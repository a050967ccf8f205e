// SPDX-License-Identifier: Apache-2.0
// What host and device code agree on: the layout of a lane and the arguments of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define STEPCCL_BOTH __host__ __device__
#else
#define STEPCCL_BOTH
#endif

namespace stepccl::cuda {

constexpr std::uint32_t kMaxRanks = 16;   // GPUs of one host
constexpr std::uint32_t kMaxBlocks = 32;  // of one operation
constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kBulkThreads = 256;
constexpr std::uint32_t kFlaggedBytes = 8u << 10;  // data of one message that one block carries with flags
constexpr std::uint32_t kLineBytes = 128;          // packed: a line, and what of it is data
constexpr std::uint32_t kLineData = 120;
constexpr std::uint32_t kSlots = 4;                // staged pieces in flight per block and pair
constexpr std::uint32_t kChunkSlots = 4;           // pipeline: chunks in flight per pair
constexpr std::uint32_t kChunkCounters = 32;       // pipeline: chunks that blocks may be working on at once

// A lane: what one stream of operations needs in the memory of each GPU. Peers write the flags and buffers, only its
// own GPU the counters.
struct LaneLayout {
  std::uint32_t ranks;
  std::uint32_t piece_bytes;  // staged: one piece of one block
  std::uint32_t packed_lines; // packed: of one message that one block carries

  STEPCCL_BOTH static constexpr std::uint32_t piece_for(std::uint32_t ranks) noexcept {
    const std::uint32_t bytes = (64u << 10) / ranks / 4096 * 4096;
    return bytes < 4096 ? 4096 : bytes;
  }
  // With two ranks enough for the whole of a small array, with more for their shares of it.
  STEPCCL_BOTH static constexpr std::uint32_t packed_lines_for(std::uint32_t ranks) noexcept { return ranks <= 2 ? 320 : ranks <= 4 ? 128 : 64; }
  // Flags of stream memory operations, one cache line each.
  STEPCCL_BOTH static constexpr std::size_t ready(std::uint32_t from) noexcept { return from * 64u; }
  STEPCCL_BOTH static constexpr std::size_t complete(std::uint32_t from) noexcept { return 1024 + from * 64u; }
  // Flags of the kernels: [block][from].
  STEPCCL_BOTH static constexpr std::size_t barrier_flag(std::uint32_t block, std::uint32_t from) noexcept { return 2048 + (block * kMaxRanks + from) * 4u; }
  STEPCCL_BOTH static constexpr std::size_t staged_flag(std::uint32_t block, std::uint32_t from) noexcept { return 4096 + (block * kMaxRanks + from) * 4u; }
  // Counters: how many messages this block has exchanged with each peer.
  STEPCCL_BOTH static constexpr std::size_t flagged_count(std::uint32_t block, std::uint32_t peer) noexcept { return 6144 + (block * kMaxRanks + peer) * 4u; }
  STEPCCL_BOTH static constexpr std::size_t staged_count(std::uint32_t block, std::uint32_t peer) noexcept { return 8192 + (block * kMaxRanks + peer) * 4u; }
  STEPCCL_BOTH static constexpr std::size_t barrier_count(std::uint32_t block) noexcept { return 10240 + block * 4u; }
  // Pipeline: blocks that are done with a chunk; chunks that are added; a chunk has come; a chunk's place is free again.
  STEPCCL_BOTH static constexpr std::size_t chunk_count(std::uint32_t slot) noexcept { return 11264 + slot * 4u; }
  STEPCCL_BOTH static constexpr std::size_t chunk_done() noexcept { return 11520; }
  STEPCCL_BOTH static constexpr std::size_t chunk_came(std::uint32_t slot, std::uint32_t from) noexcept { return 12288 + (slot * kMaxRanks + from) * 16u; }
  STEPCCL_BOTH static constexpr std::size_t chunk_free(std::uint32_t slot, std::uint32_t from) noexcept { return 14336 + (slot * kMaxRanks + from) * 16u; }
  STEPCCL_BOTH static constexpr std::size_t chunk_end() noexcept { return chunk_free(kChunkSlots, 0); }
  // Broadcast by way of all: pieces that the root has sent.
  STEPCCL_BOTH static constexpr std::size_t relayed() noexcept { return 15872; }
  STEPCCL_BOTH static constexpr std::size_t packed_count(std::uint32_t block, std::uint32_t peer) noexcept { return 16384 + (block * kMaxRanks + peer) * 4u; }
  STEPCCL_BOTH static constexpr std::size_t header_bytes() noexcept { return 20480; }

  // Which of a rank's ranks-1 inboxes `from` writes.
  STEPCCL_BOTH static constexpr std::uint32_t inbox(std::uint32_t from, std::uint32_t to) noexcept { return from < to ? from : from - 1; }
  // 8 bytes of data travel as 16: {low, flag, high, flag}.
  STEPCCL_BOTH constexpr std::size_t flagged(std::uint32_t from, std::uint32_t to, std::uint32_t slot, std::uint32_t block) const noexcept {
    return header_bytes() + ((static_cast<std::size_t>(inbox(from, to)) * 2 + slot) * kMaxBlocks + block) * (2u * kFlaggedBytes);
  }
  STEPCCL_BOTH constexpr std::size_t staged(std::uint32_t from, std::uint32_t to, std::uint32_t slot, std::uint32_t block) const noexcept {
    return header_bytes() + static_cast<std::size_t>(ranks - 1) * 2 * kMaxBlocks * (2u * kFlaggedBytes) +
           ((static_cast<std::size_t>(inbox(from, to)) * kSlots + slot) * kMaxBlocks + block) * piece_bytes;
  }
  STEPCCL_BOTH constexpr std::size_t packed(std::uint32_t from, std::uint32_t to, std::uint32_t slot, std::uint32_t block) const noexcept {
    return packed_begin() + ((static_cast<std::size_t>(inbox(from, to)) * 2 + slot) * kMaxBlocks + block) * packed_lines * kLineBytes;
  }
  STEPCCL_BOTH constexpr std::size_t packed_begin() const noexcept {
    return header_bytes() + static_cast<std::size_t>(ranks - 1) * kMaxBlocks * (4u * kFlaggedBytes + static_cast<std::size_t>(kSlots) * piece_bytes);
  }
  STEPCCL_BOTH constexpr std::size_t bytes() const noexcept { return packed_begin() + static_cast<std::size_t>(ranks - 1) * 2 * kMaxBlocks * packed_lines * kLineBytes; }
  // Of one message over so many blocks.
  STEPCCL_BOTH constexpr std::uint64_t packed_bytes(std::uint32_t blocks) const noexcept { return static_cast<std::uint64_t>(blocks) * packed_lines * kLineData; }
};

// Pinned host memory that kernels look at while they wait, and report to.
struct DeviceStatus {
  std::uint32_t abort;       // host -> device: stop waiting
  std::uint32_t timed_out;   // device -> host: 1 + the peer that did not come
  std::uint32_t lane;
  std::uint32_t reserved;
};

// Device memory: what an operation took.
struct ReceiptSlot {
  unsigned long long sm_ns;
  unsigned long long runs;
};

struct Common {
  std::uint32_t ranks;
  std::uint32_t me;
  std::uint32_t lane;
  std::uint32_t arithmetic;   // datatype * 8 + reduction; see arithmetic.cuh
  std::uint32_t average;      // number of ranks to divide by, or 0
  std::uint32_t last;         // 1: the operation's last launch, which counts the run
  std::uint64_t timeout_ns;
  unsigned char* own_lane;
  unsigned char* peer_lane[kMaxRanks];
  volatile DeviceStatus* status;
  ReceiptSlot* receipt;
};

// Messages between this rank and each peer, through lanes. What goes in and what comes out are any device pointers.
struct ExchangeArgs {
  Common common;
  LaneLayout layout;
  std::uint32_t reduce;                  // 1: out = reduction over ranks of own and what came; 0: what came goes to recv
  std::uint32_t reserved;
  const unsigned char* send[kMaxRanks];
  std::uint64_t send_bytes[kMaxRanks];
  unsigned char* recv[kMaxRanks];        // reduce: unused
  std::uint64_t recv_bytes[kMaxRanks];
  std::uint32_t blocks[kMaxRanks];       // of the pair; 0: nothing passes between the two, not even a flag
  std::uint32_t pieces[kMaxRanks];       // staged: how many each block sends and takes
  const unsigned char* own;              // reduce: this rank's part; else: copied to own_out where that isn't NULL
  unsigned char* own_out;
  std::uint64_t own_bytes;
};

// Reduction of one block of the array straight from the ranks' memory into the memory of some.
struct DirectArgs {
  Common common;
  std::uint32_t targets;
  std::uint32_t barrier;   // meet the other ranks' kernels before and after
  std::uint32_t stages;    // bulk: tiles in flight
  std::uint32_t tile_bytes;
  std::uint64_t bytes;
  const unsigned char* source[kMaxRanks];
  unsigned char* target[kMaxRanks];
};

// Sums of chunks, out of this rank's places.
struct PipelineArgs {
  Common common;
  std::uint64_t bytes;  // of this rank's segment
  std::uint64_t chunk;
  std::uint64_t place_stride;               // from one place of a peer to its next
  std::uint32_t targets;                    // peers that get the sums from the kernel itself
  std::uint32_t slots;                      // places of each peer
  const unsigned char* own;                 // this rank's data of its segment
  unsigned char* out;
  const unsigned char* place[kMaxRanks];    // by peer, the first
  unsigned char* target[kMaxRanks];
};

struct GateArgs {
  std::uint32_t* gate;    // not 0: closed
  std::uint32_t* active;  // operations between enter and leave
  volatile DeviceStatus* status;
};

// How a message is cut. Both ends compute the same from its length alone.
struct Cut {
  // Flagged: 8-byte lines, block after block.
  STEPCCL_BOTH static constexpr std::uint64_t flagged_share(std::uint64_t bytes, std::uint32_t blocks) noexcept {
    const std::uint64_t lines = (bytes + 7) / 8;
    return (lines + blocks - 1) / blocks * 8;
  }
  // Packed: lines, block after block.
  STEPCCL_BOTH static constexpr std::uint64_t packed_share(std::uint64_t bytes, std::uint32_t blocks) noexcept {
    const std::uint64_t lines = (bytes + kLineData - 1) / kLineData;
    return (lines + blocks - 1) / blocks * kLineData;
  }
  // Staged: piece i of block b begins at (i * blocks + b) * share.
  STEPCCL_BOTH static constexpr std::uint64_t staged_share(std::uint64_t bytes, std::uint32_t blocks, std::uint32_t piece_bytes) noexcept {
    const std::uint64_t even = ((bytes + blocks - 1) / blocks + 15) / 16 * 16;
    return even < piece_bytes ? (even == 0 ? 16 : even) : piece_bytes;
  }
  STEPCCL_BOTH static constexpr std::uint64_t staged_pieces(std::uint64_t bytes, std::uint32_t blocks, std::uint32_t piece_bytes) noexcept {
    const std::uint64_t share = staged_share(bytes, blocks, piece_bytes) * blocks;
    const std::uint64_t pieces = (bytes + share - 1) / share;
    return pieces == 0 ? 1 : pieces;
  }
};

}  // namespace stepccl::cuda
