// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gpu/expected.hpp"

namespace gpu {

// Prints the line of one check and gives `well` back. Rank 0's or the parent's to call.
bool report(const char* part, const std::string& name, bool well, const std::string& detail = {});
// Runs a case and counts the bytes that are wrong, those behind the output included.
std::uint64_t wrong_bytes(const Rank& self, const Case& c, CUdeviceptr send, CUdeviceptr recv, std::uint32_t path, const char* what);

// most: elements of the largest call.
void check_values(Rank& self, std::uint64_t most = UINT64_MAX);
void check_graphs(Rank& self);
void check_paging(Rank& self);
void check_defrag(Rank& self);
// Jobs of their own, in which a rank goes wrong on purpose.
bool check_failures(std::uint32_t world);

}  // namespace gpu
