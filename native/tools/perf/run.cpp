// SPDX-License-Identifier: Apache-2.0
#include "perf/run.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "perf/bench.hpp"
#include "perf/calibrate.hpp"
#include "perf/output.hpp"

namespace perf {
namespace {

// The communicator that a signal has to abort.
std::mutex signal_mutex;
stepccl_comm_t signal_comm = nullptr;
bool signal_parted = false;  // the work is over and the process is about to end by itself
std::atomic<int> signal_number{0};

stepccl_error_info_t last_error(stepccl_comm_t comm) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm, &info);
  return info;
}

stepccl_config_t config_of(const Arguments& arguments) {
  stepccl_config_t config = STEPCCL_CONFIG_INIT;
  config.timeout_ms = arguments.timeout_ms;
  config.chunk_bytes = arguments.chunk_bytes;
  config.pipeline_depth = arguments.pipeline_depth;
  config.compression = arguments.compression;
  config.page_bytes = arguments.page_bytes;
  config.job_name = arguments.job_name.c_str();
  if (arguments.transport != STEPCCL_TRANSPORT_NONE) config.transports = STEPCCL_TRANSPORT_BIT(arguments.transport);
  if (!arguments.net_interface.empty()) config.net_interface = arguments.net_interface.c_str();
  return config;
}

void report_no_memory(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, const Output& output) {
  stepccl_error_info_t error{};
  error.code = STEPCCL_ERROR_OUT_OF_MEMORY;
  error.rank = static_cast<std::int32_t>(rank);
  error.peer = -1;
  std::snprintf(error.text, sizeof error.text, "R401 out_of_memory: no memory for two buffers of %llu bytes", static_cast<unsigned long long>(arguments.max_bytes));
  output.error(error);
  stepccl_comm_abort(comm);
}

// f(bytes) for every size of the command line, until it gives false.
template <class F>
bool for_sizes(const Arguments& arguments, stepccl_collective_t collective, F&& f) {
  if (collective == STEPCCL_BARRIER) return f(std::uint64_t{0});
  for (std::uint64_t bytes = arguments.min_bytes; bytes <= arguments.max_bytes;) {
    if (!f(bytes)) return false;
    if (bytes > UINT64_MAX / arguments.step_factor) break;
    bytes = bytes == 0 ? 1 : bytes * arguments.step_factor;
  }
  return true;
}

// Prints what would run at rank 0; false after an error.
bool explain_all(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, const Output& output) {
  const stepccl_call_t options = call_options(arguments);
  return std::all_of(arguments.collectives.begin(), arguments.collectives.end(), [&](stepccl_collective_t collective) {
    return for_sizes(arguments, collective, [&](std::uint64_t bytes) {
      const Work work = work_of(collective, bytes, arguments.datatypes.front(), arguments.redops.front(), 0, rank, world);
      char text[4096];
      stepccl_algorithm_t chosen{};
      if (stepccl_comm_explain(comm, collective, work.bytes(), &options, &chosen, text, sizeof text) != STEPCCL_SUCCESS) {
        output.error(last_error(comm));
        return false;
      }
      if (rank == 0) output.explanation(collective, work.bytes(), chosen, text);
      return true;
    });
  });
}

// All sizes, types and reductions. Prints rows at rank 0; false after an error.
bool measure_all(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, const Output& output,
                 std::uint64_t& wrong) {
  const Memory send(arguments.max_bytes);
  const Memory recv(arguments.max_bytes);
  if (!send.ok() || !recv.ok()) {
    report_no_memory(arguments, comm, rank, output);
    return false;
  }
  if (arguments.root >= static_cast<std::int32_t>(world)) {
    stepccl_error_info_t error{};
    error.code = STEPCCL_ERROR_INVALID_ARGUMENT;
    error.rank = static_cast<std::int32_t>(rank);
    error.peer = -1;
    std::snprintf(error.text, sizeof error.text, "R101 invalid_argument: root %d is not below the world size %u", arguments.root, world);
    output.error(error);
    return false;
  }
  Bench bench(arguments, comm, rank, world, send.data(), recv.data());
  double busbw = 0;
  std::uint32_t measured = 0;
  const auto measure = [&](stepccl_collective_t collective, stepccl_datatype_t datatype, stepccl_redop_t redop) {
    return for_sizes(arguments, collective, [&](std::uint64_t bytes) {
      Row row;
      if (bench.measure(collective, bytes, datatype, redop, row) != STEPCCL_SUCCESS) {
        output.error(last_error(comm));
        return false;
      }
      wrong += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
      busbw += row.out_of_place.busbw_gbps + row.in_place.busbw_gbps;
      measured += 2;
      if (rank == 0) output.row(row);
      return true;
    });
  };
  const std::vector<stepccl_redop_t> only_one{STEPCCL_SUM};
  for (const stepccl_collective_t collective : arguments.collectives) {
    for (const stepccl_datatype_t datatype : arguments.datatypes) {
      for (const stepccl_redop_t redop : is_reducing(collective) ? arguments.redops : only_one) {
        if (!measure(collective, datatype, redop)) return false;
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
  output.start(info);

  std::uint64_t wrong = 0;
  bool good = false;
  if (!arguments.calibrate_file.empty()) {
    good = calibrate(arguments, comm, rank, world, output);
  } else if (arguments.explain) {
    good = explain_all(arguments, comm, rank, world, output);
  } else {
    good = measure_all(arguments, comm, rank, world, output, wrong);
  }
  int status = good ? kExitOk : kExitFailed;
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
