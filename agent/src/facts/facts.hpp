// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cluster/netlink.hpp"
#include "facts/rdma_ports.hpp"
#include "facts/sys_tree.hpp"

namespace stepccl::agent {

// Each collects one member of facts.get as PROTOCOL.md lists it. What can't be read is null and noted
// in the tree's list of unreadable things.

nlohmann::json os_facts(SysTree &tree);
nlohmann::json kernel_facts(SysTree &tree);
nlohmann::json cpu_facts(SysTree &tree);
nlohmann::json memory_facts(SysTree &tree);
nlohmann::json limit_facts();
/// `addresses` are the machine's own, from the kernel.
nlohmann::json nic_facts(SysTree &tree, const std::vector<InterfaceAddress> &addresses);
nlohmann::json rdma_facts(SysTree &tree, RdmaPorts &links);
nlohmann::json driver_facts(SysTree &tree);

/// Names the RDMA device of each NIC, by the netdev that the RDMA device says it runs on.
void join_nics_and_rdma(nlohmann::json &nics, const nlohmann::json &rdma);

/// What the GPU helper knows, and what it could not read.
struct GpuFacts {
	nlohmann::json gpus = nlohmann::json::array();
	std::vector<std::string> problems;
};

/// Rebuilds what the GPU helper printed ({"gpus": [...], "reason", "unreadable"}) member by member, so that
/// nothing unexpected passes. A GPU that lacks a member is left out and told among the problems. Throws
/// std::runtime_error with a sentence where the text is no such object.
GpuFacts gpu_facts_from_helper(const std::string &text);

/// Everything but the GPUs and `unreadable`.
nlohmann::json collect_facts(SysTree &tree, RdmaPorts &links, const std::vector<InterfaceAddress> &addresses);

} // namespace stepccl::agent
