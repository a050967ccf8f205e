// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs.hpp"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/env.hpp"

namespace stepccl::transport {
namespace {

Error unavailable(std::string cause) {
  return make_error(STEPCCL_ERROR_TRANSPORT_UNAVAILABLE, STEPCCL_PHASE_CONNECT, std::move(cause), -1, STEPCCL_TRANSPORT_RDMA);
}

std::atomic<const VerbsApi*> other_api{nullptr};

struct Loaded {
  VerbsApi api;
  std::string problem;
};

Loaded load() {
  Loaded loaded;
  void* library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.problem = "libibverbs.so.1 can't be loaded (package libibverbs1)";
    return loaded;
  }
  const auto bind = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(library, name);
    if (symbol == nullptr && loaded.problem.empty()) loaded.problem = std::string("libibverbs.so.1 lacks ") + name;
    std::memcpy(&function, &symbol, sizeof symbol);
  };
  VerbsApi& api = loaded.api;
  bind(api.get_device_list, "ibv_get_device_list");
  bind(api.free_device_list, "ibv_free_device_list");
  bind(api.get_device_name, "ibv_get_device_name");
  bind(api.open_device, "ibv_open_device");
  bind(api.close_device, "ibv_close_device");
  bind(api.query_port, "ibv_query_port");
  bind(api.alloc_pd, "ibv_alloc_pd");
  bind(api.dealloc_pd, "ibv_dealloc_pd");
  bind(api.reg_mr, "ibv_reg_mr");
  bind(api.dereg_mr, "ibv_dereg_mr");
  bind(api.create_comp_channel, "ibv_create_comp_channel");
  bind(api.destroy_comp_channel, "ibv_destroy_comp_channel");
  bind(api.create_cq, "ibv_create_cq");
  bind(api.destroy_cq, "ibv_destroy_cq");
  bind(api.get_cq_event, "ibv_get_cq_event");
  bind(api.ack_cq_events, "ibv_ack_cq_events");
  bind(api.create_qp, "ibv_create_qp");
  bind(api.modify_qp, "ibv_modify_qp");
  bind(api.destroy_qp, "ibv_destroy_qp");
  bind(api.wc_status_str, "ibv_wc_status_str");
  return loaded;
}

// The first line of a sysfs file; empty where it can't be read.
std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

// What a GID looks like that stands for the address: IPv4 is mapped (::ffff:a.b.c.d).
std::array<std::uint8_t, 16> gid_of(const bootstrap::Endpoint& endpoint) {
  if (endpoint.family == 6) return endpoint.address;
  std::array<std::uint8_t, 16> gid{};
  gid[10] = gid[11] = 0xff;
  std::copy_n(endpoint.address.begin(), 4, gid.begin() + 12);
  return gid;
}

bool is_mapped_ipv4(const std::array<std::uint8_t, 16>& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](auto byte) { return byte == 0; }) && gid[10] == 0xff && gid[11] == 0xff;
}

std::string address_text(const bootstrap::Endpoint& endpoint) {
  const std::string text = endpoint.to_string();
  return text.substr(0, text.rfind(':'));
}

// Chooses the GID of one RoCE port, or says why there is none.
std::optional<std::string> choose_gid(const std::string& port_path, const bootstrap::Endpoint& address, const RdmaChoice& choice, RdmaDevice& device) {
  const auto use = [&](std::uint16_t index, const std::array<std::uint8_t, 16>& gid) {
    device.gid_index = index;
    device.gid = gid;
  };
  if (choice.gid_index >= 0) {
    const auto gid = parse_gid(read_line(port_path + "/gids/" + std::to_string(choice.gid_index)));
    if (!gid || std::all_of(gid->begin(), gid->end(), [](auto byte) { return byte == 0; })) {
      return "GID index " + std::to_string(choice.gid_index) + " is empty";
    }
    use(static_cast<std::uint16_t>(choice.gid_index), *gid);
    return std::nullopt;
  }
  const auto wanted = gid_of(address);
  std::optional<std::pair<std::uint16_t, std::array<std::uint8_t, 16>>> other;
  for (const std::string& name : list_directory(port_path + "/gids")) {
    std::uint16_t index = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), index).ec != std::errc{}) continue;
    if (read_line(port_path + "/gid_attrs/types/" + name) != "RoCE v2") continue;
    const auto gid = parse_gid(read_line(port_path + "/gids/" + name));
    if (!gid) continue;
    if (*gid == wanted) {
      use(index, *gid);
      return std::nullopt;
    }
    if (is_mapped_ipv4(*gid) && (!other || index < other->first)) other = {index, *gid};
  }
  // A device that the user has named serves with whatever IPv4 GID it has.
  if (!choice.hca.empty() && other) {
    use(other->first, other->second);
    return std::nullopt;
  }
  return "no RoCE v2 GID is " + address_text(address);
}

}  // namespace

