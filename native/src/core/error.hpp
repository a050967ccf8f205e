// SPDX-License-Identifier: Apache-2.0
// How the library's inside reports failure: a value, never an exception across a module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "stepccl/stepccl.h"

namespace stepccl {

// One failure. `cause` is a clause without a full stop ("connection reset by peer").
struct Error {
  stepccl_result_t code = STEPCCL_ERROR_INTERNAL;
  std::int32_t peer = -1;  // the rank at fault or waited for
  stepccl_phase_t phase = STEPCCL_PHASE_NONE;
  stepccl_transport transport = STEPCCL_TRANSPORT_NONE;
  std::string cause;
};

// "R201 peer_closed: rank 2 during transfer over tcp: the peer closed the connection (seen by rank 0)"
[[nodiscard]] std::string describe(const Error& error, std::int32_t rank);

// "Connection refused" for an errno, thread-safe.
[[nodiscard]] std::string errno_text(int error_number);

[[nodiscard]] inline Error make_error(stepccl_result_t code, stepccl_phase_t phase, std::string cause,
                                      std::int32_t peer = -1,
                                      stepccl_transport transport = STEPCCL_TRANSPORT_NONE) {
  return Error{code, peer, phase, transport, std::move(cause)};
}

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}  // NOLINT: a Status is made by returning an Error

  [[nodiscard]] bool ok() const noexcept { return error_ == nullptr; }
  [[nodiscard]] const Error& error() const noexcept { return *error_; }
  [[nodiscard]] Error take_error() { return std::move(*error_); }

 private:
  std::unique_ptr<Error> error_;
};

template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::in_place_index<0>, std::move(value)) {}    // NOLINT: implicit by design
  Expected(Error error) : value_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  [[nodiscard]] bool ok() const noexcept { return value_.index() == 0; }
  [[nodiscard]] T& value() noexcept { return *std::get_if<0>(&value_); }
  [[nodiscard]] const T& value() const noexcept { return *std::get_if<0>(&value_); }
  [[nodiscard]] const Error& error() const noexcept { return *std::get_if<1>(&value_); }
  [[nodiscard]] Error take_error() { return std::move(*std::get_if<1>(&value_)); }

 private:
  std::variant<T, Error> value_;
};

}  // namespace stepccl
