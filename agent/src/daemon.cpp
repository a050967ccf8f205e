// SPDX-License-Identifier: Apache-2.0
#include "daemon.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "facts/facts.hpp"
#include "notify.hpp"
#include "rpc/json_text.hpp"
#include "rpc/params.hpp"
#include "telemetry/node_sample.hpp"
#include "version.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr auto kStaleRingInterval = std::chrono::seconds(30);
constexpr auto kLastWords = std::chrono::milliseconds(500);

void require_directory(const std::string &path, mode_t mode)
{
	const int error = ensure_directory(path, mode);
	if (error != 0)
		throw std::runtime_error("the folder " + path + " can't be used (" + errno_text(error) + ")");
}

WorkerSettings worker_settings(const Options &options, const Settings &kept)
{
	WorkerSettings settings;
	settings.perf_path = options.perf_path;
	settings.rings_directory = options.rings_dir();
	settings.control_file = options.control_file();
	settings.environment = [&kept] { return kept.worker_environment(); };
	return settings;
}

/// The folders of `options`, made before anything else is.
Options with_directories(Options options)
{
	require_directory(options.run_dir, 0750);
	require_directory(options.state_dir, 0700);
	require_directory(options.rings_dir(), 02770);
	// Started by root, outside of a service manager: what ranks and consoles use belongs to their group.
	if (::geteuid() == 0) {
		if (const auto group = group_id("stepccl")) {
			for (const std::string &path : {options.run_dir, options.rings_dir()}) {
				if (::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0)
					log_warn({{"event", "group_not_set"}, {"path", path}, {"error", errno_text(errno)}});
			}
			(void)::chmod(options.rings_dir().c_str(), 02770); // chown takes the setgid bit away.
		}
	}
	return options;
}

} // namespace

