// SPDX-License-Identifier: Apache-2.0
// Predicted times, one function per row of the table in algorithms.cpp. After Thakur, Rabenseifner and Gropp, "Optimization
// of Collective Communication Operations in MPICH" (2005), with CostModel's parameters; S is the full array, n the ranks.
#pragma once

#include "schedule/schedule.hpp"

namespace stepccl::schedule::cost {

double ring_all_reduce(std::uint32_t n, double S, const CostModel& m);
double ring_gather(std::uint32_t n, double S, const CostModel& m);  // all_gather
double ring_scatter(std::uint32_t n, double S, const CostModel& m);  // reduce_scatter
double ring_broadcast(std::uint32_t n, double S, const CostModel& m);
double recursive_doubling(std::uint32_t n, double S, const CostModel& m);
double halving_doubling(std::uint32_t n, double S, const CostModel& m);
double halving(std::uint32_t n, double S, const CostModel& m);  // reduce_scatter
double one_shot(std::uint32_t n, double S, const CostModel& m);
double two_shot(std::uint32_t n, double S, const CostModel& m);
double direct_all_gather(std::uint32_t n, double S, const CostModel& m);
double direct_reduce_scatter(std::uint32_t n, double S, const CostModel& m);
double direct_broadcast(std::uint32_t n, double S, const CostModel& m);
double direct_reduce(std::uint32_t n, double S, const CostModel& m);
double direct_blocks(std::uint32_t n, double S, const CostModel& m);  // scatter, gather
double tree_all_reduce(std::uint32_t n, double S, const CostModel& m);
double double_binary_tree(std::uint32_t n, double S, const CostModel& m);
double tree_broadcast(std::uint32_t n, double S, const CostModel& m);
double tree_reduce(std::uint32_t n, double S, const CostModel& m);
double binomial_broadcast(std::uint32_t n, double S, const CostModel& m);
double binomial_reduce(std::uint32_t n, double S, const CostModel& m);
double binomial_blocks(std::uint32_t n, double S, const CostModel& m);  // scatter, gather
double chain_broadcast(std::uint32_t n, double S, const CostModel& m);
double chain_reduce(std::uint32_t n, double S, const CostModel& m);
double bruck_all_gather(std::uint32_t n, double S, const CostModel& m);
double pairwise(std::uint32_t n, double S, const CostModel& m);
double direct_all_to_all(std::uint32_t n, double S, const CostModel& m);
double bruck_all_to_all(std::uint32_t n, double S, const CostModel& m);
double hierarchical_all_reduce(std::uint32_t n, double S, const CostModel& m);
double hierarchical_all_gather(std::uint32_t n, double S, const CostModel& m);
double hierarchical_broadcast(std::uint32_t n, double S, const CostModel& m);
double hierarchical_reduce(std::uint32_t n, double S, const CostModel& m);
double hierarchical_reduce_scatter(std::uint32_t n, double S, const CostModel& m);
double hierarchical_blocks(std::uint32_t n, double S, const CostModel& m);  // scatter, gather
double hierarchical_all_to_all(std::uint32_t n, double S, const CostModel& m);
double hierarchical_barrier(std::uint32_t n, double S, const CostModel& m);
double dissemination(std::uint32_t n, double S, const CostModel& m);

}  // namespace stepccl::schedule::cost
