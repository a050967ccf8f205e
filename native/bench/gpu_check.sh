#!/usr/bin/env bash
# Checks the GPU engine on this host's GPUs, then times it. Every part has a time limit, so that a standstill costs no more.
#   native/bench/gpu_check.sh BUILD_FOLDER OUTPUT_FOLDER [GPUS]
# BUILD_FOLDER: of a build with -DUSE_CUDA=ON. Writes check.jsonl, check_one_queue.jsonl, perf.jsonl and host.txt.
set -uo pipefail
build=$1
out=$2
gpus=${3:-2}
mkdir -p "$out"
export STEPCCL_TELEMETRY_DIR=
status=0
{
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,uuid --format=csv,noheader
  nvidia-smi topo -m
} >"$out/host.txt"

part() {  # seconds, log, command
  local limit=$1 log=$2
  shift 2
  if ! timeout "$limit" "$@" >>"$out/$log" 2>>"$out/errors.txt"; then
    echo "not well: $*" | tee -a "$out/errors.txt"
    status=1
  fi
}

part 240 check.jsonl "$build/stepccl-gpu-check" -n "$gpus"
CUDA_DEVICE_MAX_CONNECTIONS=1 part 180 check_one_queue.jsonl "$build/stepccl-gpu-check" -n "$gpus" values graphs
perf() { part 90 perf.txt "$build/stepccl-gpu-perf" -n "$gpus" -T 80 -j "$out/perf.jsonl" "$@"; }
perf -o all_reduce,all_gather,reduce_scatter,all_to_all,broadcast -b 8 -e 1M -f 8 -m eager,graph
perf -o all_reduce,all_gather,reduce_scatter,all_to_all,broadcast -b 4M -e 64M -f 4 -m eager,graph
perf -o all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,reduce,scatter,gather -b 256M -e 1G -f 4 -m eager,graph -i 10 -c 0
perf -o all_gather,reduce_scatter -b 64M -e 1G -f 4 -m eager -I 1 -i 10 -c 0
perf -o all_reduce,all_gather,reduce_scatter -b 4M -e 1G -f 4 -m eager -k plain -i 5 -c 0
cat "$out/perf.txt"
exit $status
