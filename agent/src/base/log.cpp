// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/text.hpp"

namespace stepccl::agent {

namespace {

void append_value(std::string &line, std::string_view value)
{
	const std::string safe = printable(value, Log::kMaxValueBytes);
	if (is_token(safe, Log::kMaxValueBytes, "_-./:@+,%[]")) {
		line += safe;
		return;
	}
	line.push_back('"');
	for (const char c : safe) {
		if (c == '"' || c == '\\')
			line.push_back('\\');
		line.push_back(c);
	}
	line.push_back('"');
}

} // namespace

void Log::write(LogLevel level, std::initializer_list<LogField> fields)
{
	static constexpr const char *kNames[] = {"INFO", "WARN", "ERROR"};
	static constexpr const char *kPriorities[] = {"<6>", "<4>", "<3>"};
	const auto index = static_cast<std::size_t>(level);
	std::string line = "stepccld: ";
	line += kNames[index];
	for (const LogField &field : fields) {
		line.push_back(' ');
		line += field.key;
		line.push_back('=');
		append_value(line, field.value);
	}
	kept_.push_back(line);
	if (kept_.size() > kKeptLines)
		kept_.pop_front();
	if (quiet_)
		return;
	if (journal_prefix_)
		line.insert(0, kPriorities[index]);
	line.push_back('\n');
	// Nothing is left to tell when standard error itself is gone.
	(void)write_all(STDERR_FILENO, line);
	file_bytes_ += line.size();
	if (!file_.empty() && file_bytes_ > kMaxFileBytes) {
		(void)::rename(file_.c_str(), (file_ + ".1").c_str());
		(void)use_file(file_);
	}
}

int Log::use_file(const std::string &file)
{
	UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
	const int error = fd.valid() ? 0 : errno;
	struct stat info{};
	file_ = error == 0 ? file : "";
	file_bytes_ = error == 0 && ::fstat(fd.get(), &info) == 0 ? static_cast<std::size_t>(info.st_size) : 0;
	if (error != 0)
		fd.reset(::open("/dev/null", O_WRONLY | O_CLOEXEC));
	(void)::dup2(fd.get(), STDERR_FILENO);
	return error;
}

std::vector<std::string> Log::tail(std::size_t lines) const
{
	const std::size_t count = std::min(lines, kept_.size());
	return {kept_.end() - static_cast<std::ptrdiff_t>(count), kept_.end()};
}

Log &log() noexcept
{
	static Log instance;
	return instance;
}

void log_info(std::initializer_list<LogField> fields) { log().write(LogLevel::kInfo, fields); }
void log_warn(std::initializer_list<LogField> fields) { log().write(LogLevel::kWarn, fields); }
void log_error(std::initializer_list<LogField> fields) { log().write(LogLevel::kError, fields); }

std::string errno_text(int error)
{
	const char *name = ::strerrorname_np(error);
	const char *text = ::strerrordesc_np(error);
	if (!name || !text)
		return "errno " + std::to_string(error);
	return std::string(name) + ": " + text;
}

} // namespace stepccl::agent
