// SPDX-License-Identifier: Apache-2.0
#include "telemetry/settings.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "base/file.hpp"
#include "base/log.hpp"
#include "rpc/errors.hpp"
#include "rpc/json_text.hpp"
#include "rpc/params.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

struct Field {
	const char *name;
	bool is_switch;
	std::int64_t low, high; ///< of a number
};

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kTiB = kKiB * kKiB * kKiB * kKiB;

constexpr std::array<Field, 13> kFields{{
	{"pipeline_depth", false, 1, 256},
	{"dma_concurrency", false, 1, 8},
	{"hbm_defrag", true, 0, 0},
	{"hbm_defrag_interval_ms", false, 10, 3'600'000},
	{"async_gd", true, 0, 0},
	{"paging", true, 0, 0},
	{"page_bytes", false, 4 * kKiB, kTiB},
	{"prefetch_depth", false, 1, 256},
	{"compression", true, 0, 0},
	{"buffer_bytes", false, 4 * kKiB, kTiB},
	{"sm_budget", false, 1, 32},
	{"hbm_cache_ratio_permille", false, 1, 900},
	{"encryption", true, 0, 0},
}};

std::uint8_t as_switch(const json &value) { return value.is_null() ? 0 : value.get<bool>() ? 2 : 1; }

template <typename T>
T as_number(const json &value)
{
	return value.is_null() ? T{0} : value.get<T>();
}

} // namespace

void check_settings(const json &changes)
{
	const Params params(changes, {"pipeline_depth", "dma_concurrency", "hbm_defrag", "hbm_defrag_interval_ms", "async_gd",
				      "paging", "page_bytes", "prefetch_depth", "compression", "buffer_bytes", "sm_budget", "hbm_cache_ratio_permille", "encryption"});
	for (const Field &field : kFields) {
		if (params.is_null(field.name))
			continue;
		if (field.is_switch)
			(void)params.boolean(field.name);
		else
			(void)params.integer(field.name, field.low, field.high);
	}
	if (!params.is_null("page_bytes") &&
	    !std::has_single_bit(static_cast<std::uint64_t>(params.integer("page_bytes", 1, kTiB))))
		throw bad_param("page_bytes", "must be a power of two");
}

Settings::Settings(std::string file, std::string control_file)
	: file_(std::move(file)), control_file_(std::move(control_file)), values_(json::object())
{
	for (const Field &field : kFields)
		values_[field.name] = nullptr;
}

void Settings::load()
{
	const FileText file = read_file(file_);
	if (file.ok()) {
		try {
			const auto kept = parse_json(file.text);
			if (!kept)
				throw bad_param("settings", "is no JSON");
			check_settings(*kept);
			values_.update(*kept);
		} catch (const RpcError &error) {
			log_error({{"event", "settings_damaged"}, {"file", file_}, {"why", error.message()}});
		}
	} else if (file.error != ENOENT) {
		log_error({{"event", "settings_unreadable"}, {"file", file_}, {"error", errno_text(file.error)}});
	}
	page_error_ = page_.open(control_file_);
	if (page_error_ != 0) {
		log_error({{"event", "control_page_failed"}, {"file", control_file_}, {"error", errno_text(page_error_)}});
		return;
	}
	page_.publish(page_values());
}

const json &Settings::set(const json &changes)
{
	check_settings(changes);
	if (page_error_ != 0)
		throw not_kept(control_file_, page_error_);
	json wanted = values_;
	wanted.update(changes);
	const int error = write_file_atomically(file_, to_line(wanted) + "\n", 0600);
	if (error != 0)
		throw not_kept(file_, error);
	for (const auto &item : changes.items()) {
		if (values_[item.key()] != item.value())
			log_info({{"event", "setting_changed"}, {"setting", item.key()},
				  {"old", to_line(values_[item.key()])}, {"new", to_line(item.value())}});
	}
	values_ = std::move(wanted);
	page_.publish(page_values());
	return values_;
}

std::map<std::string, std::string> Settings::worker_environment() const
{
	constexpr std::int64_t kDefaultPageBytes = std::int64_t{128} << 20;
	std::map<std::string, std::string> out;
	const auto set = [&](const char *field) { return !values_.at(field).is_null(); };
	const auto on = [&](const char *field) { return values_.at(field) == true; };
	if (set("dma_concurrency"))
		out["STEPCCL_DMA_CONCURRENCY"] = std::to_string(values_.at("dma_concurrency").get<std::int64_t>());
	if (set("async_gd"))
		out["STEPCCL_USE_ASYNC_GD"] = on("async_gd") ? "1" : "0";
	if (set("compression"))
		out["STEPCCL_COMPRESSION"] = on("compression") ? "bf16" : "none";
	if (set("encryption"))
		out["STEPCCL_ENCRYPTION"] = on("encryption") ? "tls" : "off";
	if (set("paging")) {
		const std::int64_t page = set("page_bytes") ? values_.at("page_bytes").get<std::int64_t>() : kDefaultPageBytes;
		out["STEPCCL_PAGE_BYTES"] = std::to_string(on("paging") ? page : 0);
	}
	return out;
}

stepccl_control Settings::page_values() const
{
	stepccl_control page{};
	page.pipeline_depth = as_number<std::uint32_t>(values_["pipeline_depth"]);
	page.dma_concurrency = as_number<std::uint32_t>(values_["dma_concurrency"]);
	page.hbm_defrag_interval_ms = as_number<std::uint32_t>(values_["hbm_defrag_interval_ms"]);
	page.hbm_defrag = as_switch(values_["hbm_defrag"]);
	page.async_gd = as_switch(values_["async_gd"]);
	page.paging = as_switch(values_["paging"]);
	page.compression = as_switch(values_["compression"]);
	page.encryption = as_switch(values_["encryption"]);
	page.page_bytes = as_number<std::uint64_t>(values_["page_bytes"]);
	page.prefetch_depth = as_number<std::uint32_t>(values_["prefetch_depth"]);
	page.sm_budget = as_number<std::uint32_t>(values_["sm_budget"]);
	page.hbm_cache_ratio_permille = as_number<std::uint32_t>(values_["hbm_cache_ratio_permille"]);
	page.buffer_bytes = as_number<std::uint64_t>(values_["buffer_bytes"]);
	return page;
}

} // namespace stepccl::agent
