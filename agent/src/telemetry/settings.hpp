// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "telemetry/control_page.hpp"

namespace stepccl::agent {

/// The live settings of the node: kept in one file, published on the control page.
class Settings {
public:
	Settings(std::string file, std::string control_file);

	/// Reads the kept settings and publishes them. What can't be done is reported in the log; settings.set
	/// then refuses with the reason.
	void load();

	/// Every field; null where it is not set.
	[[nodiscard]] const nlohmann::json &all() const noexcept { return values_; }

	/// The settings that a rank reads from its environment alone, once, when it starts (native/README.md), as the
	/// daemon gives them to the workers that it starts. What is not set is not there.
	[[nodiscard]] std::map<std::string, std::string> worker_environment() const;

	/// Changes the given fields (null unsets one), keeps and publishes them, and logs each with its old and
	/// new value. All or nothing: throws RpcError (A101, A402) and changes nothing.
	const nlohmann::json &set(const nlohmann::json &changes);

private:
	[[nodiscard]] stepccl_control page_values() const;

	std::string file_;
	std::string control_file_;
	ControlPage page_;
	int page_error_ = 0;
	nlohmann::json values_;
};

/// Checks settings.set's parameters field by field. Throws RpcError (A101).
void check_settings(const nlohmann::json &changes);

} // namespace stepccl::agent
