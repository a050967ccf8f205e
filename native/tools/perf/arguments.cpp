// SPDX-License-Identifier: Apache-2.0
#include "perf/arguments.hpp"

#include <charconv>
#include <functional>
#include <string_view>

#include "core/names.hpp"

namespace perf {
namespace {

// A whole number with an optional K, M or G (powers of 1024), as nccl-tests takes sizes.
bool parse_size(std::string_view text, std::uint64_t& out) {
  std::uint64_t unit = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k': case 'K': unit = 1u << 10; break;
      case 'm': case 'M': unit = 1u << 20; break;
      case 'g': case 'G': unit = 1u << 30; break;
      default: break;
    }
    if (unit != 1) text.remove_suffix(1);
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > UINT64_MAX / unit) return false;
  out = value * unit;
  return true;
}

bool parse_u32(std::string_view text, std::uint32_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

template <class T, class Lookup>
bool parse_all_or_one(std::string_view text, unsigned count, std::vector<T>& out, Lookup&& lookup) {
  out.clear();
  if (text == "all") {
    for (unsigned i = 0; i < count; ++i) out.push_back(static_cast<T>(i));
    return true;
  }
  const auto one = lookup(text);
  if (one) out.push_back(*one);
  return one.has_value();
}

}  // namespace

std::optional<std::string> parse(int argc, char** argv, Arguments& a) {
  bool world_given = false;
  const auto set_flag = [](bool& flag) {
    return [&flag] { flag = true; };
  };
  const std::pair<std::string_view, std::function<void()>> flags[] = {
      {"--rendezvous-listen", set_flag(a.rendezvous_listen)}, {"--unique-id-stdin", set_flag(a.unique_id_stdin)},
      {"--json", set_flag(a.json)},                           {"--die-with-parent", set_flag(a.die_with_parent)},
      {"--help", set_flag(a.help)},                           {"-h", set_flag(a.help)},
      {"--version", set_flag(a.version)},                     {"--explain", set_flag(a.explain)},
  };
  using Reader = std::function<bool(std::string_view)>;
  const Reader min_bytes = [&](auto v) { return parse_size(v, a.min_bytes); };
  const Reader max_bytes = [&](auto v) { return parse_size(v, a.max_bytes); };
  const Reader factor = [&](auto v) { return parse_u32(v, a.step_factor) && a.step_factor >= 2; };
  const Reader iterations = [&](auto v) { return parse_u32(v, a.iterations) && a.iterations >= 1; };
  const Reader warmup = [&](auto v) { return parse_u32(v, a.warmup); };
  const Reader redop = [&](auto v) { return parse_all_or_one(v, STEPCCL_REDOP_COUNT, a.redops, stepccl::redop_from_name); };
  const Reader datatype = [&](auto v) { return parse_all_or_one(v, STEPCCL_DATATYPE_COUNT, a.datatypes, stepccl::datatype_from_name); };
  const Reader root = [&](auto v) {
    std::uint32_t value = 0;
    if (v == "-1") return a.root = -1, true;
    if (!parse_u32(v, value) || value > 4095) return false;
    a.root = static_cast<std::int32_t>(value);
    return true;
  };
  const Reader check = [&](auto v) {
    std::uint32_t value = 0;
    if (!parse_u32(v, value)) return false;
    a.check = value != 0;
    return true;
  };
  const Reader processes = [&](auto v) { return parse_u32(v, a.processes) && a.processes >= 1 && a.processes <= 256; };
  const Reader rank = [&](auto v) { return parse_u32(v, a.rank); };
  const Reader world = [&](auto v) { return world_given = parse_u32(v, a.world_size) && a.world_size >= 1; };
  const Reader address = [&](auto v) { return a.rendezvous_address = v, !v.empty(); };
  const Reader transport = [&](auto v) {
    const auto named = stepccl::transport_from_name(v);
    if (named) a.transport = *named;
    return named.has_value() && v != "none";
  };
  const Reader algorithm = [&](auto v) {
    const auto named = stepccl::algorithm_from_name(v);
    if (named) a.algorithm = *named;
    return named.has_value();
  };
  const Reader timeout = [&](auto v) { return parse_u32(v, a.timeout_ms); };
  const Reader chunk = [&](auto v) {
    std::uint64_t value = 0;
    if (!parse_size(v, value) || value > UINT32_MAX) return false;
    a.chunk_bytes = static_cast<std::uint32_t>(value);
    return true;
  };
  const Reader depth = [&](auto v) { return parse_u32(v, a.pipeline_depth); };
  const Reader job = [&](auto v) { return a.job_name = v, true; };
  const Reader interface = [&](auto v) { return a.net_interface = v, !v.empty(); };
  const Reader collective = [&](auto v) { return parse_all_or_one(v, STEPCCL_COLLECTIVE_COUNT, a.collectives, stepccl::collective_from_name); };
  const Reader compression = [&](auto v) {
    a.compression = v == "none" ? STEPCCL_COMPRESSION_NONE : v == "bf16" ? STEPCCL_COMPRESSION_BFLOAT16 : v == "fp16" ? STEPCCL_COMPRESSION_FLOAT16 : 0;
    return a.compression != 0;
  };
  const Reader page = [&](auto v) { return parse_size(v, a.page_bytes); };
  const Reader calibrate = [&](auto v) { return a.calibrate_file = v, !v.empty(); };
  const std::pair<std::string_view, const Reader*> options[] = {
      {"-b", &min_bytes}, {"--minbytes", &min_bytes}, {"-e", &max_bytes}, {"--maxbytes", &max_bytes}, {"-f", &factor}, {"--stepfactor", &factor},
      {"-n", &iterations}, {"--iters", &iterations}, {"-w", &warmup}, {"--warmup_iters", &warmup}, {"-o", &redop}, {"--op", &redop},
      {"-d", &datatype}, {"--datatype", &datatype}, {"-r", &root}, {"--root", &root}, {"-c", &check}, {"--check", &check},
      {"-np", &processes}, {"--rank", &rank}, {"--world-size", &world}, {"--rendezvous-address", &address}, {"--transport", &transport},
      {"--algorithm", &algorithm}, {"--timeout-ms", &timeout}, {"--chunk-bytes", &chunk}, {"--pipeline-depth", &depth}, {"--job-name", &job},
      {"--net-interface", &interface}, {"--collective", &collective},
      {"--compression", &compression}, {"--page-bytes", &page}, {"--calibrate", &calibrate},
  };

  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    bool known = false;
    for (const auto& [flag, set] : flags) {
      if (name == flag) set(), known = true;
    }
    if (known) continue;
    std::optional<std::string_view> attached;
    if (const std::size_t equals = name.find('='); name.substr(0, 2) == "--" && equals != std::string_view::npos) {
      attached = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    for (const auto& [option, read] : options) {
      if (name != option) continue;
      known = true;
      if (!attached && i + 1 == argc) return std::string(name) + " needs a value";
      const std::string_view value = attached ? *attached : std::string_view(argv[++i]);
      if (!(*read)(value)) return std::string(name) + " can't be \"" + std::string(value) + "\"";
    }
    if (!known) return "unknown option " + std::string(name);
  }
  if (a.help || a.version) return std::nullopt;
  if (a.min_bytes > a.max_bytes) return "-b is above -e";
  if (a.processes != 0 && (world_given || a.unique_id_stdin || a.rendezvous_listen)) return "-np starts all ranks by itself: leave out the other ways to join";
  if (a.processes == 0 && !world_given) {
    a.by_launcher = true;
    a.processes = 1;
  }
  if (a.processes == 0) {
    if (a.rank >= a.world_size) return "--rank must be below --world-size";
    if (a.rank != 0 && !a.unique_id_stdin) return "a rank above 0 needs --unique-id-stdin";
    if (a.rank == 0 && a.world_size > 1 && !a.rendezvous_listen) return "rank 0 needs --rendezvous-listen to tell the others the unique id";
    if (a.rank == 0 && a.unique_id_stdin) return "rank 0 makes the unique id: leave out --unique-id-stdin";
  }
  return std::nullopt;
}

