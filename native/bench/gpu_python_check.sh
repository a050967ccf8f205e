#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The PyTorch package on a GPU machine: its tests on host memory (under that machine's torch) and on CUDA tensors, CUDA graphs,
# short DDP and FSDP2 runs, one of them against NCCL.
#   STEPCCL_LIBRARY=.../libstepccl.so native/bench/gpu_python_check.sh [OUT_DIR]
# Every step has its own limit of time. OUT_DIR (default: $OUT, else a new folder) gets python-check.json and the logs.
# Exit status: 0 when every step passed.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
out=${1:-${OUT:-$(mktemp -d)}}
python=${STEPCCL_TEST_PYTHON:-$(command -v python3)}
mkdir -p "$out"
export STEPCCL_LIBRARY=${STEPCCL_LIBRARY:-$root/build/out/native-cuda/libstepccl.so}
[ -e "$STEPCCL_LIBRARY" ] || { echo "gpu_python_check: $STEPCCL_LIBRARY is not there: build the library with USE_CUDA=ON, or set STEPCCL_LIBRARY" >&2; exit 1; }
# NVLink multicast stays off: on a shared host it can put GPUs out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 STEPCCL_TEST_DEVICE=cuda STEPCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo
export PYTHONPATH=$root/native/python${PYTHONPATH:+:$PYTHONPATH}

steps=()
failed=0
# step NAME SECONDS COMMAND...
step() {
    local name=$1 limit=$2 began=$SECONDS status
    shift 2
    echo "== $name"
    timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1
    status=$?
    [ $status = 0 ] || failed=1
    tail -n 25 "$out/$name.log"
    [ $status != 124 ] && [ $status != 137 ] || echo "$name ran past its $limit s"
    steps+=("{\"step\": \"$name\", \"status\": $status, \"seconds\": $((SECONDS - began)), \"limit_s\": $limit}")
    (IFS=,; printf '{"steps": [%s]}\n' "${steps[*]}") >"$out/python-check.json"
}

cd "$root/native/python/tests" || exit 1
pytest=("$python" -m pytest -p no:cacheprovider -ra -q --junitxml)
step host 150 env STEPCCL_TEST_DEVICE=cpu "${pytest[@]}" "$out/host.xml"
step library 60 "${pytest[@]}" "$out/library.xml" test_library.py
step collectives 120 "${pytest[@]}" "$out/collectives.xml" test_collectives.py
step semantics 150 "${pytest[@]}" "$out/semantics.xml" test_semantics.py
step cuda 150 "${pytest[@]}" "$out/cuda.xml" test_cuda.py
step errors 150 "${pytest[@]}" "$out/errors.xml" test_errors.py
exit $failed
