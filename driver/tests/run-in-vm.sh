#!/bin/sh
# The driver's tests inside a throw-away machine, as root. Prints TAP.
#   run-in-vm.sh [DIR]    DIR (default: .) holds dma_engine.ko, dma-test, stepccl-dma, and in
#                         faults/ the module with fault points
# The machine must have no other module named dma_engine and nothing to lose.
set -u
dir=${1:-.}
sys=/sys/class/misc/dma_device
failed=0

point() { # 0|other, name
	if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; failed=1; fi
}

check() { # name, command...
	name=$1
	shift
	"$@" >/tmp/check.out 2>&1
	rc=$?
	point "$rc" "$name"
	[ "$rc" = 0 ] || sed 's/^/# /' /tmp/check.out
}

dmesg_has() { dmesg | grep -q "$1"; }
pinned() {
	echo 1 >/proc/sys/vm/stat_refresh	# sums up the per-CPU parts
	awk '/^nr_foll_pin_acquired/ {a=$2} /^nr_foll_pin_released/ {r=$2} END {print a-r}' /proc/vmstat
}
refused() { ! "$@"; }

mkdir -p /proc /sys /tmp
[ -d /proc/self ] || mount -t proc proc /proc
[ -d /sys/class ] || mount -t sysfs sysfs /sys
dmesg -n 4 2>/dev/null || true
grep -o 'slub_debug=[^ ]*' /proc/cmdline | sed 's/^/# /'
pinned_start=$(pinned)

check 'the module loads' insmod "$dir/dma_engine.ko"
check 'its first line is in the log' dmesg_has 'dma_engine: DE001 loaded version=.* abi=1.0 git=.* kernel='
check 'no engine is said' dmesg_has 'dma_engine: DE003 '
check 'dmesg | grep dma finds it' sh -c 'dmesg | grep dma | grep -q DE001'
check 'the device is there' test -c /dev/dma_device
check 'stats/ is there' test "$(cat $sys/stats/contexts)" = 0
check 'limits is there' grep -q '^max_contexts 256$' $sys/limits
check 'a second insmod is refused' refused insmod "$dir/dma_engine.ko"

if command -v udevadm >/dev/null && [ -d /run/udev ]; then
	mode=$(stat -c %a /dev/dma_device)
else
	mode=600
fi
suite() {
	echo "# suite $1"
	DMA_TEST_MODE=$mode "$dir/dma-test" "$1"
	rc=$?
	[ "$rc" = 0 ] || [ "$rc" = 1 ] || point 1 "suite $1 ended with status $rc"
	[ "$rc" = 0 ] || failed=1
}
for name in calls routes memory copy ring share lifetime limits fuzz; do suite "$name"; done

echo "# the tool"
check 'stepccl-dma info' "$dir/stepccl-dma" info
check 'stepccl-dma query' "$dir/stepccl-dma" query
check 'stepccl-dma selftest' "$dir/stepccl-dma" selftest
check 'a last error is kept' grep -q '^DE[0-9]* err=' $sys/last_error

echo "# unloading"
exec 9<>/dev/dma_device
check 'rmmod with an open file is refused' refused rmmod dma_engine
exec 9>&-
check 'rmmod' rmmod dma_engine
check 'the device is gone' test ! -e /dev/dma_device
check 'it says good-bye' dmesg_has 'dma_engine: DE401 unloading, contexts=0'
check 'a parameter out of bounds is refused' refused insmod "$dir/dma_engine.ko" local_node=65536
n=0
while [ "$n" -lt 50 ] && insmod "$dir/dma_engine.ko" && rmmod dma_engine; do n=$((n + 1)); done
point "$((n == 50 ? 0 : 1))" "50 times insmod and rmmod (got $n)"
check 'local_node is honoured' sh -c "insmod '$dir/dma_engine.ko' local_node=5 && grep -q '^5-5 local' $sys/routes && rmmod dma_engine"

point "$(dmesg | grep -c 'dma_engine: DE5')" 'no DE5xx in the log'
if [ -f "$dir/faults/dma_engine.ko" ]; then
	check 'the module with fault points loads' insmod "$dir/faults/dma_engine.ko"
	suite faults
	check '... and unloads' rmmod dma_engine
else
	echo 'ok - the module with fault points # SKIP it was not built'
fi

echo "# the kernel's health"
pinned_end=$(pinned)
point "$((pinned_end - pinned_start))" "no page stays pinned ($pinned_start before, $pinned_end after)"
dmesg | grep -E 'WARNING:|BUG|Oops|general protection|refcount_t|Redzone|Poison|scheduling while atomic|rcu.*stall|hung_task' >/tmp/bad
if [ -s /tmp/bad ]; then
	point 1 'dmesg holds no WARN, BUG or Oops'
	sed 's/^/# /' /tmp/bad
	dmesg | tail -n 80 | sed 's/^/# /'
else
	point 0 'dmesg holds no WARN, BUG or Oops'
fi
exit "$failed"
