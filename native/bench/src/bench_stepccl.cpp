// SPDX-License-Identifier: Apache-2.0
// This library's side: bench_stepccl --ranks N --transport shm|tcp [--telemetry DIR] [--collectives ...] [--sizes ...]
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "loop.hpp"
#include "stepccl/stepccl.h"

namespace {

struct Arguments {
  std::uint32_t ranks = 2;
  std::uint32_t transport = STEPCCL_TRANSPORT_SHM;
  std::string telemetry;
};

// Between the processes of one run, outside the library under test.
struct Shared {
  double us[64][bench::kBlocks];
};

[[noreturn]] void fail(const char* what, stepccl_comm_t comm) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm, &info);
  std::fprintf(stderr, "bench_stepccl: %s: %s\n", what, info.text);
  std::exit(1);
}

stepccl_result_t call(const std::string& collective, stepccl_comm_t comm, bench::Buffers& buffers, std::size_t bytes, std::uint32_t world) {
  const float* send = buffers.send.data();
  float* recv = buffers.recv.data();
  const std::size_t count = bytes / sizeof(float);
  if (collective == "all_reduce") return stepccl_all_reduce(comm, send, recv, count, STEPCCL_FLOAT32, STEPCCL_SUM, nullptr);
  if (collective == "all_gather") return stepccl_all_gather(comm, send, recv, count / world, STEPCCL_FLOAT32, nullptr);
  if (collective == "all_to_all") return stepccl_all_to_all(comm, send, recv, count / world, STEPCCL_FLOAT32, nullptr);
  if (collective == "broadcast") return stepccl_broadcast(comm, recv, recv, count, STEPCCL_FLOAT32, 0, nullptr);
  std::fprintf(stderr, "bench_stepccl: no collective \"%s\"\n", collective.c_str());
  std::exit(2);
}

void run_rank(const Arguments& arguments, const bench::Options& options, std::uint32_t rank, const stepccl_unique_id_t& id, Shared& shared) {
  stepccl_config_t config = STEPCCL_CONFIG_INIT;
  config.transports = STEPCCL_TRANSPORT_BIT(arguments.transport);
  config.telemetry_dir = arguments.telemetry.c_str();
  config.job_name = "bench";
  stepccl_comm_t comm = nullptr;
  if (stepccl_comm_init_rank(&comm, arguments.ranks, &id, rank, &config) != STEPCCL_SUCCESS) fail("init", nullptr);
  const auto checked = [&](stepccl_result_t result) {
    if (result != STEPCCL_SUCCESS) fail("operation", comm);
  };
  float one = 1;
  float sum = 0;
  const auto barrier = [&] { checked(stepccl_all_reduce(comm, &one, &sum, 1, STEPCCL_FLOAT32, STEPCCL_SUM, nullptr)); };
  for (const std::size_t bytes : options.sizes) {
    bench::Buffers buffers(bytes);
    for (const std::string& collective : options.collectives) {
      if (!bench::has_blocks(collective, bytes, arguments.ranks)) continue;
      bench::run_blocks(
          bytes, options.scale_percent, [&] { checked(call(collective, comm, buffers, bytes, arguments.ranks)); }, barrier,
          [&](int block, double us) { shared.us[rank][block] = us; });
      barrier();
      if (rank != 0) continue;
      double slowest[bench::kBlocks] = {};
      for (std::uint32_t r = 0; r < arguments.ranks; ++r) {
        for (int block = 0; block < bench::kBlocks; ++block) slowest[block] = std::max(slowest[block], shared.us[r][block]);
      }
      bench::print_sample(collective, bytes, slowest);
    }
  }
  if (stepccl_comm_destroy(comm) != STEPCCL_SUCCESS) fail("destroy", nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--ranks") arguments.ranks = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (name == "--transport") arguments.transport = value == "tcp" ? STEPCCL_TRANSPORT_TCP : STEPCCL_TRANSPORT_SHM;
    if (name == "--telemetry") arguments.telemetry = value;
  }
  const bench::Options options = bench::parse_options(argc, argv);
  if (arguments.ranks < 1 || arguments.ranks > 64 || options.sizes.empty()) {
    std::fprintf(stderr, "usage: bench_stepccl --ranks 1..64 --transport shm|tcp --sizes BYTES,... [--telemetry DIR] [--collectives NAME,...] [--scale PERCENT]\n");
    return 2;
  }
  void* map = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return 1;
  stepccl_unique_id_t id{};
  if (stepccl_unique_id_create("127.0.0.1", &id) != STEPCCL_SUCCESS) fail("unique id", nullptr);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (std::uint32_t rank = 1; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) return 1;
      stepccl_unique_id_discard(&id);
      run_rank(arguments, options, rank, id, *static_cast<Shared*>(map));
      return 0;
    }
    children.push_back(child);
  }
  run_rank(arguments, options, 0, id, *static_cast<Shared*>(map));
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}
