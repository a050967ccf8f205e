// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "perf/launcher.hpp"
#include "perf/output.hpp"
#include "perf/run.hpp"

namespace {

int fail(const perf::Output& output) {
  stepccl_error_info_t error{};
  error.size = sizeof error;
  stepccl_last_error(nullptr, &error);
  output.error(error);
  output.end(perf::kExitFailed);
  return perf::kExitFailed;
}

int usage_problem(const std::string& problem) {
  std::fprintf(stderr, "stepccl-perf: %s\nTry stepccl-perf --help.\n", problem.c_str());
  return perf::kExitUsage;
}

// One rank of a job that mpirun, srun or torchrun has started.
int run_launched(const perf::Launched& job, const perf::Lookup& lookup, perf::Arguments& arguments) {
  arguments.rank = job.rank;
  arguments.world_size = job.world;
  perf::abort_on_signals(arguments, job.rank, job.world);
  stepccl_unique_id_t id;
  const std::uint32_t timeout_ms = arguments.timeout_ms != 0 ? arguments.timeout_ms : 30'000;
  if (const auto problem = perf::rendezvous(job, lookup, timeout_ms, id)) {
    stepccl_error_info_t error{};
    error.code = STEPCCL_ERROR_RENDEZVOUS;
    error.rank = static_cast<std::int32_t>(job.rank);
    error.peer = -1;
    std::snprintf(error.text, sizeof error.text, "R304 rendezvous: under %s: %s", job.launcher, problem->c_str());
    const perf::Output output(arguments, job.rank, job.world);
    output.error(error);
    output.end(perf::kExitFailed);
    return perf::kExitFailed;
  }
  const int status = perf::run_rank(arguments, job.rank, job.world, id);
  perf::forget_rendezvous(job);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  perf::Arguments arguments;
  if (const auto problem = perf::parse(argc, argv, arguments)) {
    return usage_problem(*problem);
  }
  if (arguments.help) return std::fputs(perf::usage(), stdout), perf::kExitOk;
  if (arguments.version) return std::printf("stepccl-perf %s\n", stepccl_version()), perf::kExitOk;

  signal(SIGPIPE, SIG_IGN);
  if (arguments.die_with_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (parent == 1 || getppid() != parent) return 128 + SIGTERM;  // it died before we asked
  }
  if (arguments.by_launcher) {
    const perf::Lookup lookup = [](const char* name) { return std::getenv(name); };
    std::string problem;
    if (const auto job = perf::launched_by(lookup, problem)) return run_launched(*job, lookup, arguments);
    if (!problem.empty()) return usage_problem(problem);
  }
  if (arguments.processes != 0) return perf::launch(arguments);

  perf::abort_on_signals(arguments, arguments.rank, arguments.world_size);
  const perf::Output output(arguments, arguments.rank, arguments.world_size);
  stepccl_unique_id_t id;
  if (arguments.rank == 0) {
    const char* address = arguments.rendezvous_address.empty() ? nullptr : arguments.rendezvous_address.c_str();
    if (stepccl_unique_id_create(address, &id) != STEPCCL_SUCCESS) return fail(output);
    if (arguments.rendezvous_listen) output.unique_id(id);
  } else {
    std::string line;
    // Never more of a stranger's line than an id has.
    for (int c = 0; line.size() <= 2 * sizeof id.bytes && (c = std::cin.get()) != EOF && c != '\n';) {
      if (c != '\r') line.push_back(static_cast<char>(c));
    }
    if (!perf::from_hex(line, id)) {
      std::fprintf(stderr, "stepccl-perf: the first line of standard input is no unique id\n");
      return perf::kExitUsage;
    }
  }
  return perf::run_rank(arguments, arguments.rank, arguments.world_size, id);
}
