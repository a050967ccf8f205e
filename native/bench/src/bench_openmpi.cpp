// SPDX-License-Identifier: Apache-2.0
// The peer's side, under mpirun: bench_openmpi [--collectives ...] [--sizes ...]
#include <mpi.h>

#include "loop.hpp"

namespace {

void call(const std::string& collective, bench::Buffers& buffers, std::size_t bytes, int world) {
  const int count = static_cast<int>(bytes / sizeof(float));
  const int block = count / world;
  if (collective == "all_reduce") {
    MPI_Allreduce(buffers.send.data(), buffers.recv.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (collective == "all_gather") {
    MPI_Allgather(buffers.send.data(), block, MPI_FLOAT, buffers.recv.data(), block, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (collective == "all_to_all") {
    MPI_Alltoall(buffers.send.data(), block, MPI_FLOAT, buffers.recv.data(), block, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (collective == "broadcast") {
    MPI_Bcast(buffers.recv.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else {
    std::fprintf(stderr, "bench_openmpi: no collective \"%s\"\n", collective.c_str());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const bench::Options options = bench::parse_options(argc, argv);
  for (const std::size_t bytes : options.sizes) {
    bench::Buffers buffers(bytes);
    for (const std::string& collective : options.collectives) {
      if (!bench::has_blocks(collective, bytes, static_cast<std::size_t>(world))) continue;
      double mine[bench::kBlocks] = {};
      bench::run_blocks(
          bytes, options.scale_percent, [&] { call(collective, buffers, bytes, world); }, [] { MPI_Barrier(MPI_COMM_WORLD); },
          [&](int block, double us) { mine[block] = us; });
      double slowest[bench::kBlocks] = {};
      MPI_Reduce(mine, slowest, bench::kBlocks, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank == 0) bench::print_sample(collective, bytes, slowest);
    }
  }
  MPI_Finalize();
  return 0;
}
