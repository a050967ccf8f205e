// SPDX-License-Identifier: Apache-2.0
// Operations page by page through buffers of the pool: for arrays larger than it, or in pinned host memory.
//
// Three stages, each on a stream of its own: in (from the caller's array to a buffer), the operation on the buffer, out.
// prefetch_depth + 1 buffers are in the round; a page's buffer is free again when its `out` is done.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/clock.hpp"
#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;
constexpr std::uint64_t kOwnPageBytes = 16u << 20;
constexpr std::uint32_t kOwnPrefetchDepth = 2;

}  // namespace

Status Engine::set_paging(std::uint64_t page_bytes, std::uint32_t prefetch_depth) {
  if (page_bytes % (2u << 20) != 0) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "page_bytes is no multiple of 2 MiB");
  if (page_bytes != 0 && (prefetch_depth < 1 || prefetch_depth > 15)) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "prefetch_depth is not from 1 to 15");
  const std::lock_guard lock(mutex_);
  if (auto error = failure()) return *error;
  const ContextScope scope(*driver_, context_);
  if (page_bytes == 0) return set_own({{STEPCCL_GPU_PAGING, 0}});
  if (Status status = set_own({{STEPCCL_GPU_PAGING, 1}, {STEPCCL_GPU_PAGE_BYTES, page_bytes}, {STEPCCL_GPU_PREFETCH_DEPTH, prefetch_depth}}); !status.ok()) return status;
  if (page_bytes_ == 0 && !wishes_[STEPCCL_GPU_PAGING]) {
    own_[STEPCCL_GPU_PAGING] = 0;
    return make_error(STEPCCL_ERROR_GPU_OUT_OF_MEMORY, kPhase, "the pool has no room for " + std::to_string(prefetch_depth + 1) + " pages of " + std::to_string(page_bytes) + " bytes");
  }
  return {};
}

Status Engine::change_paging(std::uint64_t page_bytes, std::uint32_t prefetch_depth) {
  if (Status status = settle_streams(true); !status.ok()) return status;
  if (page_window_) {
    own_offsets_.erase(offset_of(*page_window_));
    pool_->free(offset_of(*page_window_));
    windows_.erase(page_window_->base[rank_]);
    page_window_.reset();
  }
  page_bytes_ = 0;
  if (page_bytes == 0) return {};
  if (Status status = make_pages(page_bytes, prefetch_depth); !status.ok()) return status;
  page_bytes_ = page_bytes;
  return {};
}

Status Engine::make_pages(std::uint64_t page_bytes, std::uint32_t prefetch_depth) {
  auto window = allocate_window(page_bytes * (prefetch_depth + 1));
  if (!window.ok()) return window.take_error();
  page_window_ = window.value();
  own_offsets_.insert(offset_of(window.value()));
  page_size_ = page_bytes;
  prefetch_depth_ = prefetch_depth;
  return {};
}

Status Engine::run_paged(Flight& flight, const Operation& operation, bool host_memory) {
  if (flight.capturing) return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "paged operations can't be captured");
  const std::uint64_t element = operation.element();
  // What a page holds: `count` elements of every block that the operation has at send and at recv.
  const std::uint64_t send_blocks = operation.send_span(rank_, world_) / std::max<std::uint64_t>(operation.bytes(), 1);
  const std::uint64_t recv_blocks = operation.recv_span(rank_, world_) / std::max<std::uint64_t>(operation.bytes(), 1);
  const bool wide = operation.kind == STEPCCL_ALL_GATHER || operation.kind == STEPCCL_ALL_TO_ALL || operation.kind == STEPCCL_REDUCE_SCATTER || operation.kind == STEPCCL_SCATTER ||
                    operation.kind == STEPCCL_GATHER;
  if (operation.pairwise() || operation.kind == STEPCCL_BARRIER) return make_error(STEPCCL_ERROR_UNSUPPORTED, STEPCCL_PHASE_ARGUMENTS, "this operation does not go page by page");
  if (!page_window_) {
    // Plain device memory, and paging was not asked for: buffers that keep the link busy.
    if (Status status = make_pages(kOwnPageBytes, kOwnPrefetchDepth); !status.ok()) return status;
  }
  // Half a page for what is sent, half for what is received, except in place.
  const bool in_place = operation.kind == STEPCCL_ALL_REDUCE || operation.kind == STEPCCL_BROADCAST;
  const std::uint64_t room = in_place ? page_size_ : page_size_ / 2;
  const std::uint64_t block_bytes = std::max<std::uint64_t>((wide ? room / world_ : room) / 512 * 512, 512);
  // Copy engines push from any device memory: only where they push to must be seen by the peers.
  const bool sends_from_place = !host_memory && (operation.kind == STEPCCL_ALL_GATHER || operation.kind == STEPCCL_BROADCAST);
  const std::uint64_t total = operation.bytes();
  const std::uint64_t pages = (total + block_bytes - 1) / block_bytes;
  const std::uint32_t buffers = prefetch_depth_ + 1;
  CUstream in = side_streams_[1];
  CUstream out = side_streams_[2];
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, fork_, flight.stream);
  STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, in, fork_, 0);
  STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, out, fork_, 0);
  flight.ticket->pages = pages;
  flight.ticket->page_base = pages_queued_;
  const CUdeviceptr pool_base = page_window_->base[rank_];

  for (std::uint64_t page = 0; page < pages; ++page) {
    const std::uint64_t begin = page * block_bytes;
    const std::uint64_t bytes = std::min(block_bytes, total - begin);
    const std::uint32_t buffer = static_cast<std::uint32_t>(page % buffers);
    const CUdeviceptr send_at = pool_base + buffer * page_size_;
    const CUdeviceptr recv_at = in_place ? send_at : send_at + page_size_ / 2;
    const CUevent arrived = page_events_[buffer];
    const CUevent emptied = page_events_[16 + buffer];
    if (page >= buffers) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, in, emptied, 0);
    for (std::uint64_t block = 0; block < send_blocks && !sends_from_place; ++block) {
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, send_at + block * bytes, reinterpret_cast<CUdeviceptr>(operation.send) + block * total + begin, bytes, in);
    }
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, arrived, in);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, arrived, 0);
    Operation part = operation;
    part.send = sends_from_place ? operation.send + begin : reinterpret_cast<const unsigned char*>(send_at);
    part.recv = reinterpret_cast<unsigned char*>(recv_at);
    part.count = bytes / element;
    Status status;
    if (!part.reduces()) status = launch_copies(flight, part);
    else if (direct_possible(part, hopper_)) status = launch_direct(flight, part, hopper_);
    else status = launch_exchange(flight, part, Kernels::kStaged);
    if (!status.ok()) return status;
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, arrived, flight.stream);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, out, arrived, 0);
    for (std::uint64_t block = 0; block < recv_blocks; ++block) {
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, reinterpret_cast<CUdeviceptr>(operation.recv) + block * total + begin, recv_at + block * bytes, bytes, out);
    }
    CUstreamBatchMemOpParams done{};
    done.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    done.writeValue.address = reinterpret_cast<CUdeviceptr>(page_word_);
    done.writeValue.value64 = ++pages_queued_;
    STEPCCL_CU(*driver_, kPhase, cuStreamBatchMemOp_v2, out, 1, &done, 0);
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, emptied, out);
  }
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[2], out);
  STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, side_events_[2], 0);
  return {};
}

