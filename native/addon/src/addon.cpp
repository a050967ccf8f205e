// SPDX-License-Identifier: Apache-2.0
#include "addon.hpp"

#include "stepccl/stepccl.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

namespace addon {

Napi::Error coded_error(Napi::Env env, const char* code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Set("code", Napi::String::New(env, code));
  return error;
}

}  // namespace addon

static Napi::Value runtime_version(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), STRING(STEPCCL_VERSION_MAJOR) "." STRING(STEPCCL_VERSION_MINOR) "." STRING(STEPCCL_VERSION_PATCH));
}

static Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("decodeTelemetryFrame", Napi::Function::New(env, addon::decode_telemetry_frame, "decodeTelemetryFrame"));
  exports.Set("expectedTimeUs", Napi::Function::New(env, addon::expected_time_us, "expectedTimeUs"));
  exports.Set("fitAlphaBeta", Napi::Function::New(env, addon::fit_alpha_beta, "fitAlphaBeta"));
  exports.Set("runtimeVersion", Napi::Function::New(env, runtime_version, "runtimeVersion"));
  return exports;
}

NODE_API_MODULE(stepccl_addon, init)
