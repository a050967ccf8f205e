// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include <dlfcn.h>

#include <mutex>
#include <optional>

namespace stepccl::cuda {
namespace {

constexpr int kOldest = 12000;

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

Error no_gpu(std::string cause) { return make_error(STEPCCL_ERROR_NO_GPU, STEPCCL_PHASE_NONE, std::move(cause)); }

std::optional<Error> load(Driver& driver) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return no_gpu("libcuda.so.1, the NVIDIA driver's library, is not there");
  std::string missing;
  const auto find = [&](const char* name) {
    void* symbol = ::dlsym(library, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    return symbol;
  };
  driver.cuDriverGetVersion = reinterpret_cast<decltype(driver.cuDriverGetVersion)>(find("cuDriverGetVersion"));
  if (driver.cuDriverGetVersion == nullptr || driver.cuDriverGetVersion(&driver.version) != CUDA_SUCCESS) return no_gpu("libcuda.so.1 doesn't tell its version");
  if (driver.version < kOldest) {
    return make_error(STEPCCL_ERROR_DRIVER_TOO_OLD, STEPCCL_PHASE_NONE, "the driver is made for CUDA " + version_text(driver.version) + ", needed is " + version_text(kOldest));
  }
#define STEPCCL_X(name) driver.name = reinterpret_cast<decltype(driver.name)>(find(#name));
  STEPCCL_CUDA_SYMBOLS(STEPCCL_X)
#undef STEPCCL_X
  driver.cuStreamGetCaptureInfo_v2 = reinterpret_cast<StreamGetCaptureInfo>(find("cuStreamGetCaptureInfo_v2"));
  if (!missing.empty()) {
    return make_error(STEPCCL_ERROR_DRIVER_TOO_OLD, STEPCCL_PHASE_NONE, "the driver (CUDA " + version_text(driver.version) + ") has no " + missing);
  }
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver.cuGetErrorString(result, &text);
    return no_gpu(std::string("cuInit: ") + (text != nullptr ? text : "unknown error"));
  }
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) return no_gpu("the driver shows no GPU to this process");
  return std::nullopt;
}

}  // namespace

Expected<const Driver*> Driver::get() {
  static std::mutex mutex;
  static Driver driver;
  static bool loaded = false;
  const std::lock_guard lock(mutex);
  if (!loaded) {
    if (auto error = load(driver)) return *error;  // tried again next time: a module may have been loaded meanwhile
    loaded = true;
  }
  return static_cast<const Driver*>(&driver);
}

Error Driver::error(CUresult result, const char* call, stepccl_phase_t phase) const {
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  const stepccl_result_t code = result == CUDA_ERROR_OUT_OF_MEMORY ? STEPCCL_ERROR_GPU_OUT_OF_MEMORY : STEPCCL_ERROR_CUDA;
  return make_error(code, phase, std::string(call) + ": " + (name != nullptr ? name : "unknown") + " (" + (text != nullptr ? text : "?") + ")");
}

}  // namespace stepccl::cuda
