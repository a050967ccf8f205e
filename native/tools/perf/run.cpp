// SPDX-License-Identifier: Apache-2.0
#include "perf/run.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

#include "perf/data.hpp"
#include "perf/output.hpp"

namespace perf {
namespace {

// The communicator that a signal has to abort.
std::mutex signal_mutex;
stepccl_comm_t signal_comm = nullptr;
bool signal_parted = false;  // the work is over and the process is about to end by itself
std::atomic<int> signal_number{0};

// Page-aligned and touched, so that no iteration pays for page faults.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes == 0 ? 1 : bytes) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  }
  ~Memory() {
    if (ok()) ::munmap(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] bool ok() const { return data_ != MAP_FAILED; }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_;
  std::size_t bytes_;
};

// What every rank measures; each call returns SUCCESS or the first error.
class Bench {
 public:
  Bench(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, void* send, void* recv)
      : arguments_(arguments), comm_(comm), rank_(rank), world_(world), send_(send), recv_(recv) {}

  stepccl_result_t measure(std::uint64_t bytes, stepccl_datatype_t datatype, stepccl_redop_t redop, Row& row) {
    const std::size_t element = stepccl_datatype_bytes(datatype);
    row.count = bytes / element;
    row.bytes = row.count * element;
    row.datatype = datatype;
    row.redop = redop;
    row.root = arguments_.root;
    stepccl_result_t result = measure_one(row, send_, recv_, row.out_of_place);
    if (result == STEPCCL_SUCCESS) result = measure_one(row, recv_, recv_, row.in_place);
    if (result != STEPCCL_SUCCESS) return result;
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    result = stepccl_comm_query(comm_, &info);
    row.transport = static_cast<stepccl_transport>(info.transport);
    return result;
  }

 private:
  stepccl_result_t call(const Row& row, const void* send, void* recv) {
    return stepccl_all_reduce(comm_, send, recv, row.count, row.datatype, row.redop, nullptr);
  }

  // Over all ranks.
  template <class T>
  stepccl_result_t agree(T& value, stepccl_datatype_t datatype, stepccl_redop_t redop) {
    return stepccl_all_reduce(comm_, &value, &value, 1, datatype, redop, nullptr);
  }

  stepccl_result_t measure_one(Row& row, void* send, void* recv, Timing& timing) {
    stepccl_result_t result = STEPCCL_SUCCESS;
    fill(send, row.count, row.datatype, row.redop, rank_, 1);
    for (std::uint32_t i = 0; i < arguments_.warmup && result == STEPCCL_SUCCESS; ++i) result = call(row, send, recv);
    std::int32_t token = 1;
    if (result == STEPCCL_SUCCESS) result = agree(token, STEPCCL_INT32, STEPCCL_SUM);  // all begin together
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < arguments_.iterations && result == STEPCCL_SUCCESS; ++i) result = call(row, send, recv);
    const auto end = std::chrono::steady_clock::now();
    if (result != STEPCCL_SUCCESS) return result;
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    result = stepccl_comm_query(comm_, &info);
    row.algorithm = static_cast<stepccl_algorithm_t>(info.last_algorithm);

    double time_us = std::chrono::duration<double, std::micro>(end - begin).count() / arguments_.iterations;
    if (result == STEPCCL_SUCCESS) result = agree(time_us, STEPCCL_FLOAT64, STEPCCL_AVG);
    if (result != STEPCCL_SUCCESS) return result;
    timing.time_us = time_us;
    timing.algbw_gbps = time_us > 0 ? static_cast<double>(row.bytes) / time_us * 1e-3 : 0;
    timing.busbw_gbps = timing.algbw_gbps * 2 * (world_ - 1) / world_;
    if (!arguments_.check) return result;

    // New data and a poisoned output: what the timed iterations left can't pass for a result.
    constexpr std::uint64_t kCheckSeed = 2;
    if (recv != send) poison(recv, row.bytes);
    fill(send, row.count, row.datatype, row.redop, rank_, kCheckSeed);
    result = call(row, send, recv);
    if (result != STEPCCL_SUCCESS) return result;
    std::uint64_t wrong = count_wrong(recv, row.count, row.datatype, row.redop, world_, kCheckSeed);
    result = agree(wrong, STEPCCL_UINT64, STEPCCL_SUM);
    timing.wrong = wrong;
    return result;
  }

  const Arguments& arguments_;
  stepccl_comm_t comm_;
  std::uint32_t rank_;
  std::uint32_t world_;
  void* send_;
  void* recv_;
};

stepccl_error_info_t last_error(stepccl_comm_t comm) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm, &info);
  return info;
}

