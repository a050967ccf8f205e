# SPDX-License-Identifier: Apache-2.0
# The GPU part: host code over the CUDA driver's header (the driver itself is loaded at run time), and the kernels as one
# fat binary inside the library. No CUDA runtime is linked.
find_package(CUDAToolkit 12.4 REQUIRED)
enable_language(ASM)

# SASS for the GPUs at hand, PTX for later ones.
set(STEPCCL_CUDA_ARCHITECTURES
  -gencode arch=compute_80,code=sm_80
  -gencode arch=compute_90,code=sm_90
  -gencode arch=compute_90,code=compute_90
  CACHE STRING "nvcc options that choose the targets")
set(STEPCCL_FATBIN ${PROJECT_BINARY_DIR}/kernels.fatbin)
file(GLOB STEPCCL_CUDA_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cuh)
add_custom_command(
  OUTPUT ${STEPCCL_FATBIN}
  COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O3 -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR}/include
    ${STEPCCL_CUDA_ARCHITECTURES} -fatbin -o ${STEPCCL_FATBIN} ${PROJECT_SOURCE_DIR}/src/cuda/kernels.cu
  DEPENDS src/cuda/kernels.cu src/cuda/layout.hpp ${STEPCCL_CUDA_HEADERS}
  COMMENT "Compiling the kernels"
  VERBATIM)
set_source_files_properties(src/cuda/fatbin.S PROPERTIES
  OBJECT_DEPENDS ${STEPCCL_FATBIN}
  COMPILE_DEFINITIONS "STEPCCL_FATBIN=\"${STEPCCL_FATBIN}\"")
target_sources(stepccl_objects PRIVATE
  ${STEPCCL_FATBIN}
  src/cuda/arena.cpp
  src/cuda/attach.cpp
  src/cuda/background.cpp
  src/cuda/capi.cpp
  src/cuda/config.cpp
  src/cuda/copies.cpp
  src/cuda/defrag.cpp
  src/cuda/direct.cpp
  src/cuda/driver.cpp
  src/cuda/exchange.cpp
  src/cuda/fatbin.S
  src/cuda/guests.cpp
  src/cuda/kernels.cpp
  src/cuda/ledger.cpp
  src/cuda/live_settings.cpp
  src/cuda/meeting.cpp
  src/cuda/mesh.cpp
  src/cuda/operation.cpp
  src/cuda/paging.cpp
  src/cuda/pairs.cpp
  src/cuda/pipeline.cpp
  src/cuda/pool.cpp
  src/cuda/relay.cpp
  src/cuda/run.cpp
  src/cuda/thresholds.cpp
  src/cuda/watch.cpp)
target_include_directories(stepccl_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
