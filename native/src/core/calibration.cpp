// SPDX-License-Identifier: Apache-2.0
#include "core/calibration.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/names.hpp"

namespace stepccl {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = 1u << 20;

Error refuse(std::string why) { return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS, "the calibration: " + std::move(why)); }

// A number from least to most, or nothing.
std::optional<double> number(const Json& object, const char* name, double least, double most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  if (!std::isfinite(value) || value < least || value > most) return std::nullopt;
  return value;
}

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Status parse_calibration(const std::string& text, EngineSettings& settings) {
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object()) return refuse("it is no JSON object");
  if (number(file, "version", 1, 1) != 1) return refuse("its version is not 1");
  EngineSettings read = settings;
  const auto gamma = number(file, "gamma_us_per_byte", 0, 1e3);
  if (!gamma) return refuse("gamma_us_per_byte is missing or impossible");
  read.gamma_us_per_byte = *gamma;
  const auto links = file.find("links");
  if (links == file.end() || !links->is_object()) return refuse("links is missing");
  for (const auto& [name, link] : links->items()) {
    const auto transport = transport_from_name(name);
    if (!transport || *transport == STEPCCL_TRANSPORT_NONE) return refuse("links names an unknown transport");
    const auto alpha = link.is_object() ? number(link, "alpha_us", 0, 1e9) : std::nullopt;
    const auto beta = link.is_object() ? number(link, "beta_us_per_byte", 0, 1e3) : std::nullopt;
    const auto overhead = link.is_object() ? number(link, "overhead_us", 0, 1e9) : std::nullopt;
    if (!alpha || !beta || !overhead) return refuse("links." + name + " lacks alpha_us, beta_us_per_byte or overhead_us");
    read.links[*transport] = {*alpha, *beta, *overhead};
  }
  std::vector<Correction> corrections;
  const auto list = file.find("corrections");
  if (list == file.end() || !list->is_array()) return refuse("corrections is missing");
  for (const Json& item : *list) {
    const std::string at = "corrections[" + std::to_string(corrections.size()) + "]";
    if (!item.is_object()) return refuse(at + " is no object");
    const auto collective = collective_from_name(text_of(item, "collective"));
    const auto algorithm = algorithm_from_name(text_of(item, "algorithm"));
    const auto transport = transport_from_name(text_of(item, "transport"));
    const auto size = number(item, "log2_bytes", 0, 63);
    const auto factor = number(item, "factor", 1e-6, 1e6);
    if (!collective || !algorithm || !transport || !size || !factor) return refuse(at + " has an unknown name or an impossible number");
    corrections.push_back({static_cast<std::uint8_t>(*collective), static_cast<std::uint8_t>(*algorithm), static_cast<std::uint8_t>(*transport),
                           static_cast<std::uint8_t>(*size), static_cast<float>(*factor)});
    if (corrections.size() > kMaxCorrections) return refuse("more than " + std::to_string(kMaxCorrections) + " corrections");
  }
  const auto key = [](const Correction& c) { return std::make_tuple(c.collective, c.algorithm, c.transport, c.log2_bytes); };
  std::sort(corrections.begin(), corrections.end(), [&](const Correction& a, const Correction& b) { return key(a) < key(b); });
  for (std::size_t i = 1; i < corrections.size(); ++i) {
    if (key(corrections[i - 1]) == key(corrections[i])) return refuse("a correction stands there twice");
  }
  std::copy(corrections.begin(), corrections.end(), read.corrections.begin());
  read.corrections_used = static_cast<std::uint32_t>(corrections.size());
  read.calibrated = 1;
  settings = read;
  return {};
}

Status read_calibration(const std::string& path, EngineSettings& settings) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS, "the calibration file \"" + path + "\" can't be read: " + errno_text(errno));
  }
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) return refuse("\"" + path + "\" is longer than 1 MiB");
  return parse_calibration(text, settings);
}

}  // namespace stepccl
