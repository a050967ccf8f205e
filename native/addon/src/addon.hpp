// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <napi.h>

namespace addon {

// decodeTelemetryFrame(bytes: Uint8Array): TelemetryFrame
Napi::Value decode_telemetry_frame(const Napi::CallbackInfo& info);
// expectedTimeUs(options): number
Napi::Value expected_time_us(const Napi::CallbackInfo& info);
// fitAlphaBeta(samples, options): {alphaUs, betaUsPerByte} | null
Napi::Value fit_alpha_beta(const Napi::CallbackInfo& info);

// An Error with a stable `code` property, as index.d.ts documents.
Napi::Error coded_error(Napi::Env env, const char* code, const std::string& message);

}  // namespace addon
