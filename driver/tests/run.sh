#!/bin/bash
# All tests of the driver: unit, module build, and the suites in a throw-away machine of the lab.
# Prints TAP, and last "N passed, N failed, N skipped". Exit status 0 only if none failed.
#   KREL=6.1.0-57-amd64 driver/tests/run.sh
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
krel=${KREL:-}
out=$top/build/out/driver
log=$(mktemp)
trap 'rm -rf "$log" "${share:-}"' EXIT

say() { echo "$*" | tee -a "$log"; }

step() { # name, command...
	local name=$1 output
	shift
	if output=$("$@" 2>&1); then
		say "ok - $name"
	else
		say "not ok - $name"
		printf '%s\n' "$output" | tail -n 40 | sed 's/^/# /'
		return 1
	fi
}

finish() {
	local skipped failed passed
	skipped=$(grep -cE '^ok .*# SKIP' "$log")
	failed=$(grep -cE '^not ok' "$log")
	passed=$(($(grep -cE '^ok' "$log") - skipped))
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
	exit
}

# The kernel that the lab boots: the newest one with image and headers here.
if [ -z "$krel" ]; then
	for image in /boot/vmlinuz-*; do
		[ -d "/lib/modules/${image#/boot/vmlinuz-}/build" ] && krel=${image#/boot/vmlinuz-}
	done
fi
if [ -z "$krel" ]; then
	say 'not ok - no kernel with headers is installed: apt-get install linux-image-amd64 linux-headers-amd64'
	finish
fi

echo "# unit"
make -s -C "$here/.." unit | tee -a "$log"
[ "${PIPESTATUS[0]}" = 0 ] || say 'not ok - the unit tests failed'

echo "# build"
step "the module builds for $krel" make -C "$here/.." KREL="$krel" module faults || finish
step 'W=1 and sparse have nothing to say' make -C "$here/.." KREL="$krel" check
step 'the tools build' make -C "$here/.." tools || finish

echo "# machine"
share=$(mktemp -d)
cp "$out/$krel/dma_engine.ko" "$out/tools/dma-test" "$out/tools/stepccl-dma" "$share/"
mkdir "$share/faults"
cp "$out/$krel/faults/dma_engine.ko" "$share/faults/"
(cd "$top" && npx tsx e2e/lab/cli.ts smoke --share "$share" --script "$here/run-in-vm.sh" \
	--append slub_debug=FZPU) 2>&1 | tee -a "$log"
[ "${PIPESTATUS[0]}" = 0 ] || say 'not ok - the suites in the machine did not all pass'
grep -q '^ok - dmesg holds no WARN' "$log" || say 'not ok - the machine did not reach its last check'
finish
