// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "core/float16.hpp"
#include "perf/arguments.hpp"
#include "perf/data.hpp"
#include "perf/output.hpp"

using nlohmann::json;

namespace {

struct Run {
  int status = -1;
  std::vector<json> events;
  std::string text;
};

Run run_command(const std::string& command) {
  Run result;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (const std::size_t got = fread(buffer, 1, sizeof buffer, pipe)) result.text.append(buffer, got);
  result.status = WEXITSTATUS(pclose(pipe));
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] == '{') result.events.push_back(json::parse(line));
  }
  return result;
}

Run run(const std::string& arguments) { return run_command(std::string(STEPCCL_PERF) + " " + arguments + " 2>&1"); }

std::vector<json> of(const Run& run, const std::string& name) {
  std::vector<json> found;
  for (const auto& event : run.events) {
    if (event["event"] == name) found.push_back(event);
  }
  return found;
}

std::optional<std::string> parse(std::vector<std::string> words, perf::Arguments& arguments) {
  words.insert(words.begin(), "stepccl-perf");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return perf::parse(static_cast<int>(argv.size()), argv.data(), arguments);
}

}  // namespace

TEST_CASE("the check counts every wrong element and lets right ones pass") {
  for (int datatype = 0; datatype < STEPCCL_DATATYPE_COUNT; ++datatype) {
    for (int redop = 0; redop < STEPCCL_REDOP_COUNT; ++redop) {
      CAPTURE(datatype);
      CAPTURE(redop);
      const auto type = static_cast<stepccl_datatype_t>(datatype);
      const auto op = static_cast<stepccl_redop_t>(redop);
      constexpr std::size_t kCount = 500;
      const std::size_t element = stepccl_datatype_bytes(type);
      std::vector<std::uint64_t> data(kCount);
      perf::fill(data.data(), kCount, type, op, 0, 3);
      CHECK(perf::count_wrong(data.data(), kCount, type, op, 1, 3) == 0);  // a world of one: the input is the result
      const auto more = perf::count_wrong(data.data(), kCount, type, op, 4, 3);
      CHECK(more > kCount / 10);  // the input of rank 0 is not the result of four ranks
      perf::poison(data.data(), kCount * element);
      CHECK(perf::count_wrong(data.data(), kCount, type, op, 4, 3) > kCount * 9 / 10);
    }
  }
}

TEST_CASE("a sum of one rank too many or too few in fp32 is outside the bound") {
  constexpr std::size_t kCount = 1000;
  std::vector<double> sum(kCount, 0);
  std::vector<float> part(kCount);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    perf::fill(part.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, rank, 1);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += part[i];
  }
  std::vector<float> result(sum.begin(), sum.end());
  CHECK(perf::count_wrong(result.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, 3, 1) == 0);
  result[7] += 1e-5f;
  CHECK(perf::count_wrong(result.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, 3, 1) == 1);
  result[9] = std::numeric_limits<float>::quiet_NaN();
  CHECK(perf::count_wrong(result.data(), kCount, STEPCCL_FLOAT32, STEPCCL_SUM, 3, 1) == 2);
}

TEST_CASE("sizes, lists and mistakes on the command line") {
  perf::Arguments a;
  CHECK_FALSE(parse({"-b", "4K", "-e", "1M", "-d", "all", "-o", "max", "-np", "2"}, a));
  CHECK(a.min_bytes == 4096);
  CHECK(a.max_bytes == 1u << 20);
  CHECK(a.datatypes.size() == STEPCCL_DATATYPE_COUNT);
  CHECK(a.redops == std::vector{STEPCCL_MAX});
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{
           {"-b"}, {"-b", "x"}, {"-b", "99999999999999G"}, {"-f", "1"}, {"-n", "0"}, {"--transport", "none"}, {"--transport", "carrier"}, {"-z"},
           {"-b", "2", "-e", "1"}, {"--rank", "1", "--world-size", "2"}, {"--rank", "2", "--world-size", "2", "--unique-id-stdin"},
           {"--rank", "0", "--world-size", "2"}, {"-np", "2", "--world-size", "2"}, {"--collective", "all_gossip"}, {"--compression", "zip"}, {"--calibrate", ""}}) {
    perf::Arguments fresh;
    CHECK(parse(bad, fresh).has_value());
  }
}

