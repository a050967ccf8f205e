// SPDX-License-Identifier: Apache-2.0
// -np: all ranks on this node.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "perf/output.hpp"
#include "perf/run.hpp"

namespace perf {
namespace {

volatile sig_atomic_t stop_signal = 0;
void on_signal(int number) { stop_signal = number; }

int status_of(int wait_status) { return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status); }

}  // namespace

int launch(const Arguments& arguments) {
  stepccl_unique_id_t id;
  const char* address = arguments.rendezvous_address.empty() ? "127.0.0.1" : arguments.rendezvous_address.c_str();
  if (stepccl_unique_id_create(address, &id) != STEPCCL_SUCCESS) {
    stepccl_error_info_t error{};
    error.size = sizeof error;
    stepccl_last_error(nullptr, &error);
    Output(arguments, 0, arguments.processes).error(error);
    return kExitFailed;
  }
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < arguments.processes; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(128 + SIGTERM);
      if (rank != 0) stepccl_unique_id_discard(&id);  // only rank 0 listens
      abort_on_signals(arguments, rank, arguments.processes);
      const int status = run_rank(arguments, rank, arguments.processes, id);
      std::fflush(nullptr);
      _exit(status);
    }
    if (child < 0) {
      std::perror("stepccl-perf: fork");
      for (const pid_t pid : children) kill(pid, SIGTERM);
      return kExitFailed;
    }
    children.push_back(child);
  }
  stepccl_unique_id_discard(&id);

  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART: waitpid returns
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  int worst = kExitOk;
  std::size_t left = children.size();
  bool told = false;
  while (left > 0) {
    int wait_status = 0;
    const pid_t ended = waitpid(-1, &wait_status, 0);
    if (stop_signal != 0 && !told) {
      told = true;
      for (const pid_t pid : children) {
        if (pid > 0) kill(pid, stop_signal);
      }
    }
    if (ended < 0) {
      if (errno == EINTR) continue;
      break;
    }
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      if (children[rank] != ended) continue;
      children[rank] = -1;
      --left;
      if (WIFSIGNALED(wait_status)) std::fprintf(stderr, "stepccl-perf: rank %zu was ended by signal %d\n", rank, WTERMSIG(wait_status));
    }
    if (const int status = status_of(wait_status); status > worst) worst = status;
  }
  return worst;
}

}  // namespace perf