const char* usage() {
  return R"(stepccl-perf: times and checks a collective, with the columns of nccl-tests.

  stepccl-perf -np 4 -b 8 -e 16M                    all ranks on this node
  stepccl-perf --rank 0 --world-size 3 --rendezvous-listen --rendezvous-address 10.77.0.1
  stepccl-perf --rank 1 --world-size 3 --unique-id-stdin    (the id that rank 0 printed, on standard input)

What is measured
  --collective all_reduce|all_gather|reduce_scatter|broadcast|reduce|scatter|gather|all_to_all|send_recv|barrier|all
  -b, --minbytes SIZE (8)      -e, --maxbytes SIZE (16M)     -f, --stepfactor N (2)
  -n, --iters N (100)          -w, --warmup_iters N (10)     -c, --check 0|1 (1)
  -o, --op sum|prod|min|max|avg|all                          -r, --root RANK (-1)
  -d, --datatype int8|uint8|int32|uint32|int64|uint64|half|bfloat16|float|double|all
  --transport auto|shm|tcp|rdma      --compression none|bf16|fp16 (of float sums)     --page-bytes SIZE
  --algorithm auto|ring|tree|double_binary_tree|recursive_doubling|halving_doubling|direct_one_shot|direct_two_shot|
              hierarchical|pairwise|bruck|binomial|chain|dissemination      (which exist depends on the collective)
  --chunk-bytes SIZE  --pipeline-depth N  --timeout-ms MS  --net-interface NAMES  --job-name TEXT
  --explain          say for each size what would run and why, and measure nothing
  --calibrate FILE   measure the links and every algorithm, and write what STEPCCL_CALIBRATION_FILE reads

How the ranks meet
  -np N | --rank R --world-size N (--rendezvous-listen [--rendezvous-address ADDR[:PORT]] | --unique-id-stdin)
  mpirun, srun and torchrun: nothing; see native/README.md for jobs on several nodes

  --json             one JSON object a line on standard output (see native/README.md)
  --die-with-parent  end when the parent process ends
  --help, --version

Exit status: 0 all well, 1 an operation failed, 2 wrong command line, 3 wrong results,
128+N ended by signal N.
)";
}

}  // namespace perf
