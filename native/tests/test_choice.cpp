// SPDX-License-Identifier: Apache-2.0
// What decides which algorithm runs: the environment's lists, the calibration, the settings that rank 0 hands on.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/calibration.hpp"
#include "core/choice_policy.hpp"
#include "core/planner.hpp"
#include "perf/launcher.hpp"
#include "ranks.hpp"

using namespace stepccl;

namespace {

constexpr std::uint32_t bit(stepccl_algorithm_t algorithm) { return 1u << algorithm; }

std::uint32_t allowed(const std::string& text, stepccl_collective_t collective, bool foreign = false) {
  ChoicePolicy policy;
  Status status = read_algorithms("STEPCCL_ALGO", text, foreign, policy);
  CHECK_MESSAGE(status.ok(), text);
  return policy.algorithms[collective];
}

std::string refusal(const std::string& text, bool foreign = false) {
  ChoicePolicy policy;
  Status status = read_algorithms("STEPCCL_ALGO", text, foreign, policy);
  return status.ok() ? "" : status.error().cause;
}

const char* const kCalibration = R"({"version": 1, "gamma_us_per_byte": 2e-4, "links": {"shm": {"alpha_us": 0.7, "beta_us_per_byte": 1e-4, "overhead_us": 0.1}},
  "corrections": [{"collective": "all_reduce", "algorithm": "ring", "transport": "shm", "log2_bytes": 10, "factor": 2},
                  {"collective": "all_reduce", "algorithm": "ring", "transport": "shm", "log2_bytes": 20, "factor": 4},
                  {"collective": "all_reduce", "algorithm": "tree", "transport": "tcp", "log2_bytes": 3, "factor": 0.5}]})";

}  // namespace

TEST_CASE("STEPCCL_ALGO takes lists, exclusions and collectives") {
  CHECK(allowed("ring", STEPCCL_ALL_REDUCE) == bit(STEPCCL_ALGORITHM_RING));
  CHECK(allowed("Ring,TREE", STEPCCL_ALL_REDUCE) == (bit(STEPCCL_ALGORITHM_RING) | bit(STEPCCL_ALGORITHM_TREE)));
  CHECK(allowed("ring", STEPCCL_ALL_TO_ALL) == 0);  // has none: all
  const std::uint32_t without = allowed("^ring", STEPCCL_ALL_REDUCE);
  CHECK((without & bit(STEPCCL_ALGORITHM_RING)) == 0);
  CHECK((without & bit(STEPCCL_ALGORITHM_TREE)) != 0);
  CHECK(allowed("ring;allreduce:tree;broadcast:^ring", STEPCCL_ALL_REDUCE) == bit(STEPCCL_ALGORITHM_TREE));
  CHECK(allowed("allreduce:tree;ring", STEPCCL_ALL_REDUCE) == bit(STEPCCL_ALGORITHM_TREE));  // the specific one wins wherever it stands
  CHECK((allowed("ring;allreduce:tree;broadcast:^ring", STEPCCL_BROADCAST) & bit(STEPCCL_ALGORITHM_RING)) == 0);
  CHECK(allowed("ring;allreduce:tree;broadcast:^ring", STEPCCL_ALL_GATHER) == bit(STEPCCL_ALGORITHM_RING));
  CHECK(allowed("auto", STEPCCL_ALL_REDUCE) == 0);
  CHECK(allowed("", STEPCCL_ALL_REDUCE) == 0);
  CHECK(refusal("rings").find("\"rings\" is no algorithm") != std::string::npos);
  CHECK(refusal("allreduces:ring").find("is no collective") != std::string::npos);
  CHECK(refusal("all_to_all:ring").find("nothing is left for all_to_all") != std::string::npos);
  CHECK(refusal("^").find("names no algorithm") != std::string::npos);
  CHECK(refusal("collnetdirect") != "");
}

TEST_CASE("NCCL_ALGO's names mean what they mean here, and others' are skipped") {
  CHECK(allowed("Tree", STEPCCL_ALL_REDUCE, true) == (bit(STEPCCL_ALGORITHM_TREE) | bit(STEPCCL_ALGORITHM_DOUBLE_BINARY_TREE)));
  CHECK(allowed("CollnetDirect,NVLS,Ring", STEPCCL_ALL_REDUCE, true) == bit(STEPCCL_ALGORITHM_RING));
  CHECK(allowed("allreduce:NVLSTree", STEPCCL_ALL_REDUCE, true) == 0);
  CHECK(allowed("^PAT", STEPCCL_ALL_GATHER, true) != 0);
  CHECK((allowed("^PAT", STEPCCL_ALL_GATHER, true) & bit(STEPCCL_ALGORITHM_BRUCK)) == 0);
  CHECK(refusal("Spiral", true) != "");
}

