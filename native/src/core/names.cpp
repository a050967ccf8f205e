// SPDX-License-Identifier: Apache-2.0
#include "core/names.hpp"

#include <array>
#include <cstddef>

namespace {

struct DatatypeRow {
  const char* name;
  const char* alias;
  std::size_t bytes;
};

constexpr std::array<DatatypeRow, STEPCCL_DATATYPE_COUNT> kDatatypes{{
    {"int8", "char", 1},
    {"uint8", "uchar", 1},
    {"int32", "int", 4},
    {"uint32", "uint", 4},
    {"int64", "long", 8},
    {"uint64", "ulong", 8},
    {"half", "fp16", 2},
    {"bfloat16", "bf16", 2},
    {"float", "fp32", 4},
    {"double", "fp64", 8},
}};

constexpr std::array<const char*, STEPCCL_REDOP_COUNT> kRedops{"sum", "prod", "min", "max", "avg"};

constexpr std::array<const char*, STEPCCL_COLLECTIVE_COUNT> kCollectives{
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "scatter",    "gather",     "all_to_all",     "send_recv", "barrier"};

constexpr std::array<const char*, STEPCCL_ALGORITHM_COUNT> kAlgorithms{
    "auto",           "ring",           "tree",          "double_binary_tree", "recursive_doubling",
    "halving_doubling", "direct_one_shot", "direct_two_shot", "hierarchical",  "pairwise",
    "bruck",          "binomial",       "chain",         "dissemination"};

constexpr std::array<const char*, 6> kTransports{"none", "shm", "tcp", "rdma", "dma", "gpu_peer"};

template <std::size_t N>
constexpr const char* at(const std::array<const char*, N>& names, unsigned index) noexcept {
  return index < N ? names[index] : "unknown";
}

template <class E, std::size_t N>
std::optional<E> index_of(const std::array<const char*, N>& names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace

namespace stepccl {

std::optional<stepccl_datatype_t> datatype_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kDatatypes.size(); ++i) {
    if (name == kDatatypes[i].name || name == kDatatypes[i].alias) return static_cast<stepccl_datatype_t>(i);
  }
  if (name == "float16") return STEPCCL_FLOAT16;
  if (name == "float32") return STEPCCL_FLOAT32;
  if (name == "float64") return STEPCCL_FLOAT64;
  return std::nullopt;
}

std::optional<stepccl_redop_t> redop_from_name(std::string_view name) noexcept { return index_of<stepccl_redop_t>(kRedops, name); }

std::optional<stepccl_collective_t> collective_from_name(std::string_view name) noexcept {
  return index_of<stepccl_collective_t>(kCollectives, name);
}

std::optional<stepccl_algorithm_t> algorithm_from_name(std::string_view name) noexcept {
  return index_of<stepccl_algorithm_t>(kAlgorithms, name);
}

std::optional<stepccl_transport> transport_from_name(std::string_view name) noexcept {
  if (name == "auto") return STEPCCL_TRANSPORT_NONE;
  return index_of<stepccl_transport>(kTransports, name);
}

}  // namespace stepccl

extern "C" {

size_t stepccl_datatype_bytes(stepccl_datatype_t datatype) noexcept {
  const auto index = static_cast<unsigned>(datatype);
  return index < kDatatypes.size() ? kDatatypes[index].bytes : 0;
}

const char* stepccl_datatype_name(stepccl_datatype_t datatype) noexcept {
  const auto index = static_cast<unsigned>(datatype);
  return index < kDatatypes.size() ? kDatatypes[index].name : "unknown";
}

const char* stepccl_redop_name(stepccl_redop_t redop) noexcept { return at(kRedops, static_cast<unsigned>(redop)); }
const char* stepccl_collective_name(stepccl_collective_t collective) noexcept {
  return at(kCollectives, static_cast<unsigned>(collective));
}
const char* stepccl_algorithm_name(stepccl_algorithm_t algorithm) noexcept {
  return at(kAlgorithms, static_cast<unsigned>(algorithm));
}
const char* stepccl_transport_name(enum stepccl_transport transport) noexcept {
  return at(kTransports, static_cast<unsigned>(transport));
}

}  // extern "C"
