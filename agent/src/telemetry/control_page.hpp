// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stepccl/telemetry.h"

namespace stepccl::agent {

/// The page of live settings that ranks map read-only (telemetry.h, section 2). Only this daemon writes it.
class ControlPage {
public:
	ControlPage() = default;
	ControlPage(const ControlPage &) = delete;
	ControlPage &operator=(const ControlPage &) = delete;
	~ControlPage();

	/// Makes the file (0640), or takes over an own one of an earlier daemon, whose readers then see the new
	/// values. Returns errno, 0 when done.
	int open(const std::string &file);

	/// Publishes the values (magic, version and seq of `values` are ignored) under the sequence lock.
	void publish(const stepccl_control &values) noexcept;

	[[nodiscard]] bool is_open() const noexcept { return page_ != nullptr; }

private:
	stepccl_control *page_ = nullptr;
};

} // namespace stepccl::agent
