// SPDX-License-Identifier: Apache-2.0
#include "perf/bench.hpp"

#include <chrono>

#include "perf/data.hpp"

namespace perf {

stepccl_call_t call_options(const Arguments& arguments) {
  stepccl_call_t options = STEPCCL_CALL_INIT;
  options.algorithm = static_cast<std::uint32_t>(arguments.algorithm);
  return options;
}

stepccl_result_t Bench::measure(stepccl_collective_t collective, std::uint64_t bytes, stepccl_datatype_t datatype, stepccl_redop_t redop, Row& row) {
  const auto root = static_cast<std::uint32_t>(arguments_.root < 0 ? 0 : arguments_.root);
  Work work = work_of(collective, bytes, datatype, redop, root, rank_, world_);
  if (datatype == STEPCCL_FLOAT32 && (redop == STEPCCL_SUM || redop == STEPCCL_AVG)) {
    work.wire_roundoff = arguments_.compression == STEPCCL_COMPRESSION_BFLOAT16 ? 0x1p-8 : arguments_.compression == STEPCCL_COMPRESSION_FLOAT16 ? 0x1p-11 : 0;
  }
  row.collective = collective;
  row.count = work.count;
  row.bytes = work.bytes();
  row.datatype = datatype;
  row.redop = redop;
  row.root = is_rooted(work.collective) ? static_cast<std::int32_t>(root) : -1;
  stepccl_result_t result = measure_one(work, {send_, recv_}, row, row.out_of_place);
  // A message has no in-place form: it is measured twice.
  const Buffers again = work.collective == STEPCCL_SEND_RECV ? Buffers{send_, recv_} : in_place(work, recv_);
  if (result == STEPCCL_SUCCESS) result = measure_one(work, again, row, row.in_place);
  if (result != STEPCCL_SUCCESS) return result;
  stepccl_comm_info_t info{};
  info.size = sizeof info;
  result = stepccl_comm_query(comm_, &info);
  row.transport = static_cast<stepccl_transport>(info.transport);
  return result;
}

stepccl_result_t Bench::time(const Work& work, const Buffers& buffers, const stepccl_call_t& options, std::uint32_t warmup, std::uint32_t iterations,
                             double& time_us) {
  stepccl_result_t result = STEPCCL_SUCCESS;
  for (std::uint32_t i = 0; i < warmup && result == STEPCCL_SUCCESS; ++i) result = call(comm_, work, buffers, &options);
  std::int32_t token = 1;
  if (result == STEPCCL_SUCCESS) result = agree(token, STEPCCL_INT32, STEPCCL_SUM);  // all begin together
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0; i < iterations && result == STEPCCL_SUCCESS; ++i) result = call(comm_, work, buffers, &options);
  const auto end = std::chrono::steady_clock::now();
  time_us = std::chrono::duration<double, std::micro>(end - begin).count() / iterations;
  return result;
}

stepccl_result_t Bench::measure_one(const Work& work, const Buffers& buffers, Row& row, Timing& timing) {
  fill_input(work, buffers.send, 1);
  double time_us = 0;
  stepccl_result_t result = time(work, buffers, options_, arguments_.warmup, arguments_.iterations, time_us);
  if (result != STEPCCL_SUCCESS) return result;
  stepccl_comm_info_t info{};
  info.size = sizeof info;
  result = stepccl_comm_query(comm_, &info);
  row.algorithm = work.collective == STEPCCL_SEND_RECV ? STEPCCL_ALGORITHM_AUTO : static_cast<stepccl_algorithm_t>(info.last_algorithm);

  if (result == STEPCCL_SUCCESS) result = agree(time_us, STEPCCL_FLOAT64, STEPCCL_AVG);
  if (result != STEPCCL_SUCCESS) return result;
  timing.time_us = time_us;
  timing.algbw_gbps = time_us > 0 ? static_cast<double>(row.bytes) / time_us * 1e-3 : 0;
  timing.busbw_gbps = timing.algbw_gbps * bus_factor(work.collective, world_);
  if (!arguments_.check) return result;

  // New data and a poisoned output: what the timed iterations left can't pass for a result.
  constexpr std::uint64_t kCheckSeed = 2;
  poison(buffers.recv, work.recv_count() * stepccl_datatype_bytes(work.datatype));
  fill_input(work, buffers.send, kCheckSeed);
  result = call(comm_, work, buffers, &options_);
  if (result != STEPCCL_SUCCESS) return result;
  std::uint64_t wrong = count_wrong_output(work, buffers.recv, kCheckSeed);
  result = agree(wrong, STEPCCL_UINT64, STEPCCL_SUM);
  timing.wrong = wrong;
  return result;
}

}  // namespace perf
