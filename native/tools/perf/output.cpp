// SPDX-License-Identifier: Apache-2.0
#include "perf/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "perf/collectives.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;

// One write per line, so that lines of several ranks on one pipe stay whole.
void print(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return;  // nobody reads any more; the exit status still tells
    done += static_cast<std::size_t>(wrote);
  }
}

// Foreign bytes (a host's name) become valid UTF-8 here.
void print_event(const Json& event) { print(event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

Json json_of(const Timing& timing) {
  return {{"time_us", timing.time_us},
          {"algbw_GBps", timing.algbw_gbps},
          {"busbw_GBps", timing.busbw_gbps},
          {"wrong", timing.wrong ? Json(*timing.wrong) : Json(nullptr)}};
}

std::string cell(const Timing& timing) {
  char text[80];
  const std::string wrong = timing.wrong ? std::to_string(*timing.wrong) : "N/A";
  std::snprintf(text, sizeof text, "  %9.2f  %6.2f  %6.2f  %6s", timing.time_us, timing.algbw_gbps, timing.busbw_gbps, wrong.c_str());
  return text;
}

std::string host_name() {
  char name[256] = "?";
  if (::gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

}  // namespace

void Output::unique_id(const stepccl_unique_id_t& id) const { print_event(Json{{"event", "unique_id"}, {"id", to_hex(id)}}); }

void Output::start(const stepccl_comm_info_t& info) const {
  const auto transport = static_cast<stepccl_transport>(info.transport);
  const auto one = [](const auto& list, const char* name) { return list.size() == 1 ? name : "all"; };
  const char* datatype = one(arguments_.datatypes, stepccl_datatype_name(arguments_.datatypes.front()));
  const bool reducing = std::any_of(arguments_.collectives.begin(), arguments_.collectives.end(), is_reducing);
  const char* redop = reducing ? one(arguments_.redops, stepccl_redop_name(arguments_.redops.front())) : "none";
  const char* collective = one(arguments_.collectives, stepccl_collective_name(arguments_.collectives.front()));
  if (arguments_.json) {
    print_event(Json{{"event", "start"},
               {"rank", rank_},
               {"world_size", world_},
               {"collective", collective},
               {"transport", stepccl_transport_name(transport)},
               {"algorithm", stepccl_algorithm_name(arguments_.algorithm)},
               {"datatype", datatype},
               {"redop", redop},
               {"hostname", host_name()},
               {"pid", ::getpid()},
               {"encryption", info.encryption != 0 ? "tls" : "off"},
               {"version", stepccl_version()}});
    return;
  }
  if (rank_ != 0) return;
  print("# stepccl-perf " + std::string(stepccl_version()) + ": " + collective + ", " + std::to_string(world_) + " rank(s), transport " +
        stepccl_transport_name(transport) + ", algorithm " + stepccl_algorithm_name(arguments_.algorithm) + ", " + std::to_string(arguments_.warmup) +
        " warm-up and " + std::to_string(arguments_.iterations) +
        " timed iterations\n"
        "#\n"
        "#                                                                out-of-place                         in-place\n"
        "#       size         count      type   redop    root       time   algbw   busbw  #wrong       time   algbw   busbw  #wrong\n"
        "#        (B)    (elements)                                 (us)  (GB/s)  (GB/s)               (us)  (GB/s)  (GB/s)\n");
}

void Output::row(const Row& row) const {
  const char* redop = is_reducing(row.collective) ? stepccl_redop_name(row.redop) : "none";
  if (arguments_.json) {
    print_event(Json{{"event", "row"},
               {"collective", stepccl_collective_name(row.collective)},
               {"bytes", row.bytes},
               {"count", row.count},
               {"datatype", stepccl_datatype_name(row.datatype)},
               {"redop", redop},
               {"root", row.root},
               {"algorithm", stepccl_algorithm_name(row.algorithm)},
               {"transport", stepccl_transport_name(row.transport)},
               {"iterations", arguments_.iterations},
               {"out_of_place", json_of(row.out_of_place)},
               {"in_place", json_of(row.in_place)}});
    return;
  }
  char text[128];
  std::snprintf(text, sizeof text, "%12llu  %12llu  %8s  %6s  %6d", static_cast<unsigned long long>(row.bytes), static_cast<unsigned long long>(row.count),
                stepccl_datatype_name(row.datatype), redop, row.root);
  print(text + cell(row.out_of_place) + cell(row.in_place) + (arguments_.collectives.size() == 1 ? "" : std::string("  ") + stepccl_collective_name(row.collective)) + "\n");
}

void Output::explanation(stepccl_collective_t collective, std::uint64_t bytes, stepccl_algorithm_t algorithm, const std::string& text) const {
  if (!arguments_.json) return print(text);
  print_event(Json{{"event", "explain"},
                   {"collective", stepccl_collective_name(collective)},
                   {"bytes", bytes},
                   {"algorithm", stepccl_algorithm_name(algorithm)},
                   {"text", text}});
}

void Output::calibrated(stepccl_transport transport, double alpha_us, double beta_us_per_byte, double gamma_us_per_byte, std::size_t points) const {
  if (arguments_.json) {
    print_event(Json{{"event", "calibrated"},
                     {"file", arguments_.calibrate_file},
                     {"transport", stepccl_transport_name(transport)},
                     {"alpha_us", alpha_us},
                     {"beta_us_per_byte", beta_us_per_byte},
                     {"gamma_us_per_byte", gamma_us_per_byte},
                     {"points", points}});
    return;
  }
  char text[256];
  std::snprintf(text, sizeof text, "# calibrated %s: alpha %.3g us, %.3g GB/s, reducing %.3g GB/s, %zu points\n", stepccl_transport_name(transport), alpha_us,
                beta_us_per_byte > 0 ? 1e-3 / beta_us_per_byte : 0, gamma_us_per_byte > 0 ? 1e-3 / gamma_us_per_byte : 0, points);
  print(text);
}

void Output::summary(std::optional<std::uint64_t> wrong, double average_busbw_gbps) const {
  if (arguments_.json) {
    print_event(Json{{"event", "summary"}, {"wrong", wrong ? Json(*wrong) : Json(nullptr)}, {"avg_busbw_GBps", average_busbw_gbps}});
    return;
  }
  char text[160];
  const std::string values = wrong ? std::to_string(*wrong) + (*wrong == 0 ? " OK" : " FAILED") : "not checked";
  std::snprintf(text, sizeof text, "# Out of bounds values : %s\n# Avg bus bandwidth    : %g\n", values.c_str(), average_busbw_gbps);
  print(text);
}

void Output::error(const stepccl_error_info_t& error) const {
  const auto code = static_cast<stepccl_result_t>(error.code);
  if (arguments_.json) {
    print_event(Json{{"event", "error"},
               {"code", stepccl_result_code(code)},
               {"name", stepccl_result_name(code)},
               {"message", error.text},
               {"rank", error.rank >= 0 ? Json(error.rank) : Json(rank_)},
               {"peer", error.peer >= 0 ? Json(error.peer) : Json(nullptr)},
               {"phase", stepccl_phase_name(static_cast<stepccl_phase_t>(error.phase))},
               {"transport", stepccl_transport_name(static_cast<stepccl_transport>(error.transport))},
               {"next", stepccl_result_help(code)}});
    return;
  }
  std::fprintf(stderr, "stepccl-perf: rank %u: %s\n  %s\n", rank_, error.text, stepccl_result_help(code));
}

void Output::end(int status) const {
  if (arguments_.json) print_event(Json{{"event", "end"}, {"rank", rank_}, {"status", status == kExitOk ? 0 : 1}, {"exit_code", status}});
}

std::string to_hex(const stepccl_unique_id_t& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * sizeof id.bytes);
  for (const std::uint8_t byte : id.bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

bool from_hex(const std::string& text, stepccl_unique_id_t& id) {
  if (text.size() != 2 * sizeof id.bytes) return false;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    id.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace perf
