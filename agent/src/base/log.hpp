// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace stepccl::agent {

enum class LogLevel { kInfo, kWarn, kError };

/// One key=value of a log line. A value is quoted and escaped where it holds more than plain characters.
struct LogField {
	std::string_view key;
	std::string value;

	LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
	LogField(std::string_view k, const std::string &v) : key(k), value(v) {}
	LogField(std::string_view k, const char *v) : key(k), value(v) {}
	LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
	template <std::integral T>
	LogField(std::string_view k, T v) : key(k), value(std::to_string(v)) {}
};

/// The daemon's log: one line each, `stepccld: LEVEL key=value ...`, to standard error, and the last
/// thousand in memory for `log.tail`. Nothing secret may be passed in.
class Log {
public:
	static constexpr std::size_t kKeptLines = 1000;
	static constexpr std::size_t kMaxValueBytes = 512;

	void write(LogLevel level, std::initializer_list<LogField> fields);

	/// The newest `lines` lines, oldest first.
	[[nodiscard]] std::vector<std::string> tail(std::size_t lines) const;

	/// Puts the syslog priority in front of each line, as the journal reads it ("<6>").
	void set_journal_prefix(bool on) noexcept { journal_prefix_ = on; }
	void set_quiet(bool on) noexcept { quiet_ = on; }

	/// Sends standard error, and so the log, to a file that is renamed to `file`.1 when it gets longer than
	/// kMaxFileBytes. Returns errno, 0 when done; standard error is then /dev/null.
	int use_file(const std::string &file);
	static constexpr std::size_t kMaxFileBytes = 4 * 1024 * 1024;

private:
	std::deque<std::string> kept_;
	std::string file_;
	std::size_t file_bytes_ = 0;
	bool journal_prefix_ = false;
	bool quiet_ = false;
};

/// The process's one log.
Log &log() noexcept;

void log_info(std::initializer_list<LogField> fields);
void log_warn(std::initializer_list<LogField> fields);
void log_error(std::initializer_list<LogField> fields);

/// "ENOSPC: No space left on device" without a locale or a name service.
std::string errno_text(int error);

} // namespace stepccl::agent
