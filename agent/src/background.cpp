// SPDX-License-Identifier: Apache-2.0
#include "background.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/log.hpp"

namespace stepccl::agent {

Background::Side Background::enter()
{
	int fds[2];
	if (::pipe2(fds, O_CLOEXEC) != 0)
		throw std::system_error(errno, std::generic_category(), "pipe2");
	UniqueFd read_end(fds[0]), write_end(fds[1]);
	const pid_t pid = ::fork();
	if (pid < 0)
		throw std::system_error(errno, std::generic_category(), "fork");
	if (pid > 0) {
		word_ = std::move(read_end);
		return Side::kParent;
	}
	word_ = std::move(write_end);
	(void)::setsid();
	return Side::kChild;
}

int Background::wait_until_ready()
{
	char word = 0;
	ssize_t got;
	do {
		got = ::read(word_.get(), &word, 1);
	} while (got < 0 && errno == EINTR);
	return got == 1 ? 0 : 1; // The child has said on standard error what is wrong.
}

void Background::ready(const std::string &log_file)
{
	if (!word_.valid())
		return;
	const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
	(void)!::chdir("/");
	(void)::dup2(null.get(), STDIN_FILENO);
	(void)::dup2(null.get(), STDOUT_FILENO);
	if (const int error = log().use_file(log_file))
		log_error({{"event", "log_file_failed"}, {"file", log_file}, {"error", errno_text(error)}});
	(void)!::write(word_.get(), "r", 1);
	word_.reset();
}

} // namespace stepccl::agent
