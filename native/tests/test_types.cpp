// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/comm.hpp"
#include "core/env.hpp"
#include "core/float16.hpp"
#include "core/names.hpp"
#include "core/reduce.hpp"

using namespace stepccl;

TEST_CASE("every half converts to float and back to itself") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_from_half(half);
    const bool nan = (bits & 0x7c00u) == 0x7c00u && (bits & 0x3ffu) != 0;
    CHECK(std::isnan(value) == nan);
    const std::uint16_t back = half_from_float(value);
    if (back != (nan ? half | 0x200u : half)) FAIL("half " << bits << " came back as " << back);
  }
}

TEST_CASE("rounding to half is to nearest even") {
  CHECK(half_from_float(1.0f) == 0x3c00);
  CHECK(half_from_float(65504.0f) == 0x7bff);
  CHECK(half_from_float(65519.996f) == 0x7bff);
  CHECK(half_from_float(65520.0f) == 0x7c00);
  CHECK(half_from_float(0x1p-24f) == 0x0001);
  CHECK(half_from_float(0x1p-25f) == 0x0000);           // a tie goes to even
  CHECK(half_from_float(0x1.000002p-25f) == 0x0001);
  CHECK(half_from_float(0x1.8p-24f) == 0x0002);         // a tie goes to even
  CHECK(half_from_float(1.0f + 0x1p-11f) == 0x3c00);    // a tie goes to even
  CHECK(half_from_float(1.0f + 0x1.8p-10f) == 0x3c02);
  CHECK(half_from_float(-std::numeric_limits<float>::infinity()) == 0xfc00);
}

