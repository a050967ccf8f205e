// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/clock.hpp"
#include "stepccl/telemetry_frame.hpp"
#include "telemetry/control_page.hpp"
#include "telemetry/ring_writer.hpp"

using namespace stepccl;
using telemetry::Frame;
using telemetry::FrameError;

namespace {

Frame sample() {
  Frame frame;
  frame.header.node = 2;
  frame.header.interval_ms = 500;
  frame.header.sequence = 9;
  frame.header.monotonic_ns = 123456789;
  frame.nics.resize(2);
  telemetry::set_name(frame.nics[0].name, "eth1");
  frame.nics[0].kind = 1;
  telemetry::set_name(frame.nics[1].name, "a-name-longer-than-the-field");
  frame.nics[1].kind = 2;
  frame.nics[1].state = 4;
  frame.flows.resize(3);
  frame.flows[2].tx_bytes = 1ull << 50;
  frame.ops.resize(1);
  frame.ops[0].error = 203;
  return frame;
}

std::vector<std::byte> encoded() {
  std::vector<std::byte> bytes;
  REQUIRE(telemetry::encode_frame(sample(), bytes) == FrameError::none);
  return bytes;
}

// A folder that goes away with the test.
struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    char name[] = "/tmp/stepccl-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("a frame comes back as it was") {
  const auto bytes = encoded();
  CHECK(bytes.size() == telemetry::frame_bytes(2, 3, 1));
  Frame back;
  REQUIRE(telemetry::decode_frame(bytes, back) == FrameError::none);
  CHECK(back.header.node == 2);
  CHECK(back.header.total_bytes == bytes.size());
  CHECK(telemetry::name_of(back.nics[0].name) == "eth1");
  CHECK(telemetry::name_of(back.nics[1].name) == "a-name-longer-t");
  CHECK(back.flows[2].tx_bytes == 1ull << 50);
  CHECK(back.ops[0].error == 203);
  std::size_t total = 0;
  CHECK(telemetry::peek_frame_bytes(std::span(bytes).first(8), total) == FrameError::none);
  CHECK(total == bytes.size());
}

