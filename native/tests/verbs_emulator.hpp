// SPDX-License-Identifier: Apache-2.0
// An RDMA device in this process: the verbs that the transport uses, over a wire that loses, delays, reorders and dies as a
// seed tells it. What a real device does with reliable connections is kept: order within a queue pair, retries, RNR, flushed
// requests of a queue pair in error, refused keys.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "transport/verbs.hpp"

namespace stepccl::testing {

struct VerbsFaults {
  std::uint32_t seed = 1;
  double loss = 0;      // of a try; the queue pair tries again, retry_cnt times
  double not_ready = 0; // of a try: the receiver says RNR, the sender waits and tries again
  bool reorder = false; // queue pairs overtake each other, and the bytes of one write come in any order
  std::uint64_t port_dies_after = 0;  // deliveries; 0 = never
};

// One device "emu0" with one active RoCE port whose RoCE v2 GID is 127.0.0.1. All ranks of the process open it.
class VerbsEmulator {
 public:
  explicit VerbsEmulator(const VerbsFaults& faults);
  ~VerbsEmulator();
  VerbsEmulator(const VerbsEmulator&) = delete;
  VerbsEmulator& operator=(const VerbsEmulator&) = delete;

  struct Counters {
    std::uint64_t delivered = 0;
    std::uint64_t lost = 0;
    std::uint64_t not_ready = 0;  // injected
    std::uint64_t no_receive = 0; // a receiver had no request posted: the transport's credits should prevent it
    std::uint64_t refused = 0;    // a key or a range that was not registered
    std::uint64_t queue_pairs = 0;  // that ever carried data
  };
  [[nodiscard]] Counters counters();
  // Objects that were made and not destroyed.
  [[nodiscard]] std::size_t alive();

  struct Device;

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace stepccl::testing
