// SPDX-License-Identifier: Apache-2.0
#include "model/alpha_beta.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <queue>

#include "schedule/schedule.hpp"
#include "schedule/tracker.hpp"

namespace stepccl::model {
namespace {

using schedule::AlgorithmRow;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;
using schedule::Tracker;

constexpr std::uint64_t kMaxSteps = 1u << 20;

bool usable(const LinkModel& link) {
  const auto good = [](double x) { return std::isfinite(x) && x >= 0; };
  return good(link.alpha_us) && good(link.beta_us_per_byte) && good(link.gamma_us_per_byte);
}

// One walk over all ranks. An event is the end of a step, or the first byte of a message at its receiver.
class Walk {
 public:
  Walk(const AlgorithmRow& row, std::uint32_t world, std::uint64_t bytes, std::uint64_t chunk, const LinkModel& link)
      : link_(link), mailboxes_(world) {
    schedules_.reserve(world);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      schedules_.push_back(row.make({.rank = rank, .world = world, .count = bytes, .chunk_elements = chunk, .depth = 8, .in_place = true}));
    }
    for (const Schedule& schedule : schedules_) ranks_.push_back(Rank{Tracker(schedule), 0, 0, 0});
  }

  double run() {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) launch(rank, 0);
    double last = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.message) {
        receive(event);
        continue;
      }
      last = event.time;
      ranks_[event.rank].tracker.complete(event.step);
      launch(event.rank, event.time);
    }
    return last;
  }

 private:
  struct Rank {
    Tracker tracker;
    double out_free;
    double in_free;
    double cpu_free;
  };
  struct Event {
    double time;
    std::uint64_t order;  // of creation: makes the walk deterministic
    std::uint32_t rank;
    std::uint32_t step;
    bool message;  // rank and step are the sender's
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  // Messages that wait for their receive, or receives that wait for their message.
  struct Mailbox {
    std::deque<double> arrivals;
    std::deque<std::pair<double, std::uint32_t>> receives;  // posted when, which step
  };

  void finish_at(double time, std::uint32_t rank, std::uint32_t step) { events_.push({time, order_++, rank, step, false}); }

  void launch(std::uint32_t rank, double now) {
    Rank& self = ranks_[rank];
    while (const auto step = self.tracker.next_local()) {
      const double begin = std::max(now, self.cpu_free);
      self.cpu_free = begin + static_cast<double>(schedules_[rank].steps[*step].count) * link_.gamma_us_per_byte;
      finish_at(self.cpu_free, rank, *step);
    }
    for (std::size_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane) {
      while (const auto step = self.tracker.next_posted(lane)) post(rank, *step, now);
    }
  }

  void post(std::uint32_t rank, std::uint32_t index, double now) {
    const Step& step = schedules_[rank].steps[index];
    if (step.kind == StepKind::recv) {
      Mailbox& box = mailboxes_[rank][step.peer];
      if (box.arrivals.empty()) {
        box.receives.emplace_back(now, index);
      } else {
        finish_at(std::max(now, box.arrivals.front()), rank, index);
        box.arrivals.pop_front();
      }
      return;
    }
    const double busy = static_cast<double>(step.count) * link_.beta_us_per_byte;
    Rank& self = ranks_[rank];
    const double begin = std::max(now, self.out_free);
    self.out_free = begin + busy;
    finish_at(self.out_free, rank, index);
    events_.push({begin + link_.alpha_us, order_++, rank, index, true});
  }

  // The message's first byte is there: it takes the receiver's port, behind what came before it.
  void receive(const Event& event) {
    const Step& step = schedules_[event.rank].steps[event.step];
    Rank& peer = ranks_[step.peer];
    const double arrival = std::max(event.time, peer.in_free) + static_cast<double>(step.count) * link_.beta_us_per_byte;
    peer.in_free = arrival;
    Mailbox& box = mailboxes_[step.peer][event.rank];
    if (box.receives.empty()) {
      box.arrivals.push_back(arrival);
    } else {
      const auto [posted, receive_step] = box.receives.front();
      box.receives.pop_front();
      finish_at(std::max(posted, arrival), step.peer, receive_step);
    }
  }

  LinkModel link_;
  std::vector<Schedule> schedules_;
  std::vector<Rank> ranks_;
  std::vector<std::map<std::uint32_t, Mailbox>> mailboxes_;  // [receiver][sender]
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
};

schedule::CostModel cost_model(const LinkModel& link, std::uint64_t chunk) {
  return {.alpha = link.alpha_us,
          .beta = link.beta_us_per_byte,
          .gamma = link.gamma_us_per_byte,
          .chunk = static_cast<double>(chunk),
          .local_alpha = link.alpha_us,
          .local_beta = link.beta_us_per_byte};
}