stepccl_config_t config_of(const Arguments& arguments) {
  stepccl_config_t config = STEPCCL_CONFIG_INIT;
  config.timeout_ms = arguments.timeout_ms;
  config.algorithm = static_cast<std::uint32_t>(arguments.algorithm);
  config.chunk_bytes = arguments.chunk_bytes;
  config.pipeline_depth = arguments.pipeline_depth;
  config.job_name = arguments.job_name.c_str();
  if (arguments.transport != STEPCCL_TRANSPORT_NONE) config.transports = STEPCCL_TRANSPORT_BIT(arguments.transport);
  if (!arguments.net_interface.empty()) config.net_interface = arguments.net_interface.c_str();
  return config;
}

// All sizes, types and reductions. Prints rows at rank 0; false after an error.
bool measure_all(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, const Output& output,
                 std::uint64_t& wrong) {
  const Memory send(arguments.max_bytes);
  const Memory recv(arguments.max_bytes);
  if (!send.ok() || !recv.ok()) {
    stepccl_error_info_t error{};
    error.code = STEPCCL_ERROR_OUT_OF_MEMORY;
    error.rank = static_cast<std::int32_t>(rank);
    error.peer = -1;
    std::snprintf(error.text, sizeof error.text, "R401 out_of_memory: no memory for two buffers of %llu bytes", static_cast<unsigned long long>(arguments.max_bytes));
    output.error(error);
    stepccl_comm_abort(comm);
    return false;
  }
  Bench bench(arguments, comm, rank, world, send.data(), recv.data());
  double busbw = 0;
  std::uint32_t measured = 0;
  for (const stepccl_datatype_t datatype : arguments.datatypes) {
    for (const stepccl_redop_t redop : arguments.redops) {
      for (std::uint64_t bytes = arguments.min_bytes; bytes <= arguments.max_bytes;) {
        Row row;
        if (bench.measure(bytes, datatype, redop, row) != STEPCCL_SUCCESS) {
          output.error(last_error(comm));
          return false;
        }
        wrong += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
        busbw += row.out_of_place.busbw_gbps + row.in_place.busbw_gbps;
        measured += 2;
        if (rank == 0) output.row(row);
        if (bytes > UINT64_MAX / arguments.step_factor) break;
        bytes = bytes == 0 ? 1 : bytes * arguments.step_factor;
      }
    }
  }
  if (rank == 0) output.summary(arguments.check ? std::optional(wrong) : std::nullopt, measured == 0 ? 0 : busbw / measured);
  return true;
}

}  // namespace

int run_rank(const Arguments& arguments, std::uint32_t rank, std::uint32_t world, const stepccl_unique_id_t& id) {
  const Output output(arguments, rank, world);
  const stepccl_config_t config = config_of(arguments);
  stepccl_comm_t comm = nullptr;
  if (stepccl_comm_init_rank(&comm, world, &id, rank, &config) != STEPCCL_SUCCESS) {
    output.error(last_error(nullptr));
    output.end(kExitFailed);
    return kExitFailed;
  }
  {
    const std::lock_guard lock(signal_mutex);
    signal_comm = comm;
  }
  stepccl_comm_info_t info{};
  info.size = sizeof info;
  (void)stepccl_comm_query(comm, &info);
  output.start(static_cast<stepccl_transport>(info.transport));

  std::uint64_t wrong = 0;
  int status = measure_all(arguments, comm, rank, world, output, wrong) ? kExitOk : kExitFailed;
  if (status == kExitOk && wrong != 0) status = kExitWrong;
  {
    const std::lock_guard lock(signal_mutex);
    signal_comm = nullptr;
    signal_parted = true;
  }
  stepccl_comm_destroy(comm);
  if (const int number = signal_number.load(); number != 0 && status != kExitOk) status = 128 + number;
  output.end(status);
  return status;
}

void abort_on_signals(const Arguments& arguments, std::uint32_t rank, std::uint32_t world) {
  static sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([&arguments, rank, world] {
    while (true) {
      int number = 0;
      if (sigwait(&signals, &number) != 0) return;
      const bool again = signal_number.exchange(number) != 0;
      const std::lock_guard lock(signal_mutex);
      if (signal_comm != nullptr && !again) {
        stepccl_comm_abort(signal_comm);
        continue;
      }
      if (signal_parted && !again) std::this_thread::sleep_for(std::chrono::seconds(2));  // its own end tells more
      if (!again && !signal_parted) {
        stepccl_error_info_t error{};
        error.code = STEPCCL_ERROR_ABORTED;
        error.rank = static_cast<std::int32_t>(rank);
        error.peer = -1;
        std::snprintf(error.text, sizeof error.text, "R205 aborted: ended by signal %d before all ranks had met", number);
        const Output output(arguments, rank, world);
        output.error(error);
        output.end(128 + number);
      }
      _exit(128 + number);
    }
  }).detach();
}

}  // namespace perf
