// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace stepccl::agent {

/// The last events of one run as JSON texts, numbered from 1; bounded in number and in bytes.
class EventLog {
public:
	static constexpr std::size_t kMaxEvents = 4096;
	static constexpr std::size_t kMaxBytes = 1024 * 1024;

	/// Keeps the text (the oldest go when it gets too much) and returns its number.
	std::uint64_t add(std::string text)
	{
		bytes_ += text.size();
		texts_.push_back(std::move(text));
		while (texts_.size() > kMaxEvents || (bytes_ > kMaxBytes && texts_.size() > 1)) {
			bytes_ -= texts_.front().size();
			texts_.pop_front();
			first_seq_++;
		}
		return next_seq() - 1;
	}

	[[nodiscard]] std::uint64_t first_seq() const noexcept { return first_seq_; }
	[[nodiscard]] std::uint64_t next_seq() const noexcept { return first_seq_ + texts_.size(); }
	[[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

	/// `seq` must lie in [first_seq, next_seq).
	[[nodiscard]] const std::string &text(std::uint64_t seq) const { return texts_[static_cast<std::size_t>(seq - first_seq_)]; }

private:
	std::deque<std::string> texts_;
	std::uint64_t first_seq_ = 1;
	std::size_t bytes_ = 0;
};

} // namespace stepccl::agent