TEST_CASE("a unique id goes to text and back") {
  stepccl_unique_id_t id{};
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) id.bytes[i] = static_cast<std::uint8_t>(i * 37);
  stepccl_unique_id_t back{};
  REQUIRE(perf::from_hex(perf::to_hex(id), back));
  CHECK(std::equal(std::begin(id.bytes), std::end(id.bytes), std::begin(back.bytes)));
  CHECK_FALSE(perf::from_hex("", back));
  CHECK_FALSE(perf::from_hex(std::string(256, 'g'), back));
  CHECK_FALSE(perf::from_hex(std::string(255, '0'), back));
}

TEST_CASE("a run prints one event a line, rows at rank 0 and a summary") {
  const Run result = run("-np 3 -b 8 -e 64K -f 16 -n 3 -w 1 --json");
  CHECK(result.status == 0);
  CHECK(of(result, "start").size() == 3);
  CHECK(of(result, "end").size() == 3);
  const auto rows = of(result, "row");
  REQUIRE(rows.size() == 4);
  CHECK(rows[1]["bytes"] == 128);
  CHECK(rows[1]["count"] == 32);
  CHECK(rows[1]["root"] == -1);
  for (const auto& row : rows) {
    CHECK(row["out_of_place"]["wrong"] == 0);
    CHECK(row["in_place"]["wrong"] == 0);
    CHECK(row["in_place"]["time_us"] > 0);
  }
  const auto summary = of(result, "summary");
  REQUIRE(summary.size() == 1);
  CHECK(summary[0]["wrong"] == 0);
}

TEST_CASE("every collective is measured, checked and counted as nccl-tests counts it") {
  struct Case {
    const char* name;
    std::uint64_t count;  // of 4 KiB of float on 4 ranks
    double factor;        // busbw over algbw
    int root;
    const char* redop;
  };
  const Case cases[] = {{"all_reduce", 1024, 1.5, -1, "sum"},      {"all_gather", 256, 0.75, -1, "none"}, {"reduce_scatter", 256, 0.75, -1, "sum"},
                        {"broadcast", 1024, 1, 2, "none"},         {"reduce", 1024, 1, 2, "sum"},         {"scatter", 256, 0.75, 2, "none"},
                        {"gather", 256, 0.75, 2, "none"},          {"all_to_all", 256, 0.75, -1, "none"}, {"send_recv", 1024, 1, -1, "none"},
                        {"barrier", 0, 0, -1, "none"}};
  for (const Case& one : cases) {
    CAPTURE(one.name);
    const Run result = run(std::string("-np 4 -b 4K -e 4K -n 2 -w 1 -r 2 --json --collective ") + one.name);
    CHECK_MESSAGE(result.status == 0, result.text);
    REQUIRE(of(result, "start").size() == 4);
    CHECK(of(result, "start")[0]["collective"] == one.name);
    const auto rows = of(result, "row");
    REQUIRE(rows.size() == 1);
    CHECK(rows[0]["count"] == one.count);
    CHECK(rows[0]["bytes"] == (one.factor == 0 ? 0 : 4096));
    CHECK(rows[0]["root"] == one.root);
    CHECK(rows[0]["redop"] == one.redop);
    for (const char* side : {"out_of_place", "in_place"}) {
      CHECK(rows[0][side]["wrong"] == 0);
      CHECK(rows[0][side]["busbw_GBps"].get<double>() == doctest::Approx(rows[0][side]["algbw_GBps"].get<double>() * one.factor));
    }
  }
}

TEST_CASE("several ranks on each of several nodes: every collective inside the nodes and across, over real processes") {
  // Ranks of this machine with different ids share no memory: between them goes TCP.
  for (const char* node_of : {"0 0 1 1 2 2", "0 1 1 0 1"}) {
    CAPTURE(node_of);
    std::istringstream list(node_of);
    std::vector<std::string> nodes;
    for (std::string node; list >> node;) nodes.push_back(node);
    const std::string world = std::to_string(nodes.size());
    const std::string job = std::to_string(::getpid()) + "." + world;
    std::string command = "exec 2>&1; ";
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      command += "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + world + " LOCAL_WORLD_SIZE=" + world + " TORCHELASTIC_RUN_ID=" + job +
                 " STEPCCL_HOSTID=node" + nodes[rank] + " STEPCCL_ALGO=hierarchical STEPCCL_TELEMETRY_DIR= " + STEPCCL_PERF +
                 " --json --collective all -b 96 -e 384K -f 4096 -n 1 -w 0 -r 1 -o sum & ";
    }
    const Run result = run_command(command + "wait");
    CHECK_MESSAGE(of(result, "error").empty(), result.text);
    CHECK(of(result, "end").size() == nodes.size());
    const auto rows = of(result, "row");
    CHECK_MESSAGE(rows.size() >= 19, result.text);
    for (const auto& row : rows) {
      CAPTURE(row.dump());
      if (row["collective"] != "send_recv") CHECK(row["algorithm"] == "hierarchical");
      CHECK(row["transport"] == "tcp");
      CHECK(row["out_of_place"]["wrong"] == 0);
      CHECK(row["in_place"]["wrong"] == 0);
    }
  }
}