// Elements (bytes) that a schedule's problem counts where the full array has `bytes`.
std::uint64_t count_of(stepccl_collective_t collective, std::uint32_t world, std::uint64_t bytes) {
  if (collective == STEPCCL_BARRIER) return 1;
  return schedule::is_blocked(collective) ? (bytes + world - 1) / world : bytes;
}

double walk_or_closed_form(const AlgorithmRow& row, std::uint32_t world, std::uint64_t bytes, std::uint64_t chunk,
                           const LinkModel& link) {
  // 3 steps per exchange; the closed form with alpha alone counts the rounds.
  const double rounds = std::max(1.0, row.cost(world, 0, {.alpha = 1}));
  const double chunks = std::max(1.0, static_cast<double>(bytes) / static_cast<double>(chunk));
  const bool everyone = row.direct || row.collective == STEPCCL_ALL_TO_ALL || row.collective == STEPCCL_SCATTER || row.collective == STEPCCL_GATHER;
  const double steps = 3.0 * world * chunks * (everyone ? std::max<double>(rounds, world) : rounds);
  if (steps > static_cast<double>(kMaxSteps)) return row.cost(world, static_cast<double>(bytes), cost_model(link, chunk));
  return Walk(row, world, count_of(row.collective, world, bytes), chunk, link).run();
}

}  // namespace

std::optional<double> simulate_us(stepccl_collective_t collective, stepccl_algorithm_t algorithm, std::uint32_t world,
                                  std::uint64_t bytes, std::uint64_t chunk_bytes, const LinkModel& link) {
  if (world == 0 || chunk_bytes == 0 || !usable(link)) return std::nullopt;
  if (collective == STEPCCL_SEND_RECV && algorithm == STEPCCL_ALGORITHM_AUTO) return link.alpha_us + static_cast<double>(bytes) * link.beta_us_per_byte;
  const AlgorithmRow* row = schedule::find_algorithm(collective, algorithm);
  if (row == nullptr) return std::nullopt;
  return walk_or_closed_form(*row, world, bytes, chunk_bytes, link);
}

std::optional<double> expected_us(stepccl_collective_t collective, stepccl_algorithm_t algorithm, std::uint32_t world,
                                  std::uint64_t bytes, const LinkModel& link) {
  if (algorithm == STEPCCL_ALGORITHM_AUTO && usable(link) && world != 0) {
    const AlgorithmRow* row = schedule::choose_algorithm(collective, world, static_cast<double>(bytes), cost_model(link, 0));
    if (row != nullptr) algorithm = row->algorithm;
  }
  return simulate_us(collective, algorithm, world, bytes, std::max<std::uint64_t>(1, bytes), link);
}

std::optional<Fit> fit_alpha_beta(std::span<const Sample> samples, stepccl_collective_t collective,
                                  stepccl_algorithm_t algorithm, std::uint32_t world) {
  if (samples.size() < 2 || world < 2 || schedule::find_algorithm(collective, algorithm) == nullptr) return std::nullopt;
  // time = a alpha + b beta, where a and b come from the walk; each equation is divided by its time.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double at = 0;
  double bt = 0;
  bool sizes_differ = false;
  for (const Sample& sample : samples) {
    if (!std::isfinite(sample.bytes) || !std::isfinite(sample.time_us) || sample.bytes <= 0 || sample.time_us <= 0) return std::nullopt;
    if (sample.bytes > 0x1p62) return std::nullopt;
    sizes_differ = sizes_differ || sample.bytes != samples[0].bytes;
    const auto bytes = static_cast<std::uint64_t>(std::max(1.0, sample.bytes));
    const auto a = expected_us(collective, algorithm, world, bytes, {.alpha_us = 1});
    const auto b = expected_us(collective, algorithm, world, bytes, {.beta_us_per_byte = 1});
    if (!a || !b) return std::nullopt;
    const double x = *a / sample.time_us;
    const double y = *b / sample.time_us;
    aa += x * x;
    ab += x * y;
    bb += y * y;
    at += x;
    bt += y;
  }
  const double determinant = aa * bb - ab * ab;
  if (!sizes_differ || !(determinant > 0)) return std::nullopt;
  Fit fit{(at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant};
  if (fit.alpha_us < 0) fit = {0, bt / bb};
  if (fit.beta_us_per_byte < 0) fit = {at / aa, 0};
  return fit;
}

}  // namespace stepccl::model
