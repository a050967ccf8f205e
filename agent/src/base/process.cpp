// SPDX-License-Identifier: Apache-2.0
#include "base/process.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace stepccl::agent {

namespace {

struct Pipe {
	UniqueFd read;
	UniqueFd write;
};

bool make_pipe(Pipe &pipe) noexcept
{
	int fds[2];
	if (::pipe2(fds, O_CLOEXEC) != 0)
		return false;
	pipe.read.reset(fds[0]);
	pipe.write.reset(fds[1]);
	return true;
}

void set_nonblocking(int fd) noexcept { (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::vector<char *> pointers(const std::vector<std::string> &strings, const std::string *first)
{
	std::vector<char *> out;
	if (first)
		out.push_back(const_cast<char *>(first->c_str()));
	for (const std::string &string : strings)
		out.push_back(const_cast<char *>(string.c_str()));
	out.push_back(nullptr);
	return out;
}

struct ChildEnds {
	int in, out, err, report;
	pid_t parent;
};

// Between fork and exec: only what is safe there, no allocation.
[[noreturn]] void run_child(const char *path, char *const *argv, char *const *envp, const ChildEnds &ends) noexcept
{
	const auto fail = [&] {
		const int error = errno;
		(void)!::write(ends.report, &error, sizeof error);
		::_exit(127);
	};
	if (::setpgid(0, 0) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		fail();
	if (::getppid() != ends.parent) {
		errno = ESRCH; // The daemon died before the death signal was set.
		fail();
	}
	(void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, CAP_NET_RAW, 0, 0);
	// dup2 clears close-on-exec, and each of the ends lies above the three.
	if (::dup2(ends.in, 0) < 0 || ::dup2(ends.out, 1) < 0 || ::dup2(ends.err, 2) < 0)
		fail();
	// Whatever else is open came from whoever started the daemon.
	(void)::syscall(SYS_close_range, 3, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
	struct sigaction action{};
	action.sa_handler = SIG_DFL;
	for (int signal = 1; signal < NSIG; signal++)
		(void)::sigaction(signal, &action, nullptr);
	sigset_t none;
	::sigemptyset(&none);
	(void)::sigprocmask(SIG_SETMASK, &none, nullptr);
	::execve(path, argv, envp);
	fail();
	::_exit(127);
}

// The child puts its ends on 0, 1 and 2 one after the other: none may lie there already.
bool lift(UniqueFd &fd) noexcept
{
	if (fd.get() > 2)
		return true;
	const int higher = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3);
	if (higher < 0)
		return false;
	fd.reset(higher);
	return true;
}

} // namespace

Process start_process(const ProcessSpec &spec)
{
	Process process;
	const auto failed = [&](int error) {
		Process none;
		none.error = error;
		return none;
	};
	Pipe in, out, err, report;
	UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
	if (!null.valid() || !make_pipe(out) || !make_pipe(report) || (spec.with_stdin && !make_pipe(in)) ||
	    (spec.with_stderr && !make_pipe(err)))
		return failed(errno);
	for (UniqueFd *fd : {&null, &in.read, &out.write, &err.write, &report.write}) {
		if (fd->valid() && !lift(*fd))
			return failed(errno);
	}
	const std::vector<char *> argv = pointers(spec.arguments, &spec.path);
	const std::vector<char *> envp = pointers(spec.environment, nullptr);
	const ChildEnds ends{spec.with_stdin ? in.read.get() : null.get(), out.write.get(),
			     spec.with_stderr ? err.write.get() : null.get(), report.write.get(), ::getpid()};

	const pid_t pid = ::fork();
	if (pid < 0)
		return failed(errno);
	if (pid == 0)
		run_child(spec.path.c_str(), argv.data(), envp.data(), ends);
	(void)::setpgid(pid, pid);
	report.write.reset();
	int error = 0;
	ssize_t got;
	do {
		got = ::read(report.read.get(), &error, sizeof error);
	} while (got < 0 && errno == EINTR);
	if (got == static_cast<ssize_t>(sizeof error)) {
		(void)::waitpid(pid, nullptr, 0);
		return failed(error);
	}
	process.pid = pid;
	process.stdin_pipe = std::move(in.write);
	process.stdout_pipe = std::move(out.read);
	process.stderr_pipe = std::move(err.read);
	for (const UniqueFd *fd : {&process.stdin_pipe, &process.stdout_pipe, &process.stderr_pipe}) {
		if (fd->valid())
			set_nonblocking(fd->get());
	}
	return process;
}

std::string signal_name(int signal)
{
	const char *name = ::sigabbrev_np(signal);
	return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

ProcessReaper::ProcessReaper(EventLoop &loop) : loop_(loop)
{
	sigset_t set;
	::sigemptyset(&set);
	::sigaddset(&set, SIGCHLD);
	if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0)
		throw std::system_error(errno, std::generic_category(), "sigprocmask");
	signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
	if (!signals_.valid())
		throw std::system_error(errno, std::generic_category(), "signalfd");
	loop_.add(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signal(); });
}

ProcessReaper::~ProcessReaper() { loop_.remove(signals_.get()); }

void ProcessReaper::watch(pid_t pid, std::function<void(ExitStatus)> ended)
{
	children_[pid] = std::move(ended);
	// It may have ended before it was watched.
	loop_.defer([this] { on_signal(); });
}

void ProcessReaper::on_signal()
{
	signalfd_siginfo info;
	while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
	}
	std::vector<pid_t> pids;
	for (const auto &[pid, ended] : children_)
		pids.push_back(pid);
	for (const pid_t pid : pids) {
		siginfo_t state{};
		if (::waitid(P_PID, static_cast<id_t>(pid), &state, WEXITED | WNOHANG | WNOWAIT) != 0 || state.si_pid != pid)
			continue;
		// Still a zombie, so the group's id is still ours.
		(void)::kill(-pid, SIGKILL);
		(void)::waitpid(pid, nullptr, 0);
		const auto child = children_.extract(pid);
		ExitStatus status;
		if (state.si_code == CLD_EXITED)
			status.code = state.si_status;
		else
			status.signal = state.si_status;
		if (child.mapped())
			child.mapped()(status);
	}
}

} // namespace stepccl::agent
