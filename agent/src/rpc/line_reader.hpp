// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stepccl::agent {

/// Cuts a foreign byte stream into lines of bounded length.
class LineReader {
public:
	enum class Kind {
		kLine,   ///< a whole line, without its end
		kCut,    ///< the first max_bytes of a line that is longer; the rest of it is dropped
	};

	explicit LineReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}

	/// Takes the bytes and calls `take(kind, line)` for each line; `take` returns false to stop at once
	/// (the rest of the bytes is then dropped, and the reader must not be fed again).
	template <typename Take>
	bool feed(std::string_view bytes, Take &&take)
	{
		while (!bytes.empty()) {
			const auto end = bytes.find('\n');
			const bool whole = end != std::string_view::npos;
			const std::string_view part = bytes.substr(0, end);
			bytes.remove_prefix(whole ? end + 1 : bytes.size());
			if (dropping_) {
				dropping_ = !whole;
				continue;
			}
			if (pending_.size() + part.size() > max_bytes_) {
				pending_.append(part.substr(0, max_bytes_ - pending_.size()));
				dropping_ = !whole;
				if (!emit(take, Kind::kCut))
					return false;
				continue;
			}
			if (whole && pending_.empty()) {
				if (!take(Kind::kLine, part))
					return false;
				continue;
			}
			pending_.append(part);
			if (whole && !emit(take, Kind::kLine))
				return false;
		}
		return true;
	}

	/// What came after the last line's end, when the stream is over; empty where nothing did.
	template <typename Take>
	void finish(Take &&take)
	{
		if (!pending_.empty())
			(void)emit(take, Kind::kLine);
		dropping_ = false;
	}

	[[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_.size(); }

private:
	template <typename Take>
	bool emit(Take &take, Kind kind)
	{
		std::string line;
		line.swap(pending_); // A long line's memory goes back with it.
		return take(kind, std::string_view(line));
	}

	std::size_t max_bytes_;
	std::string pending_;
	bool dropping_ = false;
};

} // namespace stepccl::agent
