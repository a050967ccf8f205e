// SPDX-License-Identifier: Apache-2.0
// What publishing costs an operation: two records of the ring, a heartbeat, and a record of the flight recorder that is made at
// the start and changed at the end, as the engine does it.
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/clock.hpp"
#include "telemetry/flight_recorder.hpp"
#include "telemetry/ring_writer.hpp"

namespace {

// Of this thread: what others do on the machine does not count.
std::uint64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

int main() {
  char name[] = "/tmp/stepccl-bench-XXXXXX";
  const std::string directory = mkdtemp(name);
  constexpr int kOperations = 2'000'000;
  double best = 1e9;
  std::uint64_t sequence = 0;
  {
    stepccl::telemetry::RingWriter ring;
    stepccl::telemetry::FlightRecorder flight;
    if (!ring.open(directory, 1, 0, 2, "bench") || !flight.open(directory, 1, 0, 2, "bench")) return 1;
    for (int round = 0; round < 5; ++round) {
      const std::uint64_t begin = cpu_ns();
      for (int i = 0; i < kOperations; ++i) {
        stepccl_op op{};
        op.sequence = ++sequence;
        op.begin_ns = stepccl::monotonic_ns();
        ring.publish(op);
        stepccl_flight_op record{};
        record.sequence = op.sequence;
        record.queued_ns = record.started_ns = op.begin_ns;
        record.state = STEPCCL_FLIGHT_STARTED;
        (void)flight.called(record);
        op.end_ns = stepccl::monotonic_ns();
        ring.publish(op);
        ring.heartbeat(op.end_ns);
        flight.ended(op.sequence, op.end_ns, 0);
      }
      const double each = static_cast<double>(cpu_ns() - begin) / kOperations;
      best = each < best ? each : best;
    }
  }
  std::filesystem::remove_all(directory);
  std::printf("telemetry_ns_per_operation %.1f\n", best);
  return 0;
}
