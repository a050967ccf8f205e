// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "ranks.hpp"

using namespace stepccl::testing;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t kTcp = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_TCP);
constexpr std::uint32_t kShm = STEPCCL_TRANSPORT_BIT(STEPCCL_TRANSPORT_SHM);

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

stepccl_result_t sum(stepccl_comm_t comm, std::vector<float>& data) {
  return stepccl_all_reduce(comm, data.data(), data.data(), data.size(), STEPCCL_FLOAT32, STEPCCL_SUM, nullptr);
}

// What a surviving process tells its parent.
struct Outcome {
  std::int32_t code = 0;
  std::int32_t peer = -1;
  double seconds = 0;
};

// A job of `world` processes that add for ever; `victim` is killed. How the others end.
std::vector<Outcome> kill_one(std::uint32_t world, std::uint32_t victim, std::uint32_t transport, int signal_number, std::uint32_t heartbeat_ms) {
  const stepccl_unique_id_t id = new_id();
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      if (rank != 0) stepccl_unique_id_discard(&id);
      stepccl_config_t config = config_for(transport);
      config.heartbeat_timeout_ms = heartbeat_ms;
      stepccl_comm_t comm = nullptr;
      if (stepccl_comm_init_rank(&comm, world, &id, rank, &config) != STEPCCL_SUCCESS) _exit(9);
      std::vector<float> data(100'000);
      auto last = Clock::now();
      stepccl_result_t result = sum(comm, data);
      if (write(ends[1], "r", 1) != 1) _exit(9);  // running
      while (result == STEPCCL_SUCCESS) last = Clock::now(), result = sum(comm, data);
      const Outcome outcome{result, last_error(comm).peer, seconds_since(last)};
      _exit(write(ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 9);
    }
    close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  stepccl_unique_id_discard(&id);
  for (const int end : pipes) {
    char running = 0;
    REQUIRE(read(end, &running, 1) == 1);
  }
  kill(pids[victim], signal_number);
  std::vector<Outcome> outcomes;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    Outcome outcome;
    if (rank != victim) {
      REQUIRE(read(pipes[rank], &outcome, sizeof outcome) == sizeof outcome);
      outcomes.push_back(outcome);
    }
  }
  kill(pids[victim], SIGKILL);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    close(pipes[rank]);
    waitpid(pids[rank], nullptr, 0);
  }
  return outcomes;
}

}  // namespace

TEST_CASE("a killed rank is named by every other rank within a second") {
  for (const std::uint32_t transport : {kTcp, kShm}) {
    for (std::uint32_t victim = 0; victim < 3; ++victim) {
      CAPTURE(transport);
      CAPTURE(victim);
      for (const Outcome& outcome : kill_one(3, victim, transport, SIGKILL, 0)) {
        CHECK(outcome.code == STEPCCL_ERROR_PEER_CLOSED);
        CHECK(outcome.peer == static_cast<std::int32_t>(victim));
        CHECK(outcome.seconds < 1.0 * STEPCCL_SLOWED);
      }
    }
  }
}

TEST_CASE("a rank that falls silent is named when the heartbeat runs out") {
  for (const Outcome& outcome : kill_one(3, 1, kTcp, SIGSTOP, 2500)) {
    CHECK(outcome.code == STEPCCL_ERROR_PEER_SILENT);
    CHECK(outcome.peer == 1);
    CHECK(outcome.seconds < 5.0);
  }
}

TEST_CASE("abort ends the operation everywhere and names the rank") {
  std::atomic<int> aborted{0};
  std::atomic<int> told{0};
  run_ranks(3, config_for(kTcp), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<float> data(1000);
    if (rank == 1) {
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        stepccl_comm_abort(comm);
      });
      while (sum(comm, data) == STEPCCL_SUCCESS) continue;
      aborted += last_error(comm).code == STEPCCL_ERROR_ABORTED;
      other.join();
    } else {
      while (sum(comm, data) == STEPCCL_SUCCESS) continue;
      told += last_error(comm).code == STEPCCL_ERROR_PEER_FAILED && last_error(comm).peer == 1;
    }
    CHECK(sum(comm, data) != STEPCCL_SUCCESS);  // and it stays ended
  });
  CHECK(aborted == 1);
  CHECK(told == 2);
}

TEST_CASE("a rank that does not come is named at the timeout") {
  std::atomic<int> named{0};
  std::string texts[3];
  const auto begin = Clock::now();
  run_ranks(3, config_for(kTcp), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<float> data(10);
    stepccl_call_t call = STEPCCL_CALL_INIT;
    call.timeout_ms = 1500;
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      named += sum(comm, data) != STEPCCL_SUCCESS;
      return;
    }
    const stepccl_result_t result = stepccl_all_reduce(comm, data.data(), data.data(), data.size(), STEPCCL_FLOAT32, STEPCCL_SUM, &call);
    const auto error = last_error(comm);
    texts[rank] = error.text;
    named += result == STEPCCL_ERROR_TIMEOUT && error.peer == 2 && std::strstr(error.text, "rank(s) 2 have not called it") != nullptr;
  });
  CHECK_MESSAGE(named.load() == 3, texts[0] << " | " << texts[1]);
  CHECK(seconds_since(begin) < 8);
}

