// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>

#include "support.hpp"
#include "telemetry/settings.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

stepccl_control page_of(const std::string &file)
{
	stepccl_control page{};
	const std::string bytes = take(file);
	REQUIRE(bytes.size() == sizeof page);
	std::memcpy(&page, bytes.data(), sizeof page);
	return page;
}

} // namespace

TEST_CASE("settings reach the control page and outlive the daemon")
{
	TempDir dir;
	{
		Settings settings(dir / "settings.json", dir / "control");
		settings.load();
		CHECK(settings.all()["pipeline_depth"] == nullptr);
		const stepccl_control empty = page_of(dir / "control");
		CHECK(empty.magic == STEPCCL_CONTROL_MAGIC);
		CHECK(empty.version == 1);
		CHECK(empty.seq % 2 == 0);
		CHECK(empty.pipeline_depth == 0);
		settings.set({{"pipeline_depth", 8}, {"hbm_defrag", true}, {"paging", false}, {"page_bytes", 134217728}});
		const stepccl_control page = page_of(dir / "control");
		CHECK(page.seq % 2 == 0);
		CHECK(page.seq > empty.seq);
		CHECK(page.pipeline_depth == 8);
		CHECK(page.hbm_defrag == 2);
		CHECK(page.paging == 1);
		CHECK(page.async_gd == 0);
		CHECK(page.page_bytes == 134217728);
		settings.set({{"hbm_defrag", nullptr}});
		CHECK(page_of(dir / "control").hbm_defrag == 0);
	}
	Settings again(dir / "settings.json", dir / "control");
	again.load();
	CHECK(again.all()["pipeline_depth"] == 8);
	CHECK(again.all()["hbm_defrag"] == nullptr);
	CHECK(page_of(dir / "control").pipeline_depth == 8);
	struct stat info{};
	REQUIRE(::stat((dir / "control").c_str(), &info) == 0);
	CHECK((info.st_mode & 0777) == 0640);
}

TEST_CASE("what ranks read at their start alone goes into their environment")
{
	TempDir dir;
	Settings settings(dir / "settings.json", dir / "control");
	settings.load();
	CHECK(settings.worker_environment().empty());
	settings.set({{"paging", true}, {"compression", true}, {"async_gd", false}, {"dma_concurrency", 4}, {"pipeline_depth", 8}});
	CHECK(settings.worker_environment() == std::map<std::string, std::string>{{"STEPCCL_COMPRESSION", "bf16"},
										   {"STEPCCL_DMA_CONCURRENCY", "4"},
										   {"STEPCCL_PAGE_BYTES", "134217728"},
										   {"STEPCCL_USE_ASYNC_GD", "0"}});
	settings.set({{"page_bytes", 65536}});
	CHECK(settings.worker_environment().at("STEPCCL_PAGE_BYTES") == "65536");
	settings.set({{"paging", false}, {"compression", false}});
	CHECK(settings.worker_environment().at("STEPCCL_PAGE_BYTES") == "0");
	CHECK(settings.worker_environment().at("STEPCCL_COMPRESSION") == "none");
	settings.set({{"encryption", true}});
	CHECK(settings.worker_environment().at("STEPCCL_ENCRYPTION") == "tls");
	CHECK(page_of(dir / "control").encryption == 2);
	settings.set({{"encryption", false}});
	CHECK(settings.worker_environment().at("STEPCCL_ENCRYPTION") == "off");
	settings.set({{"encryption", nullptr}});
	CHECK(settings.worker_environment().count("STEPCCL_ENCRYPTION") == 0);
	CHECK(code_of([&] { settings.set({{"dma_concurrency", 9}}); }) == "A101");
}

TEST_CASE("a rank's mapping sees a later daemon's values, and a half-written page is finished")
{
	TempDir dir;
	Settings first(dir / "settings.json", dir / "control");
	first.load();
	const int fd = ::open((dir / "control").c_str(), O_RDWR | O_CLOEXEC);
	REQUIRE(fd >= 0);
	auto *page = static_cast<stepccl_control *>(::mmap(nullptr, sizeof(stepccl_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	REQUIRE(page != MAP_FAILED);
	page->seq = 7; // as a daemon leaves it that dies while it writes
	Settings second(dir / "settings.json", dir / "control");
	second.load();
	CHECK(page->seq == 8);
	second.set({{"dma_concurrency", 4}});
	CHECK(page->seq == 10);
	CHECK(page->dma_concurrency == 4);
	::munmap(page, sizeof(stepccl_control));
	::close(fd);
}

TEST_CASE("a wrong setting is refused, and none of its request is taken")
{
	TempDir dir;
	Settings settings(dir / "settings.json", dir / "control");
	settings.load();
	for (const json &bad : {json{{"pipeline_depth", 0}}, json{{"pipeline_depth", "8"}}, json{{"hbm_defrag", 1}}, json{{"page_bytes", 12345}},
				json{{"unknown", 1}}, json{{"prefetch_depth", 2}, {"buffer_bytes", -1}}, json::array()})
		CHECK(code_of([&] { settings.set(bad); }) == "A101");
	CHECK(settings.all()["prefetch_depth"] == nullptr);
	CHECK_FALSE(fs::exists(dir / "settings.json"));
}

TEST_CASE("settings that can't be kept or published are refused")
{
	TempDir dir;
	Settings no_state(dir / "missing/settings.json", dir / "control");
	no_state.load();
	CHECK(code_of([&] { no_state.set({{"pipeline_depth", 8}}); }) == "A402");
	CHECK(no_state.all()["pipeline_depth"] == nullptr);
	CHECK(page_of(dir / "control").pipeline_depth == 0);

	put(dir / "elsewhere", "precious");
	fs::create_symlink(dir / "elsewhere", dir / "link");
	Settings no_page(dir / "settings.json", dir / "link");
	no_page.load();
	CHECK(code_of([&] { no_page.set({{"pipeline_depth", 8}}); }) == "A402");
	CHECK(take(dir / "elsewhere") == "precious");

	put(dir / "settings.json", "{\"pipeline_depth\":99999}");
	Settings damaged(dir / "settings.json", dir / "control");
	damaged.load();
	CHECK(damaged.all()["pipeline_depth"] == nullptr);
}
