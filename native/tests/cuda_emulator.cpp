// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 over host memory, for tests: eight GPUs of one process, whose streams are threads and whose memory is
// mapped from memfds, so that the engine's own pool, copies, flags and epochs run for real. Its kernels do what the engine's
// are to do, by simpler means; see cuda_emulator_kernels.cpp.
#include "cuda_emulator.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <set>
#include <vector>

using emulator::Stream;
using emulator::wait_until;

namespace {

constexpr int kDevices = 8;
constexpr std::size_t kDeviceBytes = std::size_t{1} << 30;
constexpr std::size_t kGranule = std::size_t{2} << 20;

struct Context {
  int device = 0;
};
struct Handle {
  int fd = -1;
  std::size_t bytes = 0;
  int device = 0;  // whose memory it takes; -1: imported
};
struct Region {
  std::size_t bytes = 0;
  int device = 0;
  bool host = false;
  unsigned long long number = 0;
};

std::mutex mutex;
Context contexts[kDevices];
std::atomic<std::size_t> taken[kDevices];
std::map<CUmemGenericAllocationHandle, Handle> handles;
std::map<CUdeviceptr, Region> regions;  // mapped, allocated or pinned
CUmemGenericAllocationHandle next_handle = 1;
unsigned long long next_number = 1;
thread_local std::vector<CUcontext> stack;

int current_device() { return stack.empty() ? 0 : reinterpret_cast<Context*>(stack.back())->device; }
char* at(CUdeviceptr address) { return reinterpret_cast<char*>(address); }

const Region* region_of(CUdeviceptr address, CUdeviceptr* base = nullptr) {
  auto next = regions.upper_bound(address);
  if (next == regions.begin()) return nullptr;
  --next;
  if (address - next->first >= next->second.bytes) return nullptr;
  if (base != nullptr) *base = next->first;
  return &next->second;
}

std::set<std::pair<int, Stream*>> streams;  // by device

Stream& of(CUstream stream) {
  static Stream fallback[kDevices];
  return stream == nullptr || stream == CU_STREAM_LEGACY ? fallback[current_device()] : *reinterpret_cast<Stream*>(stream);
}
emulator::Event& of(CUevent event) { return *reinterpret_cast<emulator::Event*>(event); }

template <class T>
T load(CUdeviceptr address) {
  return __atomic_load_n(reinterpret_cast<T*>(address), __ATOMIC_ACQUIRE);
}
template <class T>
void store(CUdeviceptr address, T value) {
  __atomic_store_n(reinterpret_cast<T*>(address), value, __ATOMIC_RELEASE);
}

template <class T>
bool arrived(CUdeviceptr address, T wanted, unsigned flags) {
  const T value = load<T>(address);
  return (flags & 3u) == CU_STREAM_WAIT_VALUE_EQ ? value == wanted : value >= wanted;
}

void carry_out(const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32: return store<std::uint32_t>(op.writeValue.address, op.writeValue.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: return store<std::uint64_t>(op.writeValue.address, op.writeValue.value64);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32: return wait_until([&] { return arrived<std::uint32_t>(op.waitValue.address, op.waitValue.value, op.waitValue.flags); });
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return wait_until([&] { return arrived<std::uint64_t>(op.waitValue.address, op.waitValue.value64, op.waitValue.flags); });
    default: std::abort();
  }
}

CUresult copy(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  emulator::add(of(stream), [=] { std::memcpy(at(to), from, bytes); });
  return CUDA_SUCCESS;
}

// Memory of the process's, as the driver's goes with it: who touches it after it was freed is found out.
void* pages(std::size_t bytes) { return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

bool take_memory(int device, std::size_t bytes) {
  if (taken[device].fetch_add(bytes) + bytes <= kDeviceBytes) return true;
  taken[device].fetch_sub(bytes);
  return false;
}

std::atomic<int> modules{0};  // loaded, one for each engine

// What a test wants the driver to say.
int variable(const char* name, int standard) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : standard;
}

std::vector<std::string>& functions() {
  static std::vector<std::string> names(1);
  return names;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

EXPORT cuInit(unsigned) {
  for (int device = 0; device < kDevices; ++device) contexts[device].device = device;
  return CUDA_SUCCESS;
}
EXPORT cuDriverGetVersion(int* version) { return *version = variable("EMULATED_CUDA_VERSION", 12080), CUDA_SUCCESS; }
EXPORT cuDeviceGetCount(int* count) { return *count = variable("EMULATED_CUDA_DEVICES", kDevices), CUDA_SUCCESS; }
EXPORT cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, ordinal < kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
EXPORT cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, 0x10 + device, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
EXPORT cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: *value = 1; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}
EXPORT cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) { return *can = variable("EMULATED_CUDA_PEERS", 1), CUDA_SUCCESS; }
EXPORT cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) { return *bytes = kDeviceBytes, CUDA_SUCCESS; }
EXPORT cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) { return *context = reinterpret_cast<CUcontext>(&contexts[device]), CUDA_SUCCESS; }
EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
EXPORT cuCtxPushCurrent_v2(CUcontext context) { return stack.push_back(context), CUDA_SUCCESS; }
EXPORT cuCtxPopCurrent_v2(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
EXPORT cuCtxGetCurrent(CUcontext* context) { return *context = stack.empty() ? nullptr : stack.back(), CUDA_SUCCESS; }
EXPORT cuCtxGetDevice(CUdevice* device) { return *device = current_device(), CUDA_SUCCESS; }
EXPORT cuCtxSynchronize() {
  std::vector<Stream*> all = {&of(CUstream{})};
  {
    const std::lock_guard lock(mutex);
    for (const auto& [device, stream] : streams) {
      if (device == current_device()) all.push_back(stream);
    }
  }
  for (Stream* stream : all) stream->drain();
  return CUDA_SUCCESS;
}
EXPORT cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
EXPORT cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -1, CUDA_SUCCESS; }
EXPORT cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

