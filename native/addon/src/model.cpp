// SPDX-License-Identifier: Apache-2.0
#include "model/alpha_beta.hpp"

#include <cmath>
#include <string>

#include "addon.hpp"
#include "core/names.hpp"

namespace addon {
namespace {

constexpr double kMaxWorld = 65536;
constexpr std::uint32_t kMaxSamples = 4096;

Napi::Object object_argument(const Napi::CallbackInfo& info, std::size_t index, const char* function) {
  if (info.Length() <= index || !info[index].IsObject()) throw Napi::TypeError::New(info.Env(), std::string(function) + " takes an object of options");
  return info[index].As<Napi::Object>();
}

double number_of(const Napi::Object& object, const char* name, double least, double most) {
  const Napi::Value value = object.Get(name);
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : std::nan("");
  if (!(number >= least && number <= most)) {
    throw Napi::RangeError::New(object.Env(), std::string(name) + " must be a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

template <class Lookup>
auto name_of(const Napi::Object& object, const char* name, Lookup&& lookup) {
  const Napi::Value value = object.Get(name);
  const auto found = value.IsString() ? lookup(value.As<Napi::String>().Utf8Value()) : decltype(lookup(std::string_view())){};
  if (!found) throw coded_error(object.Env(), "UNKNOWN_NAME", std::string(name) + " is unknown");
  return *found;
}

struct Problem {
  stepccl_collective_t collective;
  stepccl_algorithm_t algorithm;
  std::uint32_t world;
};

Problem problem_of(const Napi::Object& options) {
  return {name_of(options, "collective", stepccl::collective_from_name), name_of(options, "algorithm", stepccl::algorithm_from_name),
          static_cast<std::uint32_t>(number_of(options, "worldSize", 1, kMaxWorld))};
}

}  // namespace

Napi::Value expected_time_us(const Napi::CallbackInfo& info) {
  const Napi::Object options = object_argument(info, 0, "expectedTimeUs");
  const Problem problem = problem_of(options);
  const auto bytes = static_cast<std::uint64_t>(number_of(options, "bytes", 0, 0x1p53));
  const stepccl::model::LinkModel link{number_of(options, "alphaUs", 0, 1e12), number_of(options, "betaUsPerByte", 0, 1e12),
                                       options.Has("gammaUsPerByte") ? number_of(options, "gammaUsPerByte", 0, 1e12) : 0};
  const auto time = stepccl::model::expected_us(problem.collective, problem.algorithm, problem.world, bytes, link);
  if (!time) throw coded_error(info.Env(), "UNSUPPORTED_ALGORITHM", "this version has no schedule of that algorithm for that collective");
  return Napi::Number::New(info.Env(), *time);
}

Napi::Value fit_alpha_beta(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (info.Length() < 1 || !info[0].IsArray()) throw Napi::TypeError::New(env, "fitAlphaBeta takes an array of samples and an object of options");
  const auto given = info[0].As<Napi::Array>();
  const Problem problem = problem_of(object_argument(info, 1, "fitAlphaBeta"));
  if (given.Length() > kMaxSamples) throw Napi::RangeError::New(env, "at most 4096 samples");
  std::vector<stepccl::model::Sample> samples;
  for (std::uint32_t i = 0; i < given.Length(); ++i) {
    const Napi::Value item = given.Get(i);
    if (!item.IsObject()) throw Napi::TypeError::New(env, "a sample is an object with bytes and timeUs");
    samples.push_back({number_of(item.As<Napi::Object>(), "bytes", 0, 0x1p53), number_of(item.As<Napi::Object>(), "timeUs", 0, 1e15)});
  }
  const auto fit = stepccl::model::fit_alpha_beta(samples, problem.collective, problem.algorithm, problem.world);
  if (!fit) return env.Null();
  Napi::Object result = Napi::Object::New(env);
  result.Set("alphaUs", Napi::Number::New(env, fit->alpha_us));
  result.Set("betaUsPerByte", Napi::Number::New(env, fit->beta_us_per_byte));
  return result;
}

}  // namespace addon