TEST_CASE("rounding to bfloat16 is to nearest even and keeps NaN") {
  CHECK(bfloat_from_float(1.0f) == 0x3f80);
  CHECK(bfloat_from_float(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(bfloat_from_float(1.0f + 0x1.8p-7f) == 0x3f82);
  CHECK(bfloat_from_float(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(std::isnan(float_from_bfloat(bfloat_from_float(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(float_from_bfloat(bfloat_from_float(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("the kernels of this CPU and the baseline give the same bits") {
  std::mt19937_64 random(3);
  for (int datatype = 0; datatype < STEPCCL_DATATYPE_COUNT; ++datatype) {
    for (int redop = 0; redop < STEPCCL_REDOP_COUNT; ++redop) {
      CAPTURE(datatype);
      CAPTURE(redop);
      const auto type = static_cast<stepccl_datatype_t>(datatype);
      for (const std::size_t count : {1u, 7u, 8u, 255u, 1000u}) {
        const std::size_t bytes = count * stepccl_datatype_bytes(type);
        std::vector<std::uint64_t> left(bytes / 8 + 1);
        std::vector<std::uint64_t> right(bytes / 8 + 1);
        for (auto& word : left) word = random();
        for (auto& word : right) word = random();
        std::vector<std::uint64_t> one(left.size());
        std::vector<std::uint64_t> two(left.size());
        reduce(one.data(), left.data(), right.data(), count, type, static_cast<stepccl_redop_t>(redop));
        reduce_baseline(two.data(), left.data(), right.data(), count, type, static_cast<stepccl_redop_t>(redop));
        CHECK(std::memcmp(one.data(), two.data(), bytes) == 0);
        reduce(left.data(), left.data(), right.data(), count, type, static_cast<stepccl_redop_t>(redop));  // onto an operand
        CHECK(std::memcmp(left.data(), two.data(), bytes) == 0);
      }
    }
  }
  MESSAGE("kernels: " << reduce_kernels_name());
}

TEST_CASE("integers wrap, NaN wins, AVG divides") {
  const std::int8_t a[] = {127, -128, 100};
  const std::int8_t b[] = {1, -1, 100};
  std::int8_t sum[3];
  reduce(sum, a, b, 3, STEPCCL_INT8, STEPCCL_SUM);
  CHECK(sum[0] == -128);
  CHECK(sum[1] == 127);
  CHECK(sum[2] == -56);

  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {nan, 1, 3};
  const float y[] = {1, nan, 2};
  float least[3];
  reduce(least, x, y, 3, STEPCCL_FLOAT32, STEPCCL_MIN);
  CHECK(std::isnan(least[0]));
  CHECK(std::isnan(least[1]));
  CHECK(least[2] == 2);

  std::int32_t values[] = {7, -7, 0};
  divide(values, 3, STEPCCL_INT32, 2);
  CHECK(values[0] == 3);
  CHECK(values[1] == -3);
  std::int8_t small[] = {100};
  divide(small, 1, STEPCCL_INT8, 1000);  // more ranks than the type can count
  CHECK(small[0] == 0);
}

TEST_CASE("names go both ways, and nothing else is taken") {
  for (int i = 0; i < STEPCCL_DATATYPE_COUNT; ++i) {
    CHECK(datatype_from_name(stepccl_datatype_name(static_cast<stepccl_datatype_t>(i))) == static_cast<stepccl_datatype_t>(i));
  }
  for (int i = 0; i < STEPCCL_ALGORITHM_COUNT; ++i) {
    CHECK(algorithm_from_name(stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(i))) == static_cast<stepccl_algorithm_t>(i));
  }
  CHECK(redop_from_name("avg") == STEPCCL_AVG);
  CHECK(transport_from_name("auto") == STEPCCL_TRANSPORT_NONE);
  CHECK_FALSE(datatype_from_name("unknown"));
  CHECK_FALSE(redop_from_name(""));
  CHECK(std::string(stepccl_datatype_name(static_cast<stepccl_datatype_t>(99))) == "unknown");
  CHECK(std::string(stepccl_result_code(static_cast<stepccl_result_t>(999))) == "R???");
  CHECK(std::string(stepccl_result_code(STEPCCL_ERROR_TIMEOUT)) == "R203");
}

TEST_CASE("lists follow NCCL's grammar") {
  CHECK(list_selects("", "eth0"));
  CHECK(list_selects("eth", "eth0"));
  CHECK(list_selects("ib,eth", "eth0"));
  CHECK_FALSE(list_selects("=eth", "eth0"));
  CHECK(list_selects("=eth0", "eth0"));
  CHECK_FALSE(list_selects("^eth", "eth0"));
  CHECK(list_selects("^docker,lo", "eth0"));
  CHECK_FALSE(list_selects("^=eth0", "eth0"));
}

TEST_CASE("a setting that is no number is named") {
  setenv("NCCL_IB_TIMEOUT", "twenty", 1);
  auto env = Environment::read();
  unsetenv("NCCL_IB_TIMEOUT");
  REQUIRE_FALSE(env.ok());
  CHECK(env.error().code == STEPCCL_ERROR_INVALID_CONFIGURATION);
  CHECK(env.error().cause.find("NCCL_IB_TIMEOUT") != std::string::npos);

  setenv("NCCL_IB_TIMEOUT", "18", 1);
  setenv("STEPCCL_IB_TIMEOUT", "14", 1);
  auto both = Environment::read();
  unsetenv("NCCL_IB_TIMEOUT");
  unsetenv("STEPCCL_IB_TIMEOUT");
  REQUIRE(both.ok());
  CHECK(both.value().ib_timeout == 14);
}

TEST_CASE("a stopped process may stay silent for a third of the timeout, unless its limit is given") {
  const auto limit_ms = [](std::uint32_t timeout_ms, std::uint32_t given_ms) {
    stepccl_config_t config = STEPCCL_CONFIG_INIT;
    config.timeout_ms = timeout_ms;
    config.heartbeat_timeout_ms = given_ms;
    auto settings = Settings::resolve(&config);
    REQUIRE(settings.ok());
    return settings.value().heartbeat_timeout_ms;
  };
  CHECK(limit_ms(0, 0) == 10'000);
  CHECK(limit_ms(5'000, 0) == 10'000);
  CHECK(limit_ms(600'000, 0) == 200'000);
  CHECK(limit_ms(600'000, 2'500) == 2'500);
  CHECK(limit_ms(600'000, UINT32_MAX) == 0);
}
