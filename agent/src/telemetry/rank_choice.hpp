// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "rpc/errors.hpp"
#include "rpc/params.hpp"

namespace stepccl::agent {

/// Which ranks a request asks for: its members "communicator" (16 hexadecimal digits) and "rank", each all where missing or null.
class RankChoice {
public:
	/// Throws RpcError (A101) for a member that is none of these.
	explicit RankChoice(const Params &params)
	{
		if (!params.is_null("communicator")) {
			const std::string text = params.token("communicator", 16, "");
			communicator_ = parse_u64(text, 16);
			if (!communicator_ || text.size() != 16)
				throw bad_param("communicator", "must be 16 hexadecimal digits");
		}
		if (!params.is_null("rank"))
			rank_ = static_cast<std::uint32_t>(params.integer("rank", 0, 0xffffffff));
	}

	[[nodiscard]] bool has(std::uint64_t communicator, std::uint32_t rank) const
	{
		return communicator_.value_or(communicator) == communicator && rank_.value_or(rank) == rank;
	}

private:
	std::optional<std::uint64_t> communicator_;
	std::optional<std::uint32_t> rank_;
};

} // namespace stepccl::agent