Status Engine::wait_page(std::uint64_t number, std::uint64_t page, CUstream stream, bool on_host) {
  std::uint64_t target = 0;
  CUevent done = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const Ticket& ticket = tickets_[number % kTickets];
    if (number == 0 || ticket.number != number || ticket.captured) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "the ticket is unknown, too old or of a captured operation");
    if (ticket.pages != 0) {
      if (page >= ticket.pages) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "page " + std::to_string(page) + " of " + std::to_string(ticket.pages));
      target = ticket.page_base + page + 1;
    } else {
      if (page != 0) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "the operation was not paged: it has page 0 only");
      done = lanes_[0].done;  // of this operation or a later one
    }
    const ContextScope scope(*driver_, context_);
    if (!on_host) {
      if (done != nullptr) {
        STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, stream, done, 0);
      } else {
        CUstreamBatchMemOpParams wait{};
        wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        wait.waitValue.address = reinterpret_cast<CUdeviceptr>(page_word_);
        wait.waitValue.value64 = target;
        wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
        STEPCCL_CU(*driver_, kPhase, cuStreamBatchMemOp_v2, stream, 1, &wait, 0);
      }
      return {};
    }
  }
  const ContextScope scope(*driver_, context_);
  const Deadline deadline = Deadline::after_ms(config_.timeout_ms);
  for (;;) {
    if (done != nullptr ? driver_->cuEventQuery(done) == CUDA_SUCCESS : __atomic_load_n(page_word_, __ATOMIC_ACQUIRE) >= target) return {};
    if (auto error = failure()) return *error;
    if (deadline.passed()) return make_error(STEPCCL_ERROR_TIMEOUT, kPhase, "the page does not come");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Status Engine::set_pipeline_depth(std::uint32_t depth) {
  if (depth < 1 || depth > 64) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "depth is not from 1 to 64");
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  return set_own({{STEPCCL_GPU_PIPELINE_DEPTH, depth}});
}

Status Engine::set_sm_budget(std::uint32_t blocks) {
  if (blocks > kMaxBlocks) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "blocks is above " + std::to_string(kMaxBlocks));
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  return set_own({{STEPCCL_GPU_SM_BUDGET, blocks}});
}

Status Engine::receipt(std::uint64_t number, stepccl_cuda_receipt_t& receipt) {
  const std::lock_guard lock(mutex_);
  const Ticket& ticket = tickets_[number % kTickets];
  if (number == 0 || ticket.number != number) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "the ticket is unknown or too old");
  const ContextScope scope(*driver_, context_);
  ReceiptSlot slot{};
  STEPCCL_CU(*driver_, kPhase, cuMemcpyDtoHAsync_v2, &slot, receipts_ + number % kTickets * sizeof slot, sizeof slot, watch_stream_);
  STEPCCL_CU(*driver_, kPhase, cuStreamSynchronize, watch_stream_);
  receipt.path = ticket.path;
  receipt.blocks = ticket.blocks;
  receipt.copies = ticket.copies;
  receipt.runs = slot.runs;
  receipt.sm_ns = slot.sm_ns;
  receipt.link_bytes = ticket.link_bytes;
  return {};
}

}  // namespace stepccl::cuda
