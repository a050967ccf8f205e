// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <system_error>

namespace stepccl {
namespace {

struct ResultRow {
  stepccl_result_t result;
  const char* code;
  const char* name;
  const char* help;
};

constexpr ResultRow kResults[] = {
    {STEPCCL_SUCCESS, "R000", "success", "Nothing to do."},
    {STEPCCL_ERROR_INVALID_ARGUMENT, "R101", "invalid_argument", "Correct the argument that the message names."},
    {STEPCCL_ERROR_INVALID_USAGE, "R102", "invalid_usage",
     "Run one operation at a time per communicator, and none after an error or after destroy."},
    {STEPCCL_ERROR_UNSUPPORTED, "R103", "unsupported",
     "Choose an algorithm, datatype or transport that this version has, or leave the choice to it (auto)."},
    {STEPCCL_ERROR_INVALID_CONFIGURATION, "R104", "invalid_configuration",
     "Correct the setting or environment variable that the message names."},
    {STEPCCL_ERROR_PEER_CLOSED, "R201", "peer_closed",
     "Look at the log and exit status of the rank that is named: its process ended or closed its connections."},
    {STEPCCL_ERROR_PEER_UNREACHABLE, "R202", "peer_unreachable",
     "Check that the named rank runs, that the address belongs to its data network, and that no firewall drops the port."},
    {STEPCCL_ERROR_TIMEOUT, "R203", "timeout",
     "See whether the named ranks run and call the same operation; raise the timeout if they are only slow."},
    {STEPCCL_ERROR_MISMATCH, "R204", "mismatch",
     "Make all ranks call the same operation with the same count, datatype, reduction and algorithm, in the same order."},
    {STEPCCL_ERROR_ABORTED, "R205", "aborted", "Nothing: this rank was told to stop."},
    {STEPCCL_ERROR_PEER_FAILED, "R206", "peer_failed", "Look at the error of the rank that is named: it stopped the operation for all."},
    {STEPCCL_ERROR_PEER_SILENT, "R207", "peer_silent",
     "Check that the named rank's node is powered and reachable and that its process is not stopped."},
    {STEPCCL_ERROR_AUTHENTICATION, "R301", "authentication",
     "Start all ranks with the same unique id; an id from an earlier start of the job is not valid any more."},
    {STEPCCL_ERROR_VERSION, "R302", "version", "Install the same version of the runtime on all nodes."},
    {STEPCCL_ERROR_PROTOCOL, "R303", "protocol",
     "Check that nothing else connects to or answers on the job's port; if it repeats, report it with the message."},
    {STEPCCL_ERROR_RENDEZVOUS, "R304", "rendezvous",
     "Give rank 0 an address of its own node and a free port, and leave enough file descriptors."},
    {STEPCCL_ERROR_RANK_CONFLICT, "R305", "rank_conflict",
     "Give each process its own rank below the world size, and all of them the same world size."},
    {STEPCCL_ERROR_OUT_OF_MEMORY, "R401", "out_of_memory", "Use smaller buffers or free memory on this node (also in /dev/shm)."},
    {STEPCCL_ERROR_SYSTEM, "R402", "system", "See the system call and error that the message names."},
    {STEPCCL_ERROR_MEMLOCK, "R403", "memlock",
     "Raise the locked-memory limit: 'ulimit -l unlimited', or LimitMEMLOCK=infinity in the service's unit."},
    {STEPCCL_ERROR_TRANSPORT_UNAVAILABLE, "R501", "transport_unavailable",
     "Install or bring up what the message names, or choose another transport."},
    {STEPCCL_ERROR_TRANSPORT_FAILED, "R502", "transport_failed",
     "Check the link, the port state and the GID of both ranks that are named."},
    {STEPCCL_ERROR_NO_GPU, "R601", "no_gpu",
     "Check with nvidia-smi that the driver runs and shows the GPU, and that the runtime was built with USE_CUDA."},
    {STEPCCL_ERROR_NO_PEER_ACCESS, "R602", "no_peer_access",
     "Run the named ranks on GPUs of one host that reach each other (nvidia-smi topo -p2p r), or use host memory."},
    {STEPCCL_ERROR_DRIVER_TOO_OLD, "R603", "driver_too_old", "Install the NVIDIA driver of CUDA 12.0 or later."},
    {STEPCCL_ERROR_WRONG_DEVICE, "R604", "wrong_device",
     "Give each rank its own GPU, and pass memory of that GPU (or pinned host memory with paging on)."},
    {STEPCCL_ERROR_GPU_OUT_OF_MEMORY, "R605", "gpu_out_of_memory",
     "Free GPU memory, raise the pool's share (hbm_cache_ratio), or turn paging on."},
    {STEPCCL_ERROR_CUDA, "R606", "cuda", "See the CUDA call and error that the message names; dmesg shows the driver's Xid if the GPU failed."},
    {STEPCCL_ERROR_INTERNAL, "R901", "internal", "Report this with the message and the version."},
};

const ResultRow* find(stepccl_result_t result) noexcept {
  for (const ResultRow& row : kResults) {
    if (row.result == result) return &row;
  }
  return nullptr;
}

}  // namespace

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

std::string describe(const Error& error, std::int32_t rank) {
  std::string text = stepccl_result_code(error.code);
  text += ' ';
  text += stepccl_result_name(error.code);
  text += ':';
  if (error.peer >= 0) text += " rank " + std::to_string(error.peer);
  if (error.phase != STEPCCL_PHASE_NONE) text += std::string(" during ") + stepccl_phase_name(error.phase);
  if (error.transport != STEPCCL_TRANSPORT_NONE) text += std::string(" over ") + stepccl_transport_name(error.transport);
  if (error.peer >= 0 || error.phase != STEPCCL_PHASE_NONE || error.transport != STEPCCL_TRANSPORT_NONE) text += ':';
  text += ' ' + error.cause;
  if (rank >= 0) text += " (seen by rank " + std::to_string(rank) + ")";
  return text;
}

}  // namespace stepccl

extern "C" {

const char* stepccl_result_code(stepccl_result_t result) noexcept {
  const auto* row = stepccl::find(result);
  return row != nullptr ? row->code : "R???";
}

const char* stepccl_result_name(stepccl_result_t result) noexcept {
  const auto* row = stepccl::find(result);
  return row != nullptr ? row->name : "unknown";
}

const char* stepccl_result_help(stepccl_result_t result) noexcept {
  const auto* row = stepccl::find(result);
  return row != nullptr ? row->help : "Report this with the message and the version.";
}

const char* stepccl_phase_name(stepccl_phase_t phase) noexcept {
  switch (phase) {
    case STEPCCL_PHASE_NONE: return "none";
    case STEPCCL_PHASE_ARGUMENTS: return "arguments";
    case STEPCCL_PHASE_RENDEZVOUS: return "rendezvous";
    case STEPCCL_PHASE_CONNECT: return "connect";
    case STEPCCL_PHASE_REGISTER: return "register";
    case STEPCCL_PHASE_TRANSFER: return "transfer";
    case STEPCCL_PHASE_FINISH: return "finish";
  }
  return "unknown";
}

}  // extern "C"