EXPORT cuModuleLoadData(CUmodule* module, const void*) {
  if (modules.fetch_add(1) == 0) emulator::forget_messages();
  return *module = reinterpret_cast<CUmodule>(&functions()), CUDA_SUCCESS;
}
EXPORT cuModuleUnload(CUmodule) { return modules.fetch_sub(1), CUDA_SUCCESS; }
EXPORT cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  const std::lock_guard lock(mutex);
  functions().emplace_back(name);
  return *function = reinterpret_cast<CUfunction>(functions().size() - 1), CUDA_SUCCESS;
}
EXPORT cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORT cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream stream, void** parameters, void**) {
  std::string name;
  {
    const std::lock_guard lock(mutex);
    name = functions().at(reinterpret_cast<std::size_t>(function));
  }
  auto work = emulator::kernel(name, parameters[0]);
  if (!work) return CUDA_ERROR_NOT_SUPPORTED;
  return emulator::add(of(stream), std::move(work)), CUDA_SUCCESS;
}

EXPORT cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  auto* made = new Stream;
  const std::lock_guard lock(mutex);
  streams.emplace(current_device(), made);
  return *stream = reinterpret_cast<CUstream>(made), CUDA_SUCCESS;
}
EXPORT cuStreamDestroy_v2(CUstream stream) {
  auto* gone = reinterpret_cast<Stream*>(stream);
  {
    const std::lock_guard lock(mutex);
    std::erase_if(streams, [&](const auto& one) { return one.second == gone; });
  }
  return delete gone, CUDA_SUCCESS;
}
EXPORT cuStreamSynchronize(CUstream stream) { return of(stream).drain(), CUDA_SUCCESS; }
EXPORT cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) { return emulator::wait(of(stream), of(event)), CUDA_SUCCESS; }
EXPORT cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned) {
  for (unsigned i = 0; i < count; ++i) emulator::add(of(stream), [op = ops[i]] { carry_out(op); });
  return CUDA_SUCCESS;
}
EXPORT cuEventCreate(CUevent* event, unsigned) { return *event = reinterpret_cast<CUevent>(new emulator::Event), CUDA_SUCCESS; }
EXPORT cuEventDestroy_v2(CUevent event) { return delete &of(event), CUDA_SUCCESS; }
EXPORT cuEventRecord(CUevent event, CUstream stream) { return emulator::record(of(event), of(stream)), CUDA_SUCCESS; }
EXPORT cuEventQuery(CUevent event) { return of(event).passed() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
EXPORT cuEventSynchronize(CUevent event) {
  emulator::Event* one = &of(event);
  wait_until([=] { return one->passed(); });
  return CUDA_SUCCESS;
}

EXPORT cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *total = kDeviceBytes;
  *free = kDeviceBytes - taken[current_device()].load();
  return CUDA_SUCCESS;
}
EXPORT cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  // Aligned to the granule, as the driver does it.
  void* map = ::mmap(nullptr, bytes + kGranule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<std::uintptr_t>(map);
  const auto aligned = (begin + kGranule - 1) / kGranule * kGranule;
  if (aligned != begin) ::munmap(map, aligned - begin);
  if (aligned - begin != kGranule) ::munmap(reinterpret_cast<void*>(aligned + bytes), kGranule - (aligned - begin));
  *address = aligned;
  return CUDA_SUCCESS;
}
EXPORT cuMemAddressFree(CUdeviceptr address, std::size_t bytes) { return ::munmap(at(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
EXPORT cuMemGetAllocationGranularity(std::size_t* granule, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) { return *granule = kGranule, CUDA_SUCCESS; }
EXPORT cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* prop, unsigned long long) {
  if (!take_memory(prop->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Handle made{static_cast<int>(::memfd_create("emulated-gpu", MFD_CLOEXEC)), bytes, prop->location.id};
  if (made.fd < 0 || ::ftruncate(made.fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex);
  handles[*handle = next_handle++] = made;
  return CUDA_SUCCESS;
}
EXPORT cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex);
  const auto found = handles.find(handle);
  if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  ::close(found->second.fd);
  if (found->second.device >= 0) taken[found->second.device].fetch_sub(found->second.bytes);
  handles.erase(found);
  return CUDA_SUCCESS;
}
EXPORT cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
  const std::lock_guard lock(mutex);
  const auto found = handles.find(handle);
  if (found == handles.end() || offset + bytes > found->second.bytes || region_of(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (::mmap(at(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second.fd, static_cast<off_t>(offset)) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  regions[address] = {bytes, current_device(), false, next_number++};
  return CUDA_SUCCESS;
}
EXPORT cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  if (regions.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  return ::mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORT cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; }
EXPORT cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType, unsigned long long) {
  const std::lock_guard lock(mutex);
  const int fd = ::dup(handles.at(handle).fd);
  std::memcpy(out, &fd, sizeof fd);
  return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
EXPORT cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType) {
  struct stat info{};
  const int fd = ::dup(static_cast<int>(reinterpret_cast<std::uintptr_t>(os_handle)));
  if (fd < 0 || ::fstat(fd, &info) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  handles[*handle = next_handle++] = {fd, static_cast<std::size_t>(info.st_size), -1};
  return CUDA_SUCCESS;
}

EXPORT cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  const int device = current_device();
  if (!take_memory(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = pages(bytes);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  const std::lock_guard lock(mutex);
  regions[*address] = {bytes, device, false, next_number++};
  return CUDA_SUCCESS;
}
EXPORT cuMemFree_v2(CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  const auto found = regions.find(address);
  if (found == regions.end()) return CUDA_ERROR_INVALID_VALUE;
  taken[found->second.device].fetch_sub(found->second.bytes);
  ::munmap(at(address), found->second.bytes);
  regions.erase(found);
  return CUDA_SUCCESS;
}
EXPORT cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = pages(bytes);
  if (*memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex);
  regions[reinterpret_cast<CUdeviceptr>(*memory)] = {bytes, 0, true, next_number++};
  return CUDA_SUCCESS;
}
EXPORT cuMemFreeHost(void* memory) {
  const std::lock_guard lock(mutex);
  const auto found = regions.find(reinterpret_cast<CUdeviceptr>(memory));
  if (found == regions.end()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(memory, found->second.bytes);
  regions.erase(found);
  return CUDA_SUCCESS;
}
EXPORT cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) { return copy(to, at(from), bytes, stream); }
EXPORT cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) { return copy(to, from, bytes, stream); }
EXPORT cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) { return copy(reinterpret_cast<CUdeviceptr>(to), at(from), bytes, stream); }
EXPORT cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) { return std::memcpy(to, at(from), bytes), CUDA_SUCCESS; }
EXPORT cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  emulator::add(of(stream), [=] { std::memset(at(to), value, bytes); });
  return CUDA_SUCCESS;
}
EXPORT cuPointerGetAttributes(unsigned count, CUpointer_attribute* wanted, void** values, CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  const Region* region = region_of(address);
  for (unsigned i = 0; i < count; ++i) {
    if (wanted[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *static_cast<unsigned*>(values[i]) = region == nullptr ? 0 : region->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    else if (wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(values[i]) = region == nullptr ? -2 : region->device;
    else if (wanted[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID) *static_cast<unsigned long long*>(values[i]) = region == nullptr ? 0 : region->number;
    else return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}
EXPORT cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  const Region* region = region_of(address, base);
  if (region == nullptr) return CUDA_ERROR_NOT_FOUND;
  *bytes = region->bytes;
  return CUDA_SUCCESS;
}
// Both ranks live in this process: memory is where it is.
EXPORT cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) { return std::memcpy(handle, &address, sizeof address), CUDA_SUCCESS; }
EXPORT cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned) { return std::memcpy(address, &handle, sizeof *address), CUDA_SUCCESS; }
EXPORT cuIpcCloseMemHandle(CUdeviceptr) { return CUDA_SUCCESS; }

EXPORT cuGetErrorName(CUresult result, const char** text) { return *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR", CUDA_SUCCESS; }
EXPORT cuGetErrorString(CUresult, const char** text) { return *text = "emulated", CUDA_SUCCESS; }
