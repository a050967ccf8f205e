// SPDX-License-Identifier: Apache-2.0
#include "cuda/operation.hpp"

#include <algorithm>
#include <string>

namespace stepccl::cuda {
namespace {

Error argument_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

constexpr std::uint64_t up(std::uint64_t value, std::uint64_t unit) noexcept { return (value + unit - 1) / unit * unit; }

Status check_buffer(const char* name, const void* pointer, std::uint64_t bytes, std::uint64_t element) {
  if (bytes == 0) return {};
  if (pointer == nullptr) return argument_error(std::string(name) + " is NULL");
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  if (at % element != 0) return argument_error(std::string(name) + " is not aligned to the datatype");
  if (at > UINTPTR_MAX - bytes) return argument_error(std::string(name) + " runs past the end of the address space");
  return {};
}

bool overlap(const unsigned char* a, std::uint64_t a_bytes, const unsigned char* b, std::uint64_t b_bytes) {
  return a_bytes != 0 && b_bytes != 0 && a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

std::uint64_t Operation::send_span(std::uint32_t rank, std::uint32_t ranks) const noexcept {
  if (varying || kind == STEPCCL_SEND_RECV) return 0;
  switch (kind) {
    case STEPCCL_ALL_REDUCE:
    case STEPCCL_REDUCE:
    case STEPCCL_ALL_GATHER:
    case STEPCCL_GATHER: return bytes();
    case STEPCCL_REDUCE_SCATTER:
    case STEPCCL_ALL_TO_ALL: return bytes() * ranks;
    case STEPCCL_BROADCAST: return rank == root ? bytes() : 0;
    case STEPCCL_SCATTER: return rank == root ? bytes() * ranks : 0;
    default: return 0;
  }
}

std::uint64_t Operation::recv_span(std::uint32_t rank, std::uint32_t ranks) const noexcept {
  if (varying || kind == STEPCCL_SEND_RECV) return 0;
  switch (kind) {
    case STEPCCL_ALL_REDUCE:
    case STEPCCL_REDUCE_SCATTER:
    case STEPCCL_BROADCAST:
    case STEPCCL_SCATTER: return bytes();
    case STEPCCL_ALL_GATHER:
    case STEPCCL_ALL_TO_ALL: return bytes() * ranks;
    case STEPCCL_REDUCE: return rank == root ? bytes() : 0;
    case STEPCCL_GATHER: return rank == root ? bytes() * ranks : 0;
    default: return 0;
  }
}

std::uint64_t Operation::message_bytes(std::uint32_t ranks) const noexcept {
  if (!pairwise()) return bytes();
  std::uint64_t most = 0;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) most = std::max({most, send_bytes[peer], recv_bytes[peer]});
  return most;
}

std::uint64_t Operation::load_bytes(std::uint32_t ranks, std::uint64_t one_shot_bytes) const noexcept {
  const std::uint64_t message = message_bytes(ranks);
  return kind == STEPCCL_ALL_REDUCE && ranks > 2 && message > one_shot_bytes ? 2 * share_of(message, 0, ranks).bytes : message;
}

Status Operation::check(std::uint32_t rank, std::uint32_t ranks) const {
  const std::uint64_t size = element();
  if (size == 0) return argument_error("datatype " + std::to_string(static_cast<int>(datatype)) + " is outside its enumeration");
  if (static_cast<unsigned>(redop) >= STEPCCL_REDOP_COUNT) return argument_error("redop " + std::to_string(static_cast<int>(redop)) + " is outside its enumeration");
  if (root >= ranks) return argument_error("root " + std::to_string(root) + " is not below the world size " + std::to_string(ranks));
  if (count > UINT64_MAX / 16 / size / ranks) return argument_error("count is larger than any memory");
  if (pairwise()) {
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      if (Status status = check_buffer("send", send_to[peer], send_bytes[peer], size); !status.ok()) return status;
      if (Status status = check_buffer("recv", recv_from[peer], recv_bytes[peer], size); !status.ok()) return status;
      if (peer == rank && send_bytes[peer] != recv_bytes[peer]) return argument_error("what a rank sends to itself is not what it receives from itself");
      for (std::uint32_t other = 0; other < ranks; ++other) {
        if (overlap(send_to[other], send_bytes[other], recv_from[peer], recv_bytes[peer])) return argument_error("send and recv overlap");
        if (other != peer && overlap(recv_from[other], recv_bytes[other], recv_from[peer], recv_bytes[peer])) return argument_error("what comes from two ranks overlaps");
      }
    }
    return {};
  }
  const std::uint64_t sent = send_span(rank, ranks);
  const std::uint64_t received = recv_span(rank, ranks);
  if (Status status = check_buffer("send", send, sent, size); !status.ok()) return status;
  if (Status status = check_buffer("recv", recv, received, size); !status.ok()) return status;
  if (!overlap(send, sent, recv, received)) return {};
  bool in_place = false;
  switch (kind) {
    case STEPCCL_ALL_REDUCE:
    case STEPCCL_BROADCAST:
    case STEPCCL_REDUCE: in_place = send == recv; break;
    case STEPCCL_ALL_GATHER:
    case STEPCCL_GATHER: in_place = send == recv + rank * bytes(); break;
    case STEPCCL_REDUCE_SCATTER:
    case STEPCCL_SCATTER: in_place = recv == send + rank * bytes(); break;
    default: break;
  }
  return in_place ? Status() : Status(argument_error("send and recv overlap, and not as in-place operation"));
}

Share share_of(std::uint64_t bytes, std::uint32_t rank, std::uint32_t ranks) noexcept {
  const std::uint64_t even = up((bytes + ranks - 1) / ranks, 128);
  const std::uint64_t begin = std::min(bytes, even * rank);
  return {begin, std::min(bytes - begin, even)};
}

std::vector<Messages> messages_of(const Operation& op, std::uint32_t rank, std::uint32_t ranks, std::uint64_t one_shot_bytes) {
  Messages first;
  first.operation = &op;
  const std::uint64_t bytes = op.bytes();
  const auto everyone = [&](Messages& messages) {
    for (std::uint32_t peer = 0; peer < ranks; ++peer) messages.paired[peer] = peer != rank;
  };
  const auto with_root = [&](Messages& messages) {
    for (std::uint32_t peer = 0; peer < ranks; ++peer) messages.paired[peer] = peer != rank && (rank == op.root || peer == op.root);
  };
  const auto keep = [&](const unsigned char* from, unsigned char* to) {
    first.own = from;
    first.own_out = to;
    first.own_bytes = bytes;
  };
  if (op.pairwise()) {
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      first.send[peer] = op.send_to[peer];
      first.send_bytes[peer] = op.send_bytes[peer];
      first.recv[peer] = op.recv_from[peer];
      first.recv_bytes[peer] = op.recv_bytes[peer];
      first.paired[peer] = peer != rank && (op.varying || (op.involved >> peer & 1u) != 0);
    }
    keep(op.send_to[rank], op.recv_from[rank]);
    first.own_bytes = op.send_bytes[rank];
    first.send_bytes[rank] = first.recv_bytes[rank] = 0;
    return {first};
  }
  switch (op.kind) {
    case STEPCCL_ALL_REDUCE: {
      everyone(first);
      first.reduce = true;
      if (ranks <= 2 || bytes <= one_shot_bytes) {
        keep(op.send, op.recv);
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
          if (peer == rank) continue;
          first.send[peer] = op.send;
          first.send_bytes[peer] = first.recv_bytes[peer] = bytes;
        }
        return {first};
      }
      // Everyone reduces a share, then gives it to all.
      Messages second = first;
      second.reduce = false;
      const Share mine = share_of(bytes, rank, ranks);
      keep(op.send + mine.begin, op.recv + mine.begin);
      first.own_bytes = mine.bytes;
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const Share theirs = share_of(bytes, peer, ranks);
        first.send[peer] = op.send + theirs.begin;
        first.send_bytes[peer] = theirs.bytes;
        first.recv_bytes[peer] = mine.bytes;
        second.send[peer] = op.recv + mine.begin;
        second.send_bytes[peer] = mine.bytes;
        second.recv[peer] = op.recv + theirs.begin;
        second.recv_bytes[peer] = theirs.bytes;
      }
      return {first, second};
    }
    case STEPCCL_REDUCE_SCATTER:
      everyone(first);
      first.reduce = true;
      keep(op.send + rank * bytes, op.recv);
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        first.send[peer] = op.send + peer * bytes;
        first.send_bytes[peer] = first.recv_bytes[peer] = bytes;
      }
      break;
    case STEPCCL_REDUCE:
      with_root(first);
      first.reduce = true;
      if (rank == op.root) {
        keep(op.send, op.recv);
        for (std::uint32_t peer = 0; peer < ranks; ++peer) first.recv_bytes[peer] = peer == rank ? 0 : bytes;
      } else {
        first.send[op.root] = op.send;
        first.send_bytes[op.root] = bytes;
      }
      break;
    case STEPCCL_ALL_GATHER:
      everyone(first);
      keep(op.send, op.recv + rank * bytes);
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        first.send[peer] = op.send;
        first.recv[peer] = op.recv + peer * bytes;
        first.send_bytes[peer] = first.recv_bytes[peer] = bytes;
      }
      break;
    case STEPCCL_ALL_TO_ALL:
      everyone(first);
      keep(op.send + rank * bytes, op.recv + rank * bytes);
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        first.send[peer] = op.send + peer * bytes;
        first.recv[peer] = op.recv + peer * bytes;
        first.send_bytes[peer] = first.recv_bytes[peer] = bytes;
      }
      break;
    case STEPCCL_BROADCAST:
    case STEPCCL_SCATTER: {
      with_root(first);
      const std::uint64_t stride = op.kind == STEPCCL_SCATTER ? bytes : 0;
      if (rank == op.root) {
        keep(op.send + rank * stride, op.recv);
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
          if (peer == rank) continue;
          first.send[peer] = op.send + peer * stride;
          first.send_bytes[peer] = bytes;
        }
      } else {
        first.recv[op.root] = op.recv;
        first.recv_bytes[op.root] = bytes;
      }
      break;
    }
    case STEPCCL_GATHER:
      with_root(first);
      if (rank == op.root) {
        keep(op.send, op.recv + rank * bytes);
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
          if (peer == rank) continue;
          first.recv[peer] = op.recv + peer * bytes;
          first.recv_bytes[peer] = bytes;
        }
      } else {
        first.send[op.root] = op.send;
        first.send_bytes[op.root] = bytes;
      }
      break;
    default: everyone(first); break;  // a barrier: empty messages
  }
  return {first};
}

std::uint32_t flagged_blocks(std::uint64_t bytes, std::uint32_t budget, const Thresholds& thresholds) noexcept {
  const std::uint64_t wanted = (bytes + thresholds.flagged_block_bytes - 1) / thresholds.flagged_block_bytes;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, budget));
}

std::uint32_t packed_blocks(std::uint64_t bytes, std::uint32_t budget, std::uint32_t lines, const Thresholds& thresholds) noexcept {
  const std::uint64_t each = std::min<std::uint64_t>(thresholds.packed_block_bytes, std::uint64_t{lines} * kLineData);
  const std::uint64_t wanted = (bytes + each - 1) / each;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, budget));
}

std::uint32_t staged_blocks(std::uint64_t bytes, std::uint32_t budget, const Thresholds& thresholds) noexcept {
  const std::uint64_t wanted = (bytes + thresholds.staged_block_bytes - 1) / thresholds.staged_block_bytes;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, budget));
}

}  // namespace stepccl::cuda