void use_verbs(const VerbsApi* api) noexcept { other_api.store(api); }

Expected<const VerbsApi*> load_verbs() {
  if (const VerbsApi* api = other_api.load(); api != nullptr) return api;
  static const Loaded loaded = load();
  if (!loaded.problem.empty()) return unavailable(loaded.problem);
  return &loaded.api;
}

std::optional<std::array<std::uint8_t, 16>> parse_gid(const std::string& text) {
  if (text.size() != 39) return std::nullopt;
  std::array<std::uint8_t, 16> gid{};
  for (std::size_t group = 0; group < 8; ++group) {
    const char* begin = text.data() + group * 5;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(begin, begin + 4, value, 16);
    if (error != std::errc{} || end != begin + 4 || (group < 7 && begin[4] != ':')) return std::nullopt;
    gid[2 * group] = static_cast<std::uint8_t>(value >> 8);
    gid[2 * group + 1] = static_cast<std::uint8_t>(value);
  }
  return gid;
}

bool hca_selects(const std::string& list, const std::string& name, int port) {
  std::string rest = list;
  const bool exclude = !rest.empty() && rest[0] == '^';
  if (exclude) rest.erase(0, 1);
  const bool exact = !rest.empty() && rest[0] == '=';
  if (exact) rest.erase(0, 1);
  const auto parts = split_list(rest);
  if (parts.empty()) return true;
  for (const std::string& part : parts) {
    const std::size_t colon = part.find(':');
    const std::string wanted = part.substr(0, colon);
    bool match = exact ? name == wanted : name.compare(0, wanted.size(), wanted) == 0;
    if (match && colon != std::string::npos) {
      const std::string port_text = part.substr(colon + 1, part.find(':', colon + 1) - colon - 1);
      match = port_text == std::to_string(port);
    }
    if (match) return !exclude;
  }
  return exclude;
}

Expected<RdmaDevice> find_rdma_device(const bootstrap::Endpoint& data_address, const RdmaChoice& choice) {
  auto api = load_verbs();
  if (!api.ok()) return api.take_error();
  const std::string root = api.value()->sysfs;
  const auto devices = list_directory(root);
  if (devices.empty()) return unavailable("this node has no RDMA device (" + root + " is empty)");
  std::string reasons;
  for (const std::string& name : devices) {
    for (const std::string& port_name : list_directory(root + "/" + name + "/ports")) {
      int port = 0;
      if (std::from_chars(port_name.data(), port_name.data() + port_name.size(), port).ec != std::errc{} || port < 1 || port > 255) continue;
      const std::string port_path = root + "/" + name + "/ports/" + port_name;
      std::string reason;
      RdmaDevice device;
      device.name = name;
      device.port = static_cast<std::uint8_t>(port);
      device.ethernet = read_line(port_path + "/link_layer") == "Ethernet";
      if (!hca_selects(choice.hca, name, port)) {
        reason = "not chosen by \"" + choice.hca + "\"";
      } else if (const std::string state = read_line(port_path + "/state"); state.find("ACTIVE") == std::string::npos) {
        reason = "its port is " + (state.empty() ? std::string("unreadable") : state);
      } else if (device.ethernet) {
        if (const auto why_not = choose_gid(port_path, data_address, choice, device)) reason = *why_not;
      } else {
        device.gid_index = static_cast<std::uint16_t>(std::max(choice.gid_index, 0));
        if (const auto gid = parse_gid(read_line(port_path + "/gids/" + std::to_string(device.gid_index)))) device.gid = *gid;
      }
      if (reason.empty()) return device;
      reasons += (reasons.empty() ? "" : "; ") + name + " port " + port_name + ": " + reason;
    }
  }
  return unavailable("no RDMA port can be used: " + reasons);
}

}  // namespace stepccl::transport