Daemon::Daemon(Options options)
	: options_(with_directories(std::move(options))), reaper_(loop_), tree_(options_.sysroot), links_(tree_), membership_(options_.cluster_file()),
	  settings_(options_.settings_file(), options_.control_file()), routes_(loop_, membership_, tree_, links_),
	  gpus_(loop_, reaper_, options_.gpuinfo_path), rings_(loop_, options_.rings_dir(), "/proc"),
	  recorders_(tree_, options_.rings_dir(), "/proc"), gpu_boards_(options_.rings_dir(), options_.control_file(), "/proc"),
	  telemetry_(loop_, tree_, links_, rings_, routes_, membership_), runs_(loop_, reaper_, worker_settings(options_, settings_)),
	  server_(loop_, options_.socket,
		  [this](const std::shared_ptr<Client> &client, std::string_view line) { dispatcher_.handle_line(client, line); }),
	  started_at_ms_(realtime_ms()), started_ns_(monotonic_ns())
{
	sigset_t set;
	::sigemptyset(&set);
	::sigaddset(&set, SIGTERM);
	::sigaddset(&set, SIGINT);
	if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0)
		throw std::runtime_error("signals can't be blocked (" + errno_text(errno) + ")");
	end_signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
	if (!end_signals_.valid())
		throw std::runtime_error("no signalfd (" + errno_text(errno) + ")");
	(void)::signal(SIGPIPE, SIG_IGN);
	loop_.add(end_signals_.get(), EPOLLIN, [this](std::uint32_t) {
		signalfd_siginfo info{};
		if (::read(end_signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
			begin_shutdown(static_cast<int>(info.ssi_signo));
	});
	add_methods();
	add_telemetry_methods();
}

Daemon::~Daemon() { loop_.remove(end_signals_.get()); }

void Daemon::serve(const std::function<void()> &ready)
{
	server_.listen();
	membership_.load();
	settings_.load();
	rings_.remove_stale();
	gpu_boards_.remove_stale();
	loop_.every(kStaleRingInterval, [this] {
		rings_.remove_stale();
		gpu_boards_.remove_stale();
		recorders_.remove_old(monotonic_ns());
	});
	runs_.on_run_end([this] { rings_.remove_stale(); });
	if (const auto interval = watchdog_interval())
		loop_.every(*interval, [] { (void)notify_systemd("WATCHDOG=1"); });
	log_info({{"event", "serving"}, {"version", kVersion}, {"git", kGit}, {"socket", options_.socket}, {"pid", ::getpid()},
		  {"uid", ::geteuid()}, {"perf", options_.perf_path}});
	ready();
	if (const int error = notify_systemd("READY=1"))
		log_warn({{"event", "notify_failed"}, {"error", errno_text(error)}});
	loop_.run();
	log_info({{"event", "ended"}});
}

void Daemon::begin_shutdown(int signal)
{
	if (ending_)
		return;
	ending_ = true;
	log_info({{"event", "ending"}, {"signal", signal_name(signal)}});
	(void)notify_systemd("STOPPING=1");
	runs_.stop_all([this] {
		server_.shut_down();
		// The clients have this long to read how their runs ended.
		loop_.after(server_.client_count() > 0 ? kLastWords : std::chrono::milliseconds(0), [this] { loop_.stop(); });
	});
}

void Daemon::hello(Call &call)
{
	const Params params(call.params, {"protocol", "client"});
	const std::int64_t protocol = params.integer("protocol", 0, 1'000'000);
	const std::string client = params.text("client", 1, 128);
	if (protocol != kProtocol)
		throw RpcError(kServerError, "A104",
			       "The console speaks protocol " + std::to_string(protocol) + " and this daemon " + std::to_string(kProtocol) + ".",
			       protocol > kProtocol ? "Bring the node up again to upgrade its daemon." : "Use a newer console for this node.",
			       {{"protocol", kProtocol}, {"version", kVersion}});
	log_info({{"event", "hello"}, {"client", call.client->id()}, {"name", client}});
	const auto text = [&](std::string_view file) { return tree_.text(file).value_or(""); };
	call.reply.result({{"protocol", kProtocol},
			   {"version", kVersion},
			   {"git", kGit},
			   {"hostname", text("/proc/sys/kernel/hostname")},
			   {"machine_id", text("/etc/machine-id")},
			   {"boot_id", text("/proc/sys/kernel/random/boot_id")},
			   {"pid", ::getpid()},
			   {"uid", ::geteuid()},
			   {"started_at_ms", started_at_ms_},
			   {"uptime_s", (monotonic_ns() - started_ns_) / 1'000'000'000u},
			   {"rss_kib", own_rss_kib()},
			   {"features", {"facts", "cluster", "routes", "settings", "runs", "telemetry", "recorder", "gpu", "log"}}});
	(void)tree_.take_unreadable();
}

void Daemon::get_facts(Call &call)
{
	const Params params(call.params, {});
	gpus_.ask([this, reply = call.reply](const GpuAnswer &gpus) {
		json facts = collect_facts(tree_, links_, Netlink().addresses());
		facts["gpus"] = gpus.facts.gpus;
		// Without NVIDIA's driver there is nothing that the helper could have told.
		struct stat info{};
		const bool has_driver = ::stat(tree_.path("/proc/driver/nvidia").c_str(), &info) == 0;
		if (gpus.error != 0 && (gpus.error != ENOENT || has_driver))
			tree_.note_unreadable("gpus", gpus.error, gpus.message);
		for (const std::string &problem : gpus.facts.problems) {
			if (has_driver)
				tree_.note_unreadable("gpus", EIO, problem);
		}
		facts["unreadable"] = tree_.take_unreadable();
		reply.result(facts);
	});
}

void Daemon::add_methods()
{
	dispatcher_.add("hello", [this](Call &call) { hello(call); });
	dispatcher_.add("facts.get", [this](Call &call) { get_facts(call); });
	dispatcher_.add("cluster.set", [this](Call &call) {
		membership_.set(parse_cluster(call.params));
		call.reply.result({{"epoch", membership_.get().epoch}});
	});
	dispatcher_.add("cluster.get", [this](Call &call) {
		const Params params(call.params, {});
		call.reply.result(to_json(membership_.get()));
	});
	dispatcher_.add("routes.get", [this](Call &call) {
		const Params params(call.params, {"from"});
		std::optional<int> from;
		if (params.has("from"))
			from = static_cast<int>(params.integer("from", 0, 65'534));
		call.reply.result(routes_.table(from));
	});
	dispatcher_.add("routes.probe", [this](Call &call) {
		const Params params(call.params, {});
		(void)membership_.get();
		routes_.probe([this, reply = call.reply] {
			try {
				reply.result(routes_.table(std::nullopt));
			} catch (const RpcError &error) {
				reply.error(error);
			}
		});
	});
	dispatcher_.add("settings.get", [this](Call &call) {
		const Params params(call.params, {});
		call.reply.result(settings_.all());
	});
	dispatcher_.add("settings.set", [this](Call &call) { call.reply.result(settings_.set(call.params)); });
	dispatcher_.add("run.start", [this](Call &call) { runs_.start(call); });
	dispatcher_.add("run.stop", [this](Call &call) { runs_.stop(call); });
	dispatcher_.add("run.list", [this](Call &call) { runs_.list(call); });
	dispatcher_.add("run.events", [this](Call &call) { runs_.events(call); });
	dispatcher_.add("run.subscribe", [this](Call &call) { runs_.subscribe(call); });
}

void Daemon::add_telemetry_methods()
{
	dispatcher_.add("telemetry.subscribe", [this](Call &call) {
		const Params params(call.params, {"interval_ms"});
		const std::chrono::milliseconds interval(params.integer("interval_ms", 100, 60'000));
		call.reply.result({{"subscription", telemetry_.subscribe(call.client, interval)}});
	});
	dispatcher_.add("telemetry.unsubscribe", [this](Call &call) {
		const Params params(call.params, {"subscription"});
		telemetry_.unsubscribe(call.client, static_cast<std::uint64_t>(params.integer("subscription", 1, INT64_MAX)));
		call.reply.result(json::object());
	});
	dispatcher_.add("recorder.get", [this](Call &call) { call.reply.result(recorders_.get(call.params)); });
	dispatcher_.add("gpu.processes", [this](Call &call) { call.reply.result(gpu_boards_.processes(call.params)); });
	dispatcher_.add("log.tail", [](Call &call) {
		const Params params(call.params, {"lines"});
		call.reply.result({{"lines", log().tail(static_cast<std::size_t>(params.integer("lines", 1, 1000)))}});
	});
}

} // namespace stepccl::agent