TEST_CASE("compressed and paged runs are checked too") {
  for (const char* options : {"--compression bf16", "--compression fp16 -o avg", "--page-bytes 8K"}) {
    CAPTURE(options);
    const Run result = run(std::string("-np 3 -b 40K -e 40K -n 2 -w 1 --json ") + options);
    CHECK(result.status == 0);
    REQUIRE(of(result, "summary").size() == 1);
    CHECK(of(result, "summary")[0]["wrong"] == 0);
  }
}

TEST_CASE("--explain says what would run, and the environment changes it") {
  const Run plain = run("-np 2 -b 64K -e 64K --json --explain");
  REQUIRE(of(plain, "explain").size() == 1);
  CHECK(of(plain, "row").empty());
  setenv("NCCL_ALGO", "allreduce:ring", 1);
  const Run ring = run("-np 2 -b 64K -e 64K --json --explain");
  unsetenv("NCCL_ALGO");
  REQUIRE(of(ring, "explain").size() == 1);
  CHECK(of(ring, "explain")[0]["algorithm"] == "ring");
  CHECK(of(ring, "explain")[0]["text"].get<std::string>().find("excluded by") != std::string::npos);
}

TEST_CASE("a calibration is written, read again and told of") {
  char path[] = "/tmp/stepccl-calibration-XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  close(fd);
  const Run written = run(std::string("-np 2 --json --calibrate ") + path);
  CHECK_MESSAGE(written.status == 0, written.text);
  REQUIRE(of(written, "calibrated").size() == 1);
  CHECK(of(written, "calibrated")[0]["alpha_us"] > 0);
  CHECK(of(written, "calibrated")[0]["points"] > 50);
  setenv("STEPCCL_CALIBRATION_FILE", path, 1);
  const Run used = run("-np 2 -b 8 -e 8 --json --explain");
  unsetenv("STEPCCL_CALIBRATION_FILE");
  REQUIRE(of(used, "explain").size() == 1);
  CHECK(of(used, "explain")[0]["text"].get<std::string>().find("calibrated") != std::string::npos);
  setenv("STEPCCL_CALIBRATION_FILE", "/no/such/file", 1);
  const Run missing = run("-np 2 -b 8 -e 8 -n 1 -w 0 --json");
  unsetenv("STEPCCL_CALIBRATION_FILE");
  CHECK(missing.status == 1);
  CHECK(of(missing, "error")[0]["code"] == "R104");
  unlink(path);
}

TEST_CASE("the table has nccl-tests' columns") {
  const Run result = run("-np 2 -b 8 -e 8 -n 2 -w 1 --transport tcp");
  CHECK(result.status == 0);
  CHECK(result.text.find("#       size         count      type   redop    root") != std::string::npos);
  CHECK(result.text.find("# Out of bounds values : 0 OK") != std::string::npos);
}

TEST_CASE("a mistake on the command line ends with status 2, a refused transport with 1 and its code") {
  CHECK(run("--nonsense").status == 2);
  const Run refused = run("-np 2 -b 8 -e 8 -n 1 -w 0 --json --transport rdma --net-interface no-such-interface");
  CHECK(refused.status == 1);
  REQUIRE_FALSE(of(refused, "error").empty());
  CHECK(of(refused, "error")[0]["code"] == "R104");
  CHECK(of(refused, "error")[0]["next"].get<std::string>().size() > 10);
}

TEST_CASE("SIGTERM aborts all ranks of a run") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    execl(STEPCCL_PERF, STEPCCL_PERF, "-np", "3", "-b", "64K", "-e", "64K", "-n", "100000000", "--json", nullptr);
    _exit(99);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  int starts = 0;
  const auto count = [&](const char* word) {
    int found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  while (starts < 3) {
    const ssize_t got = read(ends[0], buffer, sizeof buffer);
    REQUIRE(got > 0);
    text.append(buffer, static_cast<std::size_t>(got));
    starts = count("\"start\"");
  }
  usleep(200'000);
  const auto begin = std::chrono::steady_clock::now();
  kill(pid, SIGTERM);
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(got));
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
  CHECK(count("\"R205\"") + count("\"R206\"") == 3);
}
