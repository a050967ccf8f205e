#!/usr/bin/env bash
# All that is to be measured on a host with several GPUs, in steps that fit into calls of a limited time:
#   native/bench/gpu_session.sh BUILD_FOLDER OUTPUT_FOLDER GPUS SECONDS [STEP...]
# Steps, in this order when none is named: build check calibrate nccl nccl_calibrated perf
# A step that no longer fits into SECONDS is left out; the last line, and left.txt, name what is left: give those to the next call.
# BUILD_FOLDER keeps the build and the calibration between calls. Writes JSON for each step into OUTPUT_FOLDER.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1
out=$2
gpus=$3
until=$((SECONDS + $4))
shift 4
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(build check calibrate nccl nccl_calibrated perf)
mkdir -p "$build" "$out"
export STEPCCL_TELEMETRY_DIR= STEPCCL_LIBRARY=$build/libstepccl.so PYTHONUNBUFFERED=1
calibration=$build/calibration.json
status=0
left=()
{
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,uuid --format=csv,noheader
  nvidia-smi topo -m
} >"$out/host.txt" 2>&1

# limited SECONDS COMMAND...: no longer than that, nor than this call's end.
limited() {
  local limit=$1 rest=$((until - SECONDS))
  shift
  [ "$limit" -lt "$rest" ] || limit=$rest
  if ! timeout "$limit" "$@"; then
    echo "not well (limit $limit s): $*" | tee -a "$out/errors.txt"
    status=1
    return 1
  fi
}
# The least time that a step is begun with.
declare -A least=([build]=60 [check]=90 [calibrate]=30 [nccl]=120 [nccl_calibrated]=120 [perf]=60)

versus_nccl() {  # name of the result; more options
  local name=$1 rest=$((until - SECONDS - 25))
  shift
  [ "$rest" -lt 430 ] || rest=430
  limited $((rest + 20)) python3 "$here/gpu_vs_nccl.py" --ranks "$gpus" --budget-s "$rest" --output "$out/$name.json" "$@" 2>>"$out/errors.txt"
}

for step in "${steps[@]}"; do
  [ -n "${least[$step]:-}" ] || { echo "unknown step $step"; exit 2; }
  if [ $((until - SECONDS)) -lt "${least[$step]}" ]; then
    left+=("$step")
    continue
  fi
  echo "== $step ($SECONDS s)"
  case $step in
    build)
      generator=()
      command -v ninja >/dev/null && generator=(-G Ninja)
      limited 300 cmake -S "$here/.." -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DUSE_CUDA=ON -DSTEPCCL_TESTS=OFF >"$build/cmake.log" 2>&1 &&
        limited 300 cmake --build "$build" -j "$(nproc)" --target stepccl stepccl-gpu-check stepccl-gpu-perf >>"$build/cmake.log" 2>&1 ||
        { grep -m 5 -A 5 'error' "$build/cmake.log" >>"$out/errors.txt"; break; }
      ;;
    check)
      limited 240 "$build/stepccl-gpu-check" -n "$gpus" >>"$out/check.jsonl" 2>>"$out/errors.txt"
      CUDA_DEVICE_MAX_CONNECTIONS=1 limited 120 "$build/stepccl-gpu-check" -n "$gpus" values graphs >>"$out/check_one_queue.jsonl" 2>>"$out/errors.txt"
      grep -h '"ok": false' "$out"/check*.jsonl
      ;;
    calibrate)
      limited 120 "$build/stepccl-gpu-perf" --calibrate "$calibration" -n "$gpus" -T 110 && cp "$calibration" "$out/" && cat "$calibration"
      ;;
    nccl) versus_nccl vs_nccl ;;
    nccl_calibrated)
      if [ -f "$calibration" ]; then
        STEPCCL_CUDA_CALIBRATION=$calibration versus_nccl vs_nccl_calibrated
      else
        echo "no calibration: the step calibrate has not been well" | tee -a "$out/errors.txt"
        status=1
      fi
      ;;
    perf)
      moves=all_reduce,all_gather,reduce_scatter,all_to_all,broadcast
      perf() { limited 90 "$build/stepccl-gpu-perf" -n "$gpus" -T 80 -j "$out/perf.jsonl" "$@" >>"$out/perf.txt" 2>>"$out/errors.txt"; }
      perf -o $moves -b 8 -e 1M -f 8 -m eager,graph
      perf -o $moves -b 4M -e 64M -f 4 -m eager,graph
      perf -o $moves,reduce,scatter,gather -b 256M -e 1G -f 4 -m eager,graph -i 10 -c 0
      ;;
  esac
done
[ ! -s "$out/errors.txt" ] || tail -n 20 "$out/errors.txt"
echo "${left[*]}" >"$out/left.txt"
echo "== end ($SECONDS s), left: ${left[*]:-nothing}"
exit $status
