// SPDX-License-Identifier: Apache-2.0
// Prints this node's GPUs as one JSON object, through NVML where the driver is installed. The daemon is static and can't load a
// library: it runs this. Members as in agent/PROTOCOL.md, facts.get.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::ordered_json;

// The part of NVML's stable C interface that is used (nvml.h, versioned symbols).
using Device = struct NvmlDevice*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int type;
  int result;
  unsigned long long value;
};
constexpr unsigned kLinkTxKib = 138;  // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, of the link in `scope`
constexpr unsigned kLinkRxKib = 139;
constexpr int kSuccess = 0;
constexpr unsigned kMaxLinks = 18;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_pci)(Device, unsigned, PciInfo*) = nullptr;
  int (*fields)(Device, int, FieldValue*) = nullptr;
};

// The name of the first symbol that is missing, or nullptr.
const char* bind(void* library, Nvml& nvml) {
  const char* missing = nullptr;
  const auto load = [&](auto& function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && missing == nullptr) missing = name;
    std::memcpy(&function, &symbol, sizeof symbol);
  };
  load(nvml.init, "nvmlInit_v2");
  load(nvml.shutdown, "nvmlShutdown");
  load(nvml.error_string, "nvmlErrorString");
  load(nvml.driver_version, "nvmlSystemGetDriverVersion");
  load(nvml.cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
  load(nvml.count, "nvmlDeviceGetCount_v2");
  load(nvml.by_index, "nvmlDeviceGetHandleByIndex_v2");
  load(nvml.uuid, "nvmlDeviceGetUUID");
  load(nvml.name, "nvmlDeviceGetName");
  load(nvml.pci, "nvmlDeviceGetPciInfo_v3");
  load(nvml.memory, "nvmlDeviceGetMemoryInfo");
  load(nvml.link_state, "nvmlDeviceGetNvLinkState");
  load(nvml.link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  load(nvml.fields, "nvmlDeviceGetFieldValues");
  return missing;
}

// "00000000:17:00.0" as sysfs writes it: "0000:17:00.0".
std::string sysfs_address(const PciInfo& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
  return text;
}

Json numa_node_of(const std::string& address) {
  std::ifstream file("/sys/bus/pci/devices/" + address + "/numa_node");
  int node = -1;
  return (file >> node) && node >= 0 ? Json(node) : Json(nullptr);
}

Json describe(const Nvml& nvml, unsigned index, Device device, const std::string& driver, const Json& cuda) {
  Json gpu{{"index", index}, {"uuid", nullptr}, {"name", nullptr}, {"pci", nullptr}, {"numa_node", nullptr},
           {"memory_total_bytes", nullptr}, {"memory_used_bytes", nullptr}, {"driver_version", driver}, {"cuda_version", cuda},
           {"nvlinks", Json::array()}};
  char text[128] = "";
  if (nvml.uuid(device, text, sizeof text) == kSuccess) gpu["uuid"] = text;
  if (nvml.name(device, text, sizeof text) == kSuccess) gpu["name"] = text;
  PciInfo pci{};
  if (nvml.pci(device, &pci) == kSuccess) {
    gpu["pci"] = sysfs_address(pci);
    gpu["numa_node"] = numa_node_of(sysfs_address(pci));
  }
  Memory memory{};
  if (nvml.memory(device, &memory) == kSuccess) {
    gpu["memory_total_bytes"] = memory.total;
    gpu["memory_used_bytes"] = memory.used;
  }
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned active = 0;
    if (nvml.link_state(device, link, &active) != kSuccess) continue;  // this GPU has no such link
    Json entry{{"link", link}, {"active", active == 1}, {"peer_pci", nullptr}, {"rx_bytes", nullptr}, {"tx_bytes", nullptr}};
    PciInfo peer{};
    // Inside a virtual machine NVML answers with an address of all ones: the peer's is not known there.
    if (active == 1 && nvml.link_pci(device, link, &peer) == kSuccess && peer.domain != ~0u) entry["peer_pci"] = sysfs_address(peer);
    FieldValue counters[2] = {{kLinkTxKib, link, 0, 0, 0, 0, 0}, {kLinkRxKib, link, 0, 0, 0, 0, 0}};
    if (nvml.fields(device, 2, counters) == kSuccess) {
      if (counters[0].result == kSuccess) entry["tx_bytes"] = counters[0].value * 1024;
      if (counters[1].result == kSuccess) entry["rx_bytes"] = counters[1].value * 1024;
    }
    gpu["nvlinks"].push_back(entry);
  }
  return gpu;
}

Json collect() {
  Json result{{"gpus", Json::array()}};
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    result["reason"] = "libnvidia-ml.so.1 is not installed: no NVIDIA driver";
    return result;
  }
  Nvml nvml;
  if (const char* missing = bind(library, nvml)) {
    result["reason"] = std::string("libnvidia-ml.so.1 lacks ") + missing;
    return result;
  }
  if (const int error = nvml.init(); error != kSuccess) {
    result["reason"] = std::string("nvmlInit: ") + nvml.error_string(error);
    return result;
  }
  char driver[96] = "";
  nvml.driver_version(driver, sizeof driver);
  int cuda = 0;
  const Json cuda_version = nvml.cuda_version(&cuda) == kSuccess ? Json(std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10)) : Json(nullptr);
  result["driver_version"] = driver;
  unsigned count = 0;
  if (const int error = nvml.count(&count); error != kSuccess) result["reason"] = std::string("nvmlDeviceGetCount: ") + nvml.error_string(error);
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    if (const int error = nvml.by_index(index, &device); error != kSuccess) {
      result["unreadable"].push_back({{"index", index}, {"message", nvml.error_string(error)}});
      continue;
    }
    result["gpus"].push_back(describe(nvml, index, device, driver, cuda_version));
  }
  nvml.shutdown();
  return result;
}

}  // namespace

int main() {
  std::puts(collect().dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}