TEST_CASE("STEPCCL_PROTO takes the same grammar") {
  ChoicePolicy policy;
  CHECK(read_protocols("STEPCCL_PROTO", "LL128,Simple;allreduce:^LL", policy).ok());
  CHECK(policy.protocols[STEPCCL_BROADCAST] == (kProtocolLL128 | kProtocolSimple));
  CHECK(policy.protocols[STEPCCL_ALL_REDUCE] == (kProtocolLL128 | kProtocolSimple));
  CHECK_FALSE(read_protocols("STEPCCL_PROTO", "complex", policy).ok());
}

TEST_CASE("a calibration is read, its corrections lie between their points, and a broken one changes nothing") {
  EngineSettings settings;
  REQUIRE(parse_calibration(kCalibration, settings).ok());
  CHECK(settings.calibrated == 1);
  CHECK(settings.links[STEPCCL_TRANSPORT_SHM].alpha_us == 0.7);
  CHECK(settings.links[STEPCCL_TRANSPORT_TCP].alpha_us == EngineSettings::default_links()[STEPCCL_TRANSPORT_TCP].alpha_us);
  const auto factor = [&](double bytes) { return settings.correction(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, STEPCCL_TRANSPORT_SHM, bytes); };
  CHECK(factor(1) == 2);
  CHECK(factor(1024) == 2);
  CHECK(factor(32768) == doctest::Approx(3));
  CHECK(factor(1 << 20) == 4);
  CHECK(factor(1e12) == 4);
  CHECK(settings.correction(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, STEPCCL_TRANSPORT_TCP, 1024) == 1);
  CHECK(settings.correction(STEPCCL_BARRIER, STEPCCL_ALGORITHM_DISSEMINATION, STEPCCL_TRANSPORT_SHM, 0) == 1);
  for (const char* broken : {"", "[]", "{}", R"({"version": 2})", R"({"version": 1, "gamma_us_per_byte": -1, "links": {}, "corrections": []})",
                             R"({"version": 1, "gamma_us_per_byte": 1e-4, "links": {"pigeon": {}}, "corrections": []})",
                             R"({"version": 1, "gamma_us_per_byte": 1e-4, "links": {"shm": {"alpha_us": "1"}}, "corrections": []})",
                             R"({"version": 1, "gamma_us_per_byte": 1e-4, "links": {}, "corrections": [7]})",
                             R"({"version": 1, "gamma_us_per_byte": 1e-4, "links": {}, "corrections": [{"collective": "all_reduce", "algorithm": "ring", "transport": "shm", "log2_bytes": 99, "factor": 1}]})"}) {
    EngineSettings kept;
    CAPTURE(broken);
    Status status = parse_calibration(broken, kept);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == STEPCCL_ERROR_INVALID_CONFIGURATION);
    CHECK(kept.calibrated == 0);
  }
}

TEST_CASE("rank 0's settings go to all ranks, and impossible ones are refused") {
  EngineSettings settings;
  REQUIRE(parse_calibration(kCalibration, settings).ok());
  settings.page_bytes = 1 << 20;
  std::array<std::byte, kEngineSettingsBytes> bytes;
  encode_engine_settings(settings, bytes);
  auto back = decode_engine_settings(bytes);
  REQUIRE(back.ok());
  CHECK(back.value().page_bytes == settings.page_bytes);
  CHECK(back.value().corrections_used == 3);
  const auto refused = [](auto&& change) {
    EngineSettings bad;
    change(bad);
    std::array<std::byte, kEngineSettingsBytes> raw;
    encode_engine_settings(bad, raw);
    auto decoded = decode_engine_settings(raw);
    return !decoded.ok() && decoded.error().code == STEPCCL_ERROR_PROTOCOL;
  };
  CHECK(refused([](EngineSettings& s) { s.version = 9; }));
  CHECK(refused([](EngineSettings& s) { s.prefetch_depth = 0; }));
  CHECK(refused([](EngineSettings& s) { s.page_bytes = 1; }));
  CHECK(refused([](EngineSettings& s) { s.compression = 0; }));
  CHECK(refused([](EngineSettings& s) { s.priority_levels = 4; }));
  CHECK(refused([](EngineSettings& s) { s.corrections_used = kMaxCorrections + 1; }));
  CHECK(refused([](EngineSettings& s) { s.gamma_us_per_byte = std::nan(""); }));
  CHECK(refused([](EngineSettings& s) { s.links[1].beta_us_per_byte = -1; }));
  CHECK(refused([](EngineSettings& s) { s.corrections_used = 2; }));  // twice the same
}