TEST_CASE("ranks that call different things are told which, not left hanging") {
  struct Case {
    const char* name;
    std::size_t counts[2];
    stepccl_datatype_t datatypes[2];
    stepccl_redop_t redops[2];
    stepccl_algorithm_t algorithms[2];
    const char* expected;
  };
  const Case cases[] = {
      {"count", {10, 12}, {STEPCCL_FLOAT32, STEPCCL_FLOAT32}, {STEPCCL_SUM, STEPCCL_SUM}, {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_RING}, "12 float"},
      {"datatype", {10, 10}, {STEPCCL_FLOAT32, STEPCCL_INT32}, {STEPCCL_SUM, STEPCCL_SUM}, {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_RING}, "10 int32"},
      {"redop", {10, 10}, {STEPCCL_FLOAT32, STEPCCL_FLOAT32}, {STEPCCL_SUM, STEPCCL_MAX}, {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_RING}, "float max"},
      {"algorithm", {10, 10}, {STEPCCL_FLOAT32, STEPCCL_FLOAT32}, {STEPCCL_SUM, STEPCCL_SUM}, {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_RECURSIVE_DOUBLING}, "recursive_doubling"},
      {"nothing to send", {10, 0}, {STEPCCL_FLOAT32, STEPCCL_FLOAT32}, {STEPCCL_SUM, STEPCCL_SUM}, {STEPCCL_ALGORITHM_RING, STEPCCL_ALGORITHM_RING}, "of 0 float"},
  };
  for (const Case& one : cases) {
    for (const std::uint32_t transport : {kTcp, kShm}) {
      CAPTURE(one.name);
      CAPTURE(transport);
      std::atomic<int> named{0};
      std::string texts[4];
      const auto begin = Clock::now();
      run_ranks(4, config_for(transport), [&](std::uint32_t rank, stepccl_comm_t comm) {
        const int odd = rank == 2 ? 1 : 0;
        std::vector<std::int64_t> data(16);
        stepccl_call_t call = STEPCCL_CALL_INIT;
        call.algorithm = one.algorithms[odd];
        stepccl_result_t result = stepccl_all_reduce(comm, data.data(), data.data(), one.counts[odd], one.datatypes[odd], one.redops[odd], &call);
        if (one.counts[odd] == 0) result = stepccl_all_reduce(comm, data.data(), data.data(), 1, STEPCCL_FLOAT32, STEPCCL_SUM, nullptr);
        texts[rank] = last_error(comm).text;
        named += result == STEPCCL_ERROR_MISMATCH && texts[rank].find(one.expected) != std::string::npos && texts[rank].find("rank 2") != std::string::npos;
      });
      CHECK_MESSAGE(named.load() == 4, texts[0] << " | " << texts[1] << " | " << texts[2] << " | " << texts[3]);
      CHECK(seconds_since(begin) < 6);
    }
  }
}

TEST_CASE("destroy waits for the others, so that an ordinary end is no error") {
  std::atomic<int> good{0};
  run_ranks(3, config_for(kTcp), [&](std::uint32_t rank, stepccl_comm_t comm) {
    std::vector<float> data(100);
    good += sum(comm, data) == STEPCCL_SUCCESS;
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others leave first
  });
  CHECK(good == 3);
}

TEST_CASE("a second operation at the same time is refused") {
  std::atomic<int> done{0};
  std::atomic<int> refused{0};
  run_ranks(2, config_for(kTcp), [&](std::uint32_t rank, stepccl_comm_t comm) {
    if (rank == 1) {
      // Comes once one of the other's two calls has been refused: so the first is under way, whichever it is.
      const auto begin = Clock::now();
      while (refused == 0 && seconds_since(begin) < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<float> data(10);
      CHECK(sum(comm, data) == STEPCCL_SUCCESS);
      return;
    }
    const auto attempt = [&] {
      std::vector<float> data(10);
      const stepccl_result_t result = sum(comm, data);
      done += result == STEPCCL_SUCCESS;
      if (result != STEPCCL_ERROR_INVALID_USAGE) return;
      CHECK(stepccl_comm_destroy(comm) == STEPCCL_ERROR_INVALID_USAGE);
      ++refused;
    };
    std::thread other(attempt);
    attempt();
    other.join();
  });
  CHECK(done == 1);
  CHECK(refused == 1);
}

TEST_CASE("after a rank has died the others and a new process form a communicator again") {
  // Rank 1 of the first job dies; the survivors leave it and meet its successor under a new id.
  const stepccl_unique_id_t ids[2] = {new_id(), new_id()};
  std::vector<pid_t> pids;
  for (const std::uint32_t member : {0u, 1u, 2u, 3u}) {  // 3 is the successor of 1
    const pid_t pid = fork();
    if (pid == 0) {
      const stepccl_config_t config = config_for(kTcp | kShm);
      stepccl_comm_t comm = nullptr;
      std::vector<float> data(1000);
      if (member != 0) {
        for (const auto& id : ids) stepccl_unique_id_discard(&id);
      }
      if (member != 3) {
        if (stepccl_comm_init_rank(&comm, 3, &ids[0], member, &config) != STEPCCL_SUCCESS) _exit(2);
        if (member == 1) _exit(sum(comm, data) == STEPCCL_SUCCESS ? 0 : 6);  // without a goodbye
        while (sum(comm, data) == STEPCCL_SUCCESS) continue;
        const auto error = last_error(comm);
        if (error.code != STEPCCL_ERROR_PEER_CLOSED || error.peer != 1 || stepccl_comm_destroy(comm) != STEPCCL_SUCCESS) {
          std::fprintf(stderr, "member %u: %s\n", member, error.text);
          _exit(3);
        }
      }
      if (stepccl_comm_init_rank(&comm, 3, &ids[1], member == 3 ? 1 : member, &config) != STEPCCL_SUCCESS) {
        std::fprintf(stderr, "member %u: %s\n", member, last_error().text);
        _exit(4);
      }
      data.assign(1000, 1);
      if (sum(comm, data) != STEPCCL_SUCCESS || data[999] != 3 || stepccl_comm_destroy(comm) != STEPCCL_SUCCESS) _exit(5);
      _exit(0);
    }
    pids.push_back(pid);
  }
  for (const auto& id : ids) stepccl_unique_id_discard(&id);
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