TEST_CASE("what is no frame is refused, with the reason") {
  Frame frame = sample();
  const auto good = encoded();
  const auto refused = [&](auto&& change) {
    auto bytes = good;
    change(bytes);
    Frame out = sample();
    const FrameError error = telemetry::decode_frame(bytes, out);
    CHECK(out.flows.size() == 3);  // untouched on an error
    return error;
  };
  const auto put = [](std::vector<std::byte>& bytes, std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  CHECK(refused([](auto& b) { b.resize(3); }) == FrameError::truncated);
  CHECK(refused([](auto& b) { b.resize(b.size() - 1); }) == FrameError::truncated);
  CHECK(refused([](auto& b) { b.push_back(std::byte{0}); }) == FrameError::bad_length);
  CHECK(refused([&](auto& b) { put(b, 0, std::uint32_t{0x7b7b7b7b}); }) == FrameError::bad_magic);
  CHECK(refused([&](auto& b) { put(b, 4, std::uint32_t{8}); }) == FrameError::bad_length);
  CHECK(refused([&](auto& b) { put(b, 4, std::uint32_t{STEPCCL_FRAME_MAX_BYTES + 1}); }) == FrameError::too_long);
  CHECK(refused([&](auto& b) { put(b, 8, std::uint16_t{2}); }) == FrameError::bad_version);
  CHECK(refused([&](auto& b) { put(b, offsetof(stepccl_frame_header, nic_count), std::uint32_t{0xffffffff}); }) == FrameError::bad_length);
  CHECK(refused([&](auto& b) { put(b, offsetof(stepccl_frame_header, op_count), std::uint32_t{2}); }) == FrameError::bad_length);
  CHECK(refused([&](auto& b) { put(b, sizeof(stepccl_frame_header) + offsetof(stepccl_frame_nic, kind), std::uint8_t{9}); }) == FrameError::bad_value);
}

TEST_CASE("a frame that would be too long is not made") {
  Frame frame;
  frame.ops.resize(telemetry::max_ops_beside(0, 0));
  std::vector<std::byte> bytes;
  CHECK(telemetry::encode_frame(frame, bytes) == FrameError::none);
  CHECK(bytes.size() <= STEPCCL_FRAME_MAX_BYTES);
  frame.ops.emplace_back();
  bytes.clear();
  CHECK(telemetry::encode_frame(frame, bytes) == FrameError::too_long);
  CHECK(bytes.empty());
  CHECK(telemetry::max_ops_beside(1u << 20, 0) == 0);
}

TEST_CASE("random bytes never crash the decoder") {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = encoded();
    for (int k = 0; k < 4; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (i % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    Frame out;
    (void)telemetry::decode_frame(bytes, out);
  }
}

TEST_CASE("the ring holds what telemetry.h says, and its file goes away") {
  const TemporaryDirectory directory;
  std::string path;
  {
    telemetry::RingWriter ring;
    REQUIRE(ring.open(directory.path, 0xabcdef, 3, 4, "a job"));
    path = ring.path();
    CHECK(path == directory.path + "/" + std::to_string(getpid()) + ".3.0000000000abcdef.ring");
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0660);
    CHECK(info.st_size == sizeof(stepccl_ring_header) + STEPCCL_RING_FLOWS * sizeof(stepccl_flow) + STEPCCL_RING_OP_SLOTS * sizeof(stepccl_op));

    auto flow = ring.flow(1, STEPCCL_TRANSPORT_TCP, {4, 1000, {10, 77, 0, 2}});
    flow.add_sent(100);
    flow.add_received(7);
    flow.set_depth(3);
    ring.flow(1, STEPCCL_TRANSPORT_TCP, {4, 1000, {10, 77, 0, 2}}).add_sent(1);  // the same one
    for (std::uint64_t i = 1; i <= STEPCCL_RING_OP_SLOTS + 5; ++i) {
      stepccl_op op{};
      op.sequence = i;
      ring.publish(op);
    }

    const int fd = open(path.c_str(), O_RDONLY);
    REQUIRE(fd >= 0);
    const auto* base = static_cast<const std::byte*>(mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0));
    const auto* header = reinterpret_cast<const stepccl_ring_header*>(base);
    CHECK(header->magic == STEPCCL_RING_MAGIC);
    CHECK(header->pid == static_cast<std::uint32_t>(getpid()));
    CHECK(header->rank == 3);
    CHECK(header->flow_count == 1);
    CHECK(header->op_head == STEPCCL_RING_OP_SLOTS + 5);
    CHECK(std::string(reinterpret_cast<const char*>(header->job_name)) == "a job");
    const auto* flows = reinterpret_cast<const stepccl_flow*>(base + header->header_bytes);
    CHECK(flows[0].tx_bytes == 101);
    CHECK(flows[0].tx_ops == 2);
    CHECK(flows[0].rx_bytes == 7);
    CHECK(flows[0].queue_depth == 3);
    const std::uint8_t address[] = {10, 77, 0, 2};
    CHECK(std::memcmp(&flows[0].peer_ipv4, address, 4) == 0);
    const auto* ops = reinterpret_cast<const stepccl_op*>(flows + STEPCCL_RING_FLOWS);
    CHECK(ops[4].sequence == STEPCCL_RING_OP_SLOTS + 5);
    CHECK(ops[5].sequence == 6);
    munmap(const_cast<std::byte*>(base), static_cast<std::size_t>(info.st_size));
    close(fd);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("without its directory the ring stays closed and costs nothing") {
  telemetry::RingWriter ring;
  CHECK_FALSE(ring.open("/nonexistent/stepccl", 1, 0, 1, ""));
  ring.flow(0, STEPCCL_TRANSPORT_TCP, {}).add_sent(1);
  ring.publish({});
}

TEST_CASE("more peers than flows are carried but not shown") {
  const TemporaryDirectory directory;
  telemetry::RingWriter ring;
  REQUIRE(ring.open(directory.path, 1, 0, 1000, std::string(200, 'x')));
  for (std::uint32_t peer = 0; peer < STEPCCL_RING_FLOWS + 10; ++peer) ring.flow(peer, STEPCCL_TRANSPORT_SHM, {}).add_sent(1);
}

TEST_CASE("the control page is read whole or not at all") {
  const TemporaryDirectory directory;
  const std::string path = directory.path + "/control";
  {
    telemetry::ControlPage page;
    page.open(path);  // not there
    CHECK(page.read().pipeline_depth == 0);
  }
  stepccl_control control{};
  control.magic = STEPCCL_CONTROL_MAGIC;
  control.version = 1;
  control.seq = 2;
  control.pipeline_depth = 8;
  const auto write = [&] {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.write(reinterpret_cast<const char*>(&control), sizeof control);
  };
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&control), sizeof control);
  telemetry::ControlPage page;
  page.open(path);
  CHECK(page.read().pipeline_depth == 8);
  control.pipeline_depth = 16;
  control.seq = 3;  // the daemon is writing
  write();
  CHECK(page.read().pipeline_depth == 8);
  control.seq = 4;
  write();
  CHECK(page.read().pipeline_depth == 16);
}
