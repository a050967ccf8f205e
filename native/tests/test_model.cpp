// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "model/alpha_beta.hpp"
#include "schedule/schedule.hpp"

using namespace stepccl;
using model::LinkModel;

TEST_CASE("the walk through a schedule gives the textbook's time") {
  const LinkModel link{10, 0.001, 0.0005};
  for (const auto& row : schedule::algorithms()) {
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    for (const std::uint32_t world : {2u, 4u, 8u, 16u}) {
      CAPTURE(world);
      for (const std::uint64_t bytes : {16ull, 4096ull, 1048576ull}) {
        CAPTURE(bytes);
        const auto walked = model::expected_us(row.collective, row.algorithm, world, bytes, link);
        REQUIRE(walked);
        const double formula = row.cost(world, static_cast<double>(bytes),
                                        {.alpha = link.alpha_us,
                                         .beta = link.beta_us_per_byte,
                                         .gamma = link.gamma_us_per_byte,
                                         .local_alpha = link.alpha_us,
                                         .local_beta = link.beta_us_per_byte});
        // The textbook's algorithms step in rounds; in the others messages overlap as the formula only estimates.
        const bool rounds = row.algorithm == STEPCCL_ALGORITHM_RING || row.algorithm == STEPCCL_ALGORITHM_RECURSIVE_DOUBLING ||
                            row.algorithm == STEPCCL_ALGORITHM_HALVING_DOUBLING;
        if (rounds && row.collective == STEPCCL_ALL_REDUCE) {
          CHECK(*walked == doctest::Approx(formula).epsilon(0.0001));
        } else {
          CHECK(*walked <= formula * 1.5);
          CHECK(*walked >= formula * 0.4);
        }
      }
    }
  }
}

TEST_CASE("chunks overlap latency and reduction") {
  const LinkModel link{50, 0.001, 0.001};
  const auto whole = model::simulate_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4, 1u << 20, 1u << 20, link);
  const auto cut = model::simulate_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4, 1u << 20, 32u << 10, link);
  REQUIRE(whole);
  REQUIRE(cut);
  CHECK(*cut < *whole * 0.85);
}

TEST_CASE("a world of one, a huge world and bad parameters") {
  CHECK(model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 1, 1000, {1, 1, 1}) == 0);
  const auto huge = model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4096, 1ull << 30, {5, 1e-5, 0});
  REQUIRE(huge);
  CHECK(*huge == doctest::Approx(2.0 * 4095 * 5 + 2.0 * 4095 / 4096 * 1073741824.0 * 1e-5));
  CHECK_FALSE(model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_BRUCK, 4, 8, {1, 1, 1}));
  CHECK(model::expected_us(STEPCCL_BARRIER, STEPCCL_ALGORITHM_AUTO, 4, 0, {7, 1, 1}) == doctest::Approx(16).epsilon(0.2));  // two rounds of one byte
  CHECK(model::expected_us(STEPCCL_SEND_RECV, STEPCCL_ALGORITHM_AUTO, 2, 100, {7, 1, 1}) == 107);
  CHECK_FALSE(model::expected_us(STEPCCL_SEND_RECV, STEPCCL_ALGORITHM_RING, 2, 100, {7, 1, 1}));
  CHECK_FALSE(model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 0, 8, {1, 1, 1}));
  CHECK_FALSE(model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 2, 8, {-1, 1, 1}));
  CHECK_FALSE(model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 2, 8, {std::nan(""), 1, 1}));
  CHECK(model::expected_us(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_AUTO, 4, 8, {1, 1, 1}).has_value());
}

TEST_CASE("a fit finds the parameters that made the samples") {
  for (const auto& row : schedule::algorithms()) {
    if (row.collective == STEPCCL_BARRIER) continue;  // has no bytes to fit
    CAPTURE(stepccl_collective_name(row.collective));
    CAPTURE(stepccl_algorithm_name(row.algorithm));
    std::vector<model::Sample> samples;
    for (double bytes = 8; bytes < 2e7; bytes *= 8) {
      const auto time = model::expected_us(row.collective, row.algorithm, 3, static_cast<std::uint64_t>(bytes), {120, 0.02, 0});
      samples.push_back({bytes, *time});
    }
    const auto fit = model::fit_alpha_beta(samples, row.collective, row.algorithm, 3);
    REQUIRE(fit);
    CHECK(fit->alpha_us == doctest::Approx(120).epsilon(0.05));
    CHECK(fit->beta_us_per_byte == doctest::Approx(0.02).epsilon(0.05));
  }
}

TEST_CASE("a fit never gives a negative parameter and refuses what it can't use") {
  const std::vector<model::Sample> falling{{8, 100}, {1e6, 50}};
  const auto fit = model::fit_alpha_beta(falling, STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4);
  REQUIRE(fit);
  CHECK(fit->alpha_us >= 0);
  CHECK(fit->beta_us_per_byte >= 0);
  const std::vector<model::Sample> one{{8, 100}};
  CHECK_FALSE(model::fit_alpha_beta(one, STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4));
  const std::vector<model::Sample> same{{8, 100}, {8, 110}};
  CHECK_FALSE(model::fit_alpha_beta(same, STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4));
  const std::vector<model::Sample> broken{{8, 100}, {16, std::nan("")}};
  CHECK_FALSE(model::fit_alpha_beta(broken, STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, 4));
}
