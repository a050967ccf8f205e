// SPDX-License-Identifier: Apache-2.0
// Several ranks of one job as threads of the test, over the C interface.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "stepccl/stepccl.h"

#ifndef STEPCCL_SLOWED
#define STEPCCL_SLOWED 1
#endif

namespace stepccl::testing {

inline stepccl_unique_id_t new_id() {
  stepccl_unique_id_t id{};
  const stepccl_result_t result = stepccl_unique_id_create("127.0.0.1", &id);
  if (result != STEPCCL_SUCCESS) throw std::runtime_error("stepccl_unique_id_create");
  return id;
}

inline stepccl_config_t config_for(std::uint32_t transports) {
  stepccl_config_t config = STEPCCL_CONFIG_INIT;
  config.transports = transports;
  config.telemetry_dir = "";
  config.timeout_ms = 20'000;
  return config;
}

inline stepccl_error_info_t last_error(stepccl_comm_t comm = nullptr) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm, &info);
  return info;
}

// Runs `body` as each rank in a thread of its own. The communicator is destroyed afterwards.
inline void run_ranks(std::uint32_t world, const stepccl_config_t& config, const std::function<void(std::uint32_t rank, stepccl_comm_t comm)>& body) {
  const stepccl_unique_id_t id = new_id();
  std::vector<std::string> problems(world);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      stepccl_comm_t comm = nullptr;
      if (stepccl_comm_init_rank(&comm, world, &id, rank, &config) != STEPCCL_SUCCESS) {
        problems[rank] = last_error().text;
        return;
      }
      body(rank, comm);
      if (stepccl_comm_destroy(comm) != STEPCCL_SUCCESS) problems[rank] = "destroy failed";
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) CHECK(problem == "");
}

}  // namespace stepccl::testing
