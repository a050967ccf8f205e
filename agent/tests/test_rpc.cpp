// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "rpc/json_text.hpp"
#include "rpc/line_reader.hpp"
#include "rpc/params.hpp"
#include "rpc/request.hpp"
#include "support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

std::vector<std::string> lines_of(std::string_view bytes, std::size_t piece, std::size_t max)
{
	std::vector<std::string> out;
	LineReader reader(max);
	const auto take = [&](LineReader::Kind kind, std::string_view line) {
		out.push_back((kind == LineReader::Kind::kCut ? "cut:" : "") + std::string(line));
		return true;
	};
	for (std::size_t at = 0; at < bytes.size(); at += piece)
		reader.feed(bytes.substr(at, piece), take);
	reader.finish(take);
	return out;
}

int rpc_code(std::string_view line)
{
	const auto parsed = parse_request(line);
	const auto *bad = std::get_if<BadRequest>(&parsed);
	return bad ? bad->error.rpc_code() : 0;
}

} // namespace

TEST_CASE("lines are the same however the stream is cut")
{
	const std::string stream = "one\n\ntwo\nlonger than ten bytes\nlast";
	const std::vector<std::string> expected{"one", "", "two", "cut:longer tha", "last"};
	for (std::size_t piece = 1; piece <= stream.size(); piece++)
		CHECK(lines_of(stream, piece, 10) == expected);
}

TEST_CASE("a line of exactly the limit is whole")
{
	CHECK(lines_of("0123456789\n", 3, 10) == std::vector<std::string>{"0123456789"});
	CHECK(lines_of("01234567890\n", 3, 10) == std::vector<std::string>{"cut:0123456789"});
}

TEST_CASE("the reader stops where it is told")
{
	LineReader reader(10);
	int calls = 0;
	CHECK_FALSE(reader.feed("a\nb\nc\n", [&](LineReader::Kind, std::string_view) { return ++calls < 2; }));
	CHECK(calls == 2);
}

TEST_CASE("requests of every malformed kind")
{
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":1,"method":"hello","params":{}})") == 0);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":"a","method":"hello"})") == 0);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","method":"hello"})") == 0);
	CHECK(rpc_code("") == kParseError);
	CHECK(rpc_code("{") == kParseError);
	CHECK(rpc_code("{} x") == kParseError);
	CHECK(rpc_code("\xff\xfe") == kParseError);
	CHECK(rpc_code("{\"a\":\"\xc3(\"}") == kParseError);
	CHECK(rpc_code(std::string(1000, '[')) == kParseError);
	CHECK(rpc_code(std::string(33, '[') + std::string(33, ']')) == kParseError);
	CHECK(rpc_code(std::string("{\"\0\":1}", 8)) == kParseError);
	CHECK(rpc_code("[]") == kInvalidRequest);
	CHECK(rpc_code(R"([{"jsonrpc":"2.0","id":1,"method":"hello"}])") == kInvalidRequest);
	CHECK(rpc_code("1") == kInvalidRequest);
	CHECK(rpc_code("null") == kInvalidRequest);
	CHECK(rpc_code("{}") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":"1.0","id":1,"method":"hello"})") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":2.0,"id":1,"method":"hello"})") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":1.5,"method":"hello"})") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":{},"method":"hello"})") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":1,"method":5})") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":1,"method":"hello","extra":1})") == kInvalidRequest);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":1,"method":"hello","params":[]})") == kInvalidParams);
	CHECK(rpc_code(R"({"jsonrpc":"2.0","id":1,"method":"hello","params":null})") == kInvalidParams);
}

TEST_CASE("an error keeps the id where one could be read")
{
	const auto parsed = parse_request(R"({"jsonrpc":"2.0","id":"x","method":7})");
	CHECK(std::get<BadRequest>(parsed).id == "x");
	const json line = json::parse(error_line("x", std::get<BadRequest>(parsed).error));
	CHECK(line["id"] == "x");
	CHECK(line["error"]["data"]["code"] == "A101");
	CHECK(line["error"]["data"]["next"].is_string());
	CHECK(line["error"]["data"]["detail"].is_object());
}

TEST_CASE("what is sent is JSON and one line, whatever it holds")
{
	const std::string line = to_line({{"name", std::string("a\n\xff\x01")}});
	CHECK(line.find('\n') == std::string::npos);
	CHECK(json::accept(line));
	const std::string id = "\n\"\\";
	CHECK(json::parse(result_line(id, "{}"))["id"] == id);
}

TEST_CASE("depth is counted outside of strings only")
{
	CHECK(depth_within(R"({"a":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})"));
	CHECK(depth_within(R"({"a":"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})"));
	CHECK_FALSE(depth_within(std::string(33, '{')));
	CHECK(depth_within("[[[]]]", 3));
	CHECK_FALSE(depth_within("[[[]]]", 2));
	CHECK(depth_within("\"abc\\"));
}

TEST_CASE("parameters are checked one by one and named in the error")
{
	const json object = {{"n", 5}, {"big", 18446744073709551615u}, {"f", 1.5}, {"s", "text"}, {"b", true}, {"z", nullptr}, {"l", json::array({1, 2})}};
	const Params params(object, {"n", "big", "f", "s", "b", "z", "l"}, "outer");
	CHECK(params.integer("n", 1, 5) == 5);
	CHECK(message_of([&] { (void)params.integer("n", 6, 9); }) == "The parameter \"outer.n\" must be an integer from 6 to 9.");
	CHECK(code_of([&] { (void)params.integer("big", 0, INT64_MAX); }) == "A101");
	CHECK(code_of([&] { (void)params.integer("f", 0, 9); }) == "A101");
	CHECK(code_of([&] { (void)params.integer("missing", 0, 9); }) == "A101");
	CHECK(params.text("s", 1, 4) == "text");
	CHECK(code_of([&] { (void)params.text("s", 5, 9); }) == "A101");
	CHECK(code_of([&] { (void)params.boolean("n"); }) == "A101");
	CHECK(params.is_null("z"));
	CHECK(params.is_null("missing"));
	CHECK(params.array("l", 2, 2).size() == 2);
	CHECK(code_of([&] { (void)params.array("l", 3, 4); }) == "A101");
	CHECK(message_of([&] { (void)params.one_of("s", {"a", "b"}); }) == "The parameter \"outer.s\" must be one of a, b.");
	const json extra = {{"extra\n", 1}};
	CHECK(message_of([&] { const Params p(extra, {"n"}); }) == "The parameter \"extra?\" is not known here.");
	const json list = json::array();
	CHECK(code_of([&] { const Params p(list, {}); }) == "A101");
	const json hostile = {{"control", "x\ny"}, {"address", "1.2.3"}, {"token", "../x"}};
	const Params others(hostile, {"control", "address", "token"});
	CHECK(code_of([&] { (void)others.text("control", 1, 9); }) == "A101");
	CHECK(code_of([&] { (void)others.ip_address("address"); }) == "A101");
	CHECK(code_of([&] { (void)others.token("token", 9); }) == "A101");
}
