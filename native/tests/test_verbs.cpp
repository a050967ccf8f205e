// SPDX-License-Identifier: Apache-2.0
// The parts of the RDMA transport that need no device. The transport itself runs over Soft-RoCE in the lab.
#include <doctest/doctest.h>

#include "transport/verbs.hpp"

using namespace stepccl;
using namespace stepccl::transport;

TEST_CASE("GIDs are read as sysfs writes them") {
  const auto gid = parse_gid("0000:0000:0000:0000:0000:ffff:0a4d:0001");
  REQUIRE(gid);
  CHECK((*gid)[10] == 0xff);
  CHECK((*gid)[12] == 10);
  CHECK((*gid)[13] == 77);
  CHECK((*gid)[15] == 1);
  for (const char* bad : {"", "::1", "0000:0000:0000:0000:0000:ffff:0a4d:000", "0000-0000:0000:0000:0000:ffff:0a4d:0001", "000g:0000:0000:0000:0000:ffff:0a4d:0001"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_gid(bad));
  }
}

TEST_CASE("NCCL_IB_HCA's grammar") {
  CHECK(hca_selects("", "mlx5_0", 1));
  CHECK(hca_selects("mlx5", "mlx5_0", 1));
  CHECK(hca_selects("=mlx5_0:1,mlx5_2", "mlx5_0", 1));
  CHECK_FALSE(hca_selects("=mlx5_0:1,mlx5_2", "mlx5_0", 2));
  CHECK_FALSE(hca_selects("=mlx5_1", "mlx5_10", 1));
  CHECK(hca_selects("mlx5_1", "mlx5_10", 1));
  CHECK_FALSE(hca_selects("^mlx5_0", "mlx5_0", 1));
  CHECK(hca_selects("^mlx5_0", "mlx5_1", 1));
  CHECK(hca_selects("^=mlx5_1", "mlx5_10", 1));
  CHECK(hca_selects("mlx5_0:1:0", "mlx5_0", 1));
}

TEST_CASE("without a device the reason is given, not a crash") {
  bootstrap::Endpoint address;
  address.family = 4;
  address.address = {192, 0, 2, 1};
  const auto device = find_rdma_device(address, {"=no-such-device", -1});
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().code == STEPCCL_ERROR_TRANSPORT_UNAVAILABLE);
  CHECK_FALSE(device.error().cause.empty());
}
