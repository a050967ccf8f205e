// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

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

}  // namespace

int main(int argc, char** argv) {
  perf::Arguments arguments;
  if (const auto problem = perf::parse(argc, argv, arguments)) {
    std::fprintf(stderr, "stepccl-perf: %s\nTry stepccl-perf --help.\n", problem->c_str());
    return perf::kExitUsage;
  }
  if (arguments.help) return std::fputs(perf::usage(), stdout), perf::kExitOk;
  if (arguments.version) return std::printf("stepccl-perf %s\n", stepccl_version()), perf::kExitOk;

  signal(SIGPIPE, SIG_IGN);
  if (arguments.die_with_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (parent == 1 || getppid() != parent) return 128 + SIGTERM;  // it died before we asked
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
