// SPDX-License-Identifier: Apache-2.0
// The telemetry frame as columns: one typed array per field. Everything is copied, nothing points into the frame.
#include <cstdio>
#include <string>

#include "addon.hpp"
#include "stepccl/stepccl.h"
#include "stepccl/telemetry_frame.hpp"

namespace addon {
namespace {

using stepccl::telemetry::Frame;
using stepccl::telemetry::FrameError;

// A column of numbers. Array is the typed array's class; 64-bit counters become doubles, exact below 2^53.
template <class Array, class Item, class Field>
Array column(Napi::Env env, const std::vector<Item>& items, Field field) {
  Array array = Array::New(env, items.size());
  auto* data = array.Data();
  for (std::size_t i = 0; i < items.size(); ++i) data[i] = static_cast<std::remove_reference_t<decltype(data[0])>>(items[i].*field);
  return array;
}

// A name from a node: cut at the first NUL, bytes outside printable ASCII replaced.
std::string printable(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text;
}

// A communicator's id, 16 hexadecimal digits: a key, not a number.
template <class Item>
Napi::Array comm_ids(Napi::Env env, const std::vector<Item>& items) {
  Napi::Array array = Napi::Array::New(env, items.size());
  char text[17];
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(items[i].comm_id));
    array[static_cast<std::uint32_t>(i)] = Napi::String::New(env, text, 16);
  }
  return array;
}

Napi::Object nic_columns(Napi::Env env, const std::vector<stepccl_frame_nic>& nics) {
  Napi::Object object = Napi::Object::New(env);
  Napi::Array names = Napi::Array::New(env, nics.size());
  for (std::size_t i = 0; i < nics.size(); ++i) {
    names[static_cast<std::uint32_t>(i)] = Napi::String::New(env, printable(stepccl::telemetry::name_of(nics[i].name)));
  }
  using N = stepccl_frame_nic;
  object.Set("name", names);
  object.Set("kind", column<Napi::Uint8Array>(env, nics, &N::kind));
  object.Set("port", column<Napi::Uint8Array>(env, nics, &N::port));
  object.Set("state", column<Napi::Uint8Array>(env, nics, &N::state));
  object.Set("speedMbps", column<Napi::Uint32Array>(env, nics, &N::speed_mbps));
  object.Set("txBytes", column<Napi::Float64Array>(env, nics, &N::tx_bytes));
  object.Set("rxBytes", column<Napi::Float64Array>(env, nics, &N::rx_bytes));
  object.Set("txPackets", column<Napi::Float64Array>(env, nics, &N::tx_packets));
  object.Set("rxPackets", column<Napi::Float64Array>(env, nics, &N::rx_packets));
  object.Set("errors", column<Napi::Float64Array>(env, nics, &N::errors));
  object.Set("drops", column<Napi::Float64Array>(env, nics, &N::drops));
  return object;
}

Napi::Object flow_columns(Napi::Env env, const std::vector<stepccl_frame_flow>& flows) {
  Napi::Object object = Napi::Object::New(env);
  using F = stepccl_frame_flow;
  object.Set("commId", comm_ids(env, flows));
  object.Set("rank", column<Napi::Uint32Array>(env, flows, &F::rank));
  object.Set("peerRank", column<Napi::Uint32Array>(env, flows, &F::peer_rank));
  object.Set("peerNode", column<Napi::Uint16Array>(env, flows, &F::peer_node));
  object.Set("transport", column<Napi::Uint8Array>(env, flows, &F::transport));
  object.Set("queueDepth", column<Napi::Uint32Array>(env, flows, &F::queue_depth));
  object.Set("txBytes", column<Napi::Float64Array>(env, flows, &F::tx_bytes));
  object.Set("rxBytes", column<Napi::Float64Array>(env, flows, &F::rx_bytes));
  object.Set("txOps", column<Napi::Float64Array>(env, flows, &F::tx_ops));
  object.Set("rxOps", column<Napi::Float64Array>(env, flows, &F::rx_ops));
  object.Set("errors", column<Napi::Float64Array>(env, flows, &F::errors));
  return object;
}

Napi::Object op_columns(Napi::Env env, const std::vector<stepccl_frame_op>& ops) {
  Napi::Object object = Napi::Object::New(env);
  using O = stepccl_frame_op;
  object.Set("commId", comm_ids(env, ops));
  object.Set("sequence", column<Napi::Float64Array>(env, ops, &O::sequence));
  object.Set("beginNs", column<Napi::Float64Array>(env, ops, &O::begin_ns));
  object.Set("endNs", column<Napi::Float64Array>(env, ops, &O::end_ns));
  object.Set("bytes", column<Napi::Float64Array>(env, ops, &O::bytes));
  object.Set("smNs", column<Napi::Float64Array>(env, ops, &O::sm_ns));
  object.Set("rank", column<Napi::Uint32Array>(env, ops, &O::rank));
  object.Set("worldSize", column<Napi::Uint32Array>(env, ops, &O::world_size));
  object.Set("state", column<Napi::Uint8Array>(env, ops, &O::state));
  object.Set("collective", column<Napi::Uint8Array>(env, ops, &O::collective));
  object.Set("algorithm", column<Napi::Uint8Array>(env, ops, &O::algorithm));
  object.Set("transport", column<Napi::Uint8Array>(env, ops, &O::transport));
  object.Set("datatype", column<Napi::Uint8Array>(env, ops, &O::datatype));
  object.Set("redop", column<Napi::Uint8Array>(env, ops, &O::redop));
  object.Set("error", column<Napi::Uint16Array>(env, ops, &O::error));
  return object;
}

}  // namespace

Napi::Value decode_telemetry_frame(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (info.Length() < 1 || !info[0].IsTypedArray() || info[0].As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    throw Napi::TypeError::New(env, "decodeTelemetryFrame takes a Uint8Array");
  }
  const auto bytes = info[0].As<Napi::Uint8Array>();
  Frame frame;
  const std::span<const std::byte> view(reinterpret_cast<const std::byte*>(bytes.Data()), bytes.ByteLength());
  if (const FrameError error = stepccl::telemetry::decode_frame(view, frame); error != FrameError::none) {
    const std::string reason(stepccl::telemetry::to_string(error));
    Napi::Error refused = coded_error(env, "TELEMETRY_FRAME_INVALID", "not a telemetry frame: " + reason);
    refused.Set("reason", Napi::String::New(env, reason));
    throw refused;
  }
  const stepccl_frame_header& header = frame.header;
  Napi::Object object = Napi::Object::New(env);
  const auto number = [&](const char* name, auto value) { object.Set(name, Napi::Number::New(env, static_cast<double>(value))); };
  if (header.node == STEPCCL_NODE_UNKNOWN) {
    object.Set("node", env.Null());
  } else {
    number("node", header.node);
  }
  number("intervalMs", header.interval_ms);
  number("sequence", header.sequence);
  object.Set("monotonicNs", Napi::BigInt::New(env, std::uint64_t{header.monotonic_ns}));
  object.Set("realtimeNs", Napi::BigInt::New(env, std::uint64_t{header.realtime_ns}));
  number("lostOps", header.lost_ops);
  number("rankCount", header.rank_count);
  number("daemonRssKib", header.daemon_rss_kib);
  number("cpuPermille", header.cpu_permille);
  number("memAvailableBytes", header.mem_available_bytes);
  object.Set("nics", nic_columns(env, frame.nics));
  object.Set("flows", flow_columns(env, frame.flows));
  object.Set("ops", op_columns(env, frame.ops));
  return object;
}

}  // namespace addon
