#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon and a GPU job on this machine, from the command line: stepccld is started, a job runs collectives on all GPUs
# (eager, and in a captured graph) while it takes and gives back memory of its pool, and `stepccld call` reads what its
# processes show and changes their settings, live. Every element of every collective is checked meanwhile.
#   STEPCCL_LIBRARY=.../libstepccl.so native/bench/gpu_daemon_check.sh STEPCCLD OUTPUT_FOLDER [GPUS]
# Writes daemon-check.json. Exit status: 0 when every step went as it should.
set -euo pipefail
stepccld=$1
out=$2
gpus=${3:-2}
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
mkdir -p "$out"
export PYTHONPATH=$bench:$bench/../python${PYTHONPATH:+:$PYTHONPATH}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
exec timeout --kill-after=10 "${LIMIT_S:-150}" "${PYTHON:-python3}" -u -m gpubench.daemon_check "$stepccld" "$out/daemon-check.json" "$gpus"