TEST_CASE("corrections change the choice") {
  EngineSettings settings;
  Planner plain(0, 8, settings);
  plain.set_topology(std::vector<std::uint32_t>(8, 0), STEPCCL_TRANSPORT_SHM, STEPCCL_TRANSPORT_SHM);
  const auto first = plain.choose(STEPCCL_ALL_REDUCE, 1 << 20, ~0u);
  REQUIRE(first.ok());
  settings.corrections[0] = {STEPCCL_ALL_REDUCE, static_cast<std::uint8_t>(first.value()), STEPCCL_TRANSPORT_SHM, 20, 100};
  settings.corrections_used = 1;
  Planner corrected(0, 8, settings);
  corrected.set_topology(std::vector<std::uint32_t>(8, 0), STEPCCL_TRANSPORT_SHM, STEPCCL_TRANSPORT_SHM);
  const auto second = corrected.choose(STEPCCL_ALL_REDUCE, 1 << 20, ~0u);
  REQUIRE(second.ok());
  CHECK(second.value() != first.value());
  std::string text;
  CHECK(corrected.explain(STEPCCL_ALL_REDUCE, 1 << 20, ~0u, text).ok());
  CHECK(text.find("x 100.00") != std::string::npos);
  CHECK_FALSE(corrected.choose(STEPCCL_BARRIER, 0, bit(STEPCCL_ALGORITHM_RING)).ok());
}

TEST_CASE("the environment of a communicator is read at its making, and a mistake in it is named") {
  const auto attempt = [](const char* name, const char* value) {
    const stepccl_unique_id_t id = testing::new_id();
    setenv(name, value, 1);
    const stepccl_config_t config = testing::config_for(0);
    stepccl_comm_t comm = nullptr;
    const stepccl_result_t result = stepccl_comm_init_rank(&comm, 1, &id, 0, &config);
    unsetenv(name);
    const std::string text = result == STEPCCL_SUCCESS ? "" : testing::last_error().text;
    if (comm != nullptr) CHECK(stepccl_comm_destroy(comm) == STEPCCL_SUCCESS);
    stepccl_unique_id_discard(&id);
    return text;
  };
  CHECK(attempt("STEPCCL_ALGO", "allreduce:tree;ring") == "");
  CHECK(attempt("NCCL_PROTO", "Simple") == "");
  CHECK(attempt("STEPCCL_COMPRESSION", "bf16") == "");
  CHECK(attempt("STEPCCL_ALGO", "spiral").find("STEPCCL_ALGO") != std::string::npos);
  CHECK(attempt("NCCL_ALGO", "spiral").find("NCCL_ALGO") != std::string::npos);
  CHECK(attempt("STEPCCL_PROTO", "spiral").find("R104") == 0);
  CHECK(attempt("STEPCCL_COMPRESSION", "zip").find("R104") == 0);
  CHECK(attempt("STEPCCL_PAGE_BYTES", "17").find("R104") == 0);
  CHECK(attempt("STEPCCL_FUSION_BYTES", "-1").find("STEPCCL_FUSION_BYTES") != std::string::npos);
  CHECK(attempt("STEPCCL_CALIBRATION_FILE", "/no/such/file").find("/no/such/file") != std::string::npos);
}

TEST_CASE("launchers are recognised by what they leave in the environment") {
  const auto seen = [](std::initializer_list<std::pair<const char*, const char*>> variables, std::string& problem) {
    return perf::launched_by(
        [=](const char* name) -> const char* {
          for (const auto& [key, value] : variables) {
            if (std::strcmp(key, name) == 0) return value;
          }
          return nullptr;
        },
        problem);
  };
  std::string problem;
  CHECK_FALSE(seen({}, problem));
  const auto mpirun = seen({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMIX_NAMESPACE", "77.1"}}, problem);
  REQUIRE(mpirun);
  CHECK(mpirun->rank == 2);
  CHECK(mpirun->world == 4);
  CHECK(mpirun->one_node);
  CHECK(mpirun->job == "77.1");
  const auto torchrun = seen({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}, problem);
  REQUIRE(torchrun);
  CHECK_FALSE(torchrun->one_node);
  CHECK(torchrun->address == "10.0.0.1:29501");
  const auto srun = seen({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "2"}, {"SLURM_JOB_ID", "5"}, {"STEPCCL_RENDEZVOUS", "n1:4711"}}, problem);
  REQUIRE(srun);
  CHECK(srun->address == "n1:4711");
  CHECK(problem.empty());
  CHECK_FALSE(seen({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "2"}}, problem));
  CHECK(problem.find("STEPCCL_RENDEZVOUS") != std::string::npos);
  problem.clear();
  CHECK_FALSE(seen({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, problem));
  CHECK(problem.find("do not fit") != std::string::npos);

  // Across nodes without a secret of the job: refused, not guessed.
  stepccl_unique_id_t id;
  const auto refused = perf::rendezvous(*torchrun, [](const char*) -> const char* { return nullptr; }, 100, id);
  REQUIRE(refused);
  CHECK(refused->find("STEPCCL_JOB_SECRET") != std::string::npos);
}
