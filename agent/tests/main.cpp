// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>

#include "base/log.hpp"

int main(int argc, char **argv)
{
	// As the daemon itself: the loop's children are waited for through a signalfd.
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, nullptr);
	signal(SIGPIPE, SIG_IGN);
	stepccl::agent::log().set_quiet(std::getenv("STEPCCLD_TEST_LOG") == nullptr);
	doctest::Context context(argc, argv);
	return context.run();
}
