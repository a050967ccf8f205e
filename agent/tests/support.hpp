// SPDX-License-Identifier: Apache-2.0
// What the tests share.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/loop.hpp"
#include "rpc/errors.hpp"

namespace stepccl::agent::testing {

using nlohmann::json;
namespace fs = std::filesystem;

/// A folder that is gone at the end of the test.
class TempDir {
public:
	TempDir()
	{
		std::string pattern = (fs::temp_directory_path() / "stepccld-test-XXXXXX").string();
		REQUIRE(::mkdtemp(pattern.data()) != nullptr);
		path_ = pattern;
	}
	TempDir(const TempDir &) = delete;
	TempDir &operator=(const TempDir &) = delete;
	~TempDir()
	{
		std::error_code ignored;
		fs::permissions(path_, fs::perms::owner_all, ignored);
		fs::remove_all(path_, ignored);
	}
	[[nodiscard]] const std::string &path() const { return path_; }
	[[nodiscard]] std::string operator/(const std::string &name) const { return path_ + "/" + name; }

private:
	std::string path_;
};

inline void put(const std::string &file, const std::string &text)
{
	fs::create_directories(fs::path(file).parent_path());
	std::ofstream(file, std::ios::binary) << text;
}

inline std::string take(const std::string &file)
{
	std::ifstream in(file, std::ios::binary);
	return {std::istreambuf_iterator<char>(in), {}};
}

/// A shell script to stand in for another executable.
inline std::string script(const TempDir &dir, const std::string &name, const std::string &body)
{
	const std::string path = dir / name;
	put(path, "#!/bin/sh\n" + body);
	REQUIRE(::chmod(path.c_str(), 0755) == 0);
	return path;
}

/// Turns the loop until the condition holds; false when it does not within the limit.
inline bool pump(EventLoop &loop, const std::function<bool()> &condition, std::chrono::milliseconds limit = std::chrono::seconds(10))
{
	const auto end = std::chrono::steady_clock::now() + limit;
	while (!condition()) {
		if (std::chrono::steady_clock::now() > end)
			return false;
		loop.run_once(std::chrono::milliseconds(10));
	}
	return true;
}

/// The stable code of what `action` throws; "none" where it doesn't.
inline std::string code_of(const std::function<void()> &action)
{
	try {
		action();
	} catch (const RpcError &error) {
		return error.code();
	}
	return "none";
}

/// The message of what `action` throws.
inline std::string message_of(const std::function<void()> &action)
{
	try {
		action();
	} catch (const RpcError &error) {
		return error.message();
	}
	return {};
}

} // namespace stepccl::agent::testing
