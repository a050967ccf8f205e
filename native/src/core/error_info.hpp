// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace stepccl {

/// What stepccl_last_error and its GPU twin tell: the error as seen by `rank` (-1: outside any), or success where there is none.
[[nodiscard]] inline stepccl_error_info_t error_info(const std::optional<Error>& error, std::int32_t rank) {
  stepccl_error_info_t info{};
  info.rank = rank;
  info.peer = -1;
  if (!error) return info;
  info.code = error->code;
  info.peer = error->peer;
  info.phase = error->phase;
  info.transport = error->transport;
  const std::string text = describe(*error, rank);
  std::memcpy(info.text, text.data(), std::min(text.size(), sizeof info.text - 1));
  return info;
}

}  // namespace stepccl
