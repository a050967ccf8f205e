// SPDX-License-Identifier: Apache-2.0
#include "cuda/arena.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_REGISTER;

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  return prop;
}

}  // namespace

Expected<std::uint64_t> Arena::granule_of(const Driver& driver, int device) {
  for (const CUdevice_attribute needed : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int value = 0;
    STEPCCL_CU(driver, kPhase, cuDeviceGetAttribute, &value, needed, device);
    if (value == 0) return std::uint64_t{0};
  }
  const CUmemAllocationProp prop = properties(device);
  std::size_t granule = 0;
  STEPCCL_CU(driver, kPhase, cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  return std::uint64_t{granule};
}

Status Arena::reserve(std::uint64_t address_bytes) {
  auto granule = granule_of(driver_, device_);
  if (!granule.ok()) return granule.take_error();
  granule_ = granule.value();
  if (granule_ == 0) return make_error(STEPCCL_ERROR_UNSUPPORTED, kPhase, "this GPU's memory can't be shared by file descriptor (virtual memory management)");
  address_bytes_ = address_bytes;
  for (Part& part : ranks_) STEPCCL_CU(driver_, kPhase, cuMemAddressReserve, &part.base, address_bytes, granule_, 0, 0);
  return {};
}

Status Arena::map(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) {
  STEPCCL_CU(driver_, kPhase, cuMemMap, address, bytes, 0, handle, 0);
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device_}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (const CUresult result = driver_.cuMemSetAccess(address, bytes, &access, 1); result != CUDA_SUCCESS) {
    driver_.cuMemUnmap(address, bytes);
    return driver_.error(result, "cuMemSetAccess", kPhase);
  }
  return {};
}

Expected<Arena::Fresh> Arena::create_aside(const memory::Extent& extent) {
  Fresh fresh;
  fresh.extent = extent;
  const CUmemAllocationProp prop = properties(device_);
  STEPCCL_CU(driver_, kPhase, cuMemCreate, &fresh.handle, extent.bytes, &prop, 0);
  int descriptor = -1;
  if (const CUresult result = driver_.cuMemExportToShareableHandle(&descriptor, fresh.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0); result != CUDA_SUCCESS) {
    driver_.cuMemRelease(fresh.handle);
    return driver_.error(result, "cuMemExportToShareableHandle", kPhase);
  }
  fresh.descriptor = Fd(descriptor);
  if (const CUresult result = driver_.cuMemAddressReserve(&fresh.scratch, extent.bytes, granule_, 0, 0); result != CUDA_SUCCESS) {
    driver_.cuMemRelease(fresh.handle);
    return driver_.error(result, "cuMemAddressReserve", kPhase);
  }
  if (Status status = map(fresh.scratch, extent.bytes, fresh.handle); !status.ok()) {
    driver_.cuMemAddressFree(fresh.scratch, extent.bytes);
    driver_.cuMemRelease(fresh.handle);
    return status.take_error();
  }
  return fresh;
}

void Arena::discard(Fresh& fresh) {
  if (fresh.scratch != 0) {
    driver_.cuMemUnmap(fresh.scratch, fresh.extent.bytes);
    driver_.cuMemAddressFree(fresh.scratch, fresh.extent.bytes);
    fresh.scratch = 0;
  }
  if (fresh.handle != 0) driver_.cuMemRelease(fresh.handle);
  fresh.handle = 0;
}

Status Arena::put_in_place(Fresh& fresh) {
  Part& part = ranks_[rank_];
  if (Status status = map(part.base + fresh.extent.offset, fresh.extent.bytes, fresh.handle); !status.ok()) return status;
  part.mapped.emplace(fresh.extent.offset, std::pair(fresh.extent.bytes, fresh.handle));
  fresh.handle = 0;
  discard(fresh);
  return {};
}

Expected<Fd> Arena::create(const memory::Extent& extent) {
  Part& part = ranks_[rank_];
  const CUmemAllocationProp prop = properties(device_);
  CUmemGenericAllocationHandle handle = 0;
  STEPCCL_CU(driver_, kPhase, cuMemCreate, &handle, extent.bytes, &prop, 0);
  int descriptor = -1;
  if (const CUresult result = driver_.cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0); result != CUDA_SUCCESS) {
    driver_.cuMemRelease(handle);
    return driver_.error(result, "cuMemExportToShareableHandle", kPhase);
  }
  Fd shared(descriptor);
  if (Status status = map(part.base + extent.offset, extent.bytes, handle); !status.ok()) {
    driver_.cuMemRelease(handle);
    return status.take_error();
  }
  part.mapped.emplace(extent.offset, std::pair(extent.bytes, handle));
  return shared;
}

Status Arena::import(std::uint32_t peer, const memory::Extent& extent, const Fd& descriptor) {
  Part& part = ranks_[peer];
  CUmemGenericAllocationHandle handle = 0;
  void* os_handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  if (const CUresult result = driver_.cuMemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR); result != CUDA_SUCCESS) {
    Error error = driver_.error(result, "cuMemImportFromShareableHandle", kPhase);
    error.peer = static_cast<std::int32_t>(peer);
    return error;
  }
  if (Status status = map(part.base + extent.offset, extent.bytes, handle); !status.ok()) {
    driver_.cuMemRelease(handle);
    Error error = status.take_error();
    error.peer = static_cast<std::int32_t>(peer);
    return error;
  }
  part.mapped.emplace(extent.offset, std::pair(extent.bytes, handle));
  return {};
}

void Arena::drop(std::uint32_t rank, const memory::Extent& extent) {
  Part& part = ranks_[rank];
  const auto found = part.mapped.find(extent.offset);
  if (found == part.mapped.end()) return;
  driver_.cuMemUnmap(part.base + found->first, found->second.first);
  driver_.cuMemRelease(found->second.second);
  part.mapped.erase(found);
}

Arena::~Arena() {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    while (!ranks_[rank].mapped.empty()) drop(rank, {ranks_[rank].mapped.begin()->first, 0});
    if (ranks_[rank].base != 0) driver_.cuMemAddressFree(ranks_[rank].base, address_bytes_);
  }
}

}  // namespace stepccl::cuda
