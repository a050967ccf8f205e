#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The PyTorch package on a GPU machine: its tests on host memory (under that machine's torch) and on CUDA tensors, CUDA graphs,
# short DDP and FSDP2 runs, one of them against NCCL.
#   STEPCCL_LIBRARY=.../libstepccl.so native/bench/gpu_python_check.sh [OUT_DIR]
# STEPS="collectives cuda" runs some of them (default: all). Every step has its own limit of time. OUT_DIR (default: $OUT, else a new folder) gets python-check.json and python-check.log.
# Exit status: 0 when every step passed.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
out=${1:-${OUT:-$(mktemp -d)}}
python=${STEPCCL_TEST_PYTHON:-$(command -v python3)}
mkdir -p "$out"
export STEPCCL_LIBRARY=${STEPCCL_LIBRARY:-$root/build/out/gpu/libstepccl.so}
[ -e "$STEPCCL_LIBRARY" ] || { echo "gpu_python_check: $STEPCCL_LIBRARY is not there: build the library with USE_CUDA=ON, or set STEPCCL_LIBRARY" >&2; exit 1; }
# NVLink multicast stays off: on a shared host it can put GPUs out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 STEPCCL_TEST_DEVICE=cuda STEPCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo
export PYTHONPATH=$root/native/python${PYTHONPATH:+:$PYTHONPATH}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$out/python-check.log"
steps=()
failed=0
# step NAME SECONDS COMMAND...
step() {
    local name=$1 limit=$2 began=$SECONDS status counts
    shift 2
    case " ${STEPS:-$name} " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    timeout --kill-after=10 "$limit" env "$@" -p no:cacheprovider -ra -q --junitxml "$scratch/$name.xml" >"$scratch/$name.log" 2>&1
    status=$?
    [ $status = 0 ] || failed=1
    { echo "== $name"; cat "$scratch/$name.log"; } >>"$out/python-check.log"
    tail -n 25 "$scratch/$name.log"
    [ $status != 124 ] && [ $status != 137 ] || echo "$name ran past its $limit s"
    counts=$(sed -n 's/.*<testsuite [^>]*errors="\([0-9]*\)" failures="\([0-9]*\)" skipped="\([0-9]*\)" tests="\([0-9]*\)".*/"errors": \1, "failures": \2, "skipped": \3, "tests": \4/p' "$scratch/$name.xml" 2>/dev/null)
    steps+=("{\"step\": \"$name\", \"status\": $status, \"seconds\": $((SECONDS - began)), \"limit_s\": $limit${counts:+, $counts}}")
    (IFS=,; printf '{"steps": [%s]}\n' "${steps[*]}") >"$out/python-check.json"
}

cd "$root/native/python/tests" || exit 1
pytest=("$python" -m pytest)
step collectives 120 "${pytest[@]}" test_library.py test_collectives.py
step cuda 180 "${pytest[@]}" test_cuda.py
step semantics 150 "${pytest[@]}" test_semantics.py
step errors 150 "${pytest[@]}" test_errors.py
# Everything in one hardware queue, as Megatron asks for: a stream that waits must not stand in the way of the one that it waits for.
step one-connection 180 CUDA_DEVICE_MAX_CONNECTIONS=1 "${pytest[@]}" test_collectives.py test_cuda.py
step host 150 STEPCCL_TEST_DEVICE=cpu "${pytest[@]}"
cat "$out/python-check.json"
exit $failed
