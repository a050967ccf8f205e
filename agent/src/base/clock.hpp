// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>

namespace stepccl::agent {

inline std::uint64_t clock_ns(clockid_t id) noexcept
{
	timespec ts{};
	::clock_gettime(id, &ts);
	return static_cast<std::uint64_t>(ts.tv_sec) * 1'000'000'000u +
	       static_cast<std::uint64_t>(ts.tv_nsec);
}

/// Nanoseconds of CLOCK_MONOTONIC.
inline std::uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

/// Nanoseconds since the epoch.
inline std::uint64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }

/// Milliseconds since the epoch.
inline std::int64_t realtime_ms() noexcept
{
	return static_cast<std::int64_t>(realtime_ns() / 1'000'000u);
}

} // namespace stepccl::agent
