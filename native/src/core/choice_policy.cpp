// SPDX-License-Identifier: Apache-2.0
#include "core/choice_policy.hpp"

#include <optional>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"

namespace stepccl {
namespace {

std::string quoted(std::string_view text) {
  std::string out(1, '"');
  out += text;
  out += '"';
  return out;
}


// Lower case, without underscores and blanks.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '_' || c == ' ') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

constexpr std::uint32_t bit(stepccl_algorithm_t algorithm) { return 1u << algorithm; }

// What a name stands for; 0 = known to NCCL alone.
std::optional<std::uint32_t> algorithm_bits(const std::string& name, bool foreign) {
  if (foreign) {
    if (name == "tree") return bit(STEPCCL_ALGORITHM_TREE) | bit(STEPCCL_ALGORITHM_DOUBLE_BINARY_TREE);
    if (name == "pat") return bit(STEPCCL_ALGORITHM_BRUCK) | bit(STEPCCL_ALGORITHM_HALVING_DOUBLING);
    for (const char* other : {"collnetdirect", "collnetchain", "collnet", "nvls", "nvlstree"}) {
      if (name == other) return 0u;
    }
  }
  for (std::uint32_t a = STEPCCL_ALGORITHM_RING; a < STEPCCL_ALGORITHM_COUNT; ++a) {
    if (name == plain(stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(a)))) return 1u << a;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> protocol_bits(const std::string& name, bool) {
  if (name == "ll") return kProtocolLL;
  if (name == "ll128") return kProtocolLL128;
  if (name == "simple") return kProtocolSimple;
  return std::nullopt;
}

std::optional<std::uint32_t> collective_number(const std::string& name) {
  for (std::uint32_t c = 0; c < STEPCCL_COLLECTIVE_COUNT; ++c) {
    if (name == plain(stepccl_collective_name(static_cast<stepccl_collective_t>(c)))) return c;
  }
  return std::nullopt;
}

Error refuse(const std::string& variable, const std::string& why) {
  return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS, variable + ": " + why);
}

std::uint32_t algorithms_of(std::uint32_t collective) {
  std::uint32_t bits = 0;
  for (const auto& row : schedule::algorithms()) {
    if (row.collective == static_cast<stepccl_collective_t>(collective)) bits |= bit(row.algorithm);
  }
  return bits;
}

std::uint32_t protocols_of(std::uint32_t) { return kProtocolAll; }

struct Grammar {
  const std::string& variable;
  bool foreign;
  std::optional<std::uint32_t> (*bits_of)(const std::string&, bool);
  std::uint32_t (*available)(std::uint32_t collective);
  const char* what;
};

// f(collective, bits) for every collective that an entry speaks of.
template <class F>
Status read(const Grammar& grammar, const std::string& text, F&& f) {
  struct Entry {
    std::optional<std::uint32_t> collective;
    std::uint32_t listed = 0;
    bool exclude = false;
  };
  std::vector<Entry> entries;
  for (const std::string_view part : split(text, ';')) {
    if (plain(part).empty()) continue;
    Entry entry;
    std::string_view list = part;
    if (const std::size_t colon = part.find(':'); colon != std::string_view::npos) {
      entry.collective = collective_number(plain(part.substr(0, colon)));
      if (!entry.collective) return refuse(grammar.variable, quoted(part.substr(0, colon)) + " is no collective");
      list = part.substr(colon + 1);
    }
    if (!list.empty() && list.front() == '^') entry.exclude = true, list.remove_prefix(1);
    bool any = false;
    for (const std::string_view name : split(list, ',')) {
      if (plain(name).empty()) continue;
      const auto bits = grammar.bits_of(plain(name), grammar.foreign);
      if (!bits) return refuse(grammar.variable, quoted(name) + " is no " + grammar.what);
      entry.listed |= *bits;
      any = true;
    }
    if (!any) return refuse(grammar.variable, quoted(part) + " names no " + grammar.what);
    entries.push_back(entry);
  }
  for (const bool specific : {false, true}) {
    for (const Entry& entry : entries) {
      if (entry.collective.has_value() != specific) continue;
      for (std::uint32_t c = 0; c < STEPCCL_COLLECTIVE_COUNT; ++c) {
        if (specific && c != *entry.collective) continue;
        const std::uint32_t there = grammar.available(c);
        const std::uint32_t allowed = entry.exclude ? there & ~entry.listed : there & entry.listed;
        if (allowed != 0) {
          f(c, allowed);
        } else if (specific && !grammar.foreign) {
          return refuse(grammar.variable, std::string("nothing is left for ") + stepccl_collective_name(static_cast<stepccl_collective_t>(c)));
        }
      }
    }
  }
  return {};
}

}  // namespace

Status read_algorithms(const std::string& variable, const std::string& text, bool foreign, ChoicePolicy& policy) {
  if (plain(text) == "auto") return {};
  return read({variable, foreign, algorithm_bits, algorithms_of, "algorithm"}, text,
              [&](std::uint32_t collective, std::uint32_t bits) { policy.algorithms[collective] = bits; });
}

Status read_protocols(const std::string& variable, const std::string& text, ChoicePolicy& policy) {
  return read({variable, false, protocol_bits, protocols_of, "protocol"}, text,
              [&](std::uint32_t collective, std::uint32_t bits) { policy.protocols[collective] = static_cast<std::uint8_t>(bits); });
}

}  // namespace stepccl
