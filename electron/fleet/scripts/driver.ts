import { TX } from "./transaction.js";

/** Who uses the module, without our own daemon. Sets holders. */
const HOLDERS = `
find_holders() {
  holders=
  for h in /sys/module/dma_engine/holders/*; do [ -e "$h" ] && holders="$holders \${h##*/}"; done
  read -r refs </sys/module/dma_engine/refcnt || refs=1
  [ "$refs" != 0 ] || return 0
  for fd in $(find /proc/[0-9]*/fd -lname /dev/dma_device 2>/dev/null); do
    pid=\${fd#/proc/}; pid=\${pid%%/*}
    read -r name <"/proc/$pid/comm" || continue
    case $name in stepccld) ;; *) holders="$holders $name($pid)" ;; esac
  done
}
`;

/**
 * Builds the module on the node from the release's sources, as root. $1 release, $2 kernel release.
 * Prints built=<path>; failed=build with the last lines of the compiler.
 */
export const DRIVER_BUILD = `${TX}
place="$RELEASES/$1" kernel=$2
out="$place/built/$kernel"
if [ -f "$out/dma_engine.ko" ]; then say built "$out/dma_engine.ko"; exit 0; fi
work=$(mktemp -d /var/tmp/stepccl-build.XXXXXX) || die build "cannot make a folder in /var/tmp"
tx_note tree-new "$work"
tx_note tree-new "$place/built"
cp -R "$place/driver/src/." "$work/" || die build "cannot copy the sources"
if log=$(cd "$work" && make KREL="$kernel" OUT="$work/out" module 2>&1) && ko=$(find "$work/out" -name dma_engine.ko | head -n 1) && [ -n "$ko" ]; then
  mkdir -p "$out" && cp "$ko" "$out/dma_engine.ko" || die build "cannot write $out"
  rm -rf -- "$work"
  say built "$out/dma_engine.ko"
else
  rm -rf -- "$work"
  die build "$(printf '%s' "$log" | tail -n 3)"
fi
`;

/**
 * Installs and loads the module, as root. $1 module file, $2 kernel release.
 * Prints loaded=kept|new|swapped, version, srcversion; failed=vermagic|files|in_use|rmmod|modprobe|device with detail.
 */
export const DRIVER_LOAD = `${TX}${HOLDERS}
ko=$1 kernel=$2
modules="/lib/modules/$kernel"
magic= wanted= version=
info=$(modinfo "$ko" 2>&1) || die vermagic "$info"
while read -r name value rest; do
  case $name in vermagic:) magic=$value ;; srcversion:) wanted=$value ;; version:) version=$value ;; esac
done <<STEPCCL_INFO
$info
STEPCCL_INFO
[ "$magic" = "$kernel" ] || die vermagic "$magic"
state=absent; running=
if [ -d /sys/module/dma_engine ]; then state=loaded; read -r running </sys/module/dma_engine/srcversion || running=; fi
tx_note module-was "$kernel" "$state"
if [ "$state" = loaded ] && { [ -z "$wanted" ] || [ "$running" != "$wanted" ]; }; then
  find_holders
  [ -z "$holders" ] || die in_use "$holders"
fi
changed=no
tx_dir "$modules/updates"; tx_dir "$modules/updates/stepccl"; tx_dir /etc/modules-load.d
tx_put "$ko" "$modules/updates/stepccl/dma_engine.ko" 644 || die files "cannot write below $modules"
printf 'dma_engine\\n' >"$TX/modules-load"
tx_put "$TX/modules-load" /etc/modules-load.d/stepccl.conf 644 || die files "cannot write /etc/modules-load.d/stepccl.conf"
err=$(depmod "$kernel" 2>&1) || die files "$err"
said() { dmesg 2>/dev/null | tail -n 100 | grep -Ei 'dma_engine|loading of|module verification|lockdown|key was rejected|disagrees about' | tail -n 4; }
if [ "$state" = loaded ] && [ -n "$wanted" ] && [ "$running" = "$wanted" ]; then
  say loaded kept
  # It may have come before the rule.
  udevadm trigger --action=change --subsystem-match=misc --sysname-match='dma*' 2>/dev/null
else
  if [ "$state" = loaded ]; then
    tx_note service-restarted
    systemctl stop stepccld 2>/dev/null
    find_holders
    [ -z "$holders" ] || die in_use "$holders"
    err=$(rmmod dma_engine 2>&1) || die in_use "the kernel ($(cat /sys/module/dma_engine/refcnt 2>/dev/null) references): $err"
    say loaded swapped
  else say loaded new; fi
  tx_note module-new
  err=$(modprobe dma_engine 2>&1) || die modprobe "$err; $(said)"
fi
say version "$version"; say srcversion "$wanted"
udevadm settle --timeout=10
for try in 1 2 3 4 5 6 7 8 9 10; do
  found=$(stat -c '%a:%G:%F' /dev/dma_device 2>/dev/null || echo missing)
  [ "$found" = "660:stepccl:character special file" ] && break
  sleep 0.3
done
[ "$found" = "660:stepccl:character special file" ] || die device "$found"
say device "$found"
`;

/** Whether anybody but our daemon uses the module, as root. Prints holders where somebody does. */
export const DRIVER_HOLDERS = `${HOLDERS}
if [ -d /sys/module/dma_engine ]; then
  find_holders
  [ -z "$holders" ] || say holders "$holders"
fi
exit 0
`;

/** Takes the module off, as root. Prints removed=yes|absent; failed=in_use. */
export const DRIVER_REMOVE = `${HOLDERS}
if [ -d /sys/module/dma_engine ]; then
  find_holders
  [ -z "$holders" ] || die in_use "$holders"
  err=$(rmmod dma_engine 2>&1) || die in_use "the kernel ($(cat /sys/module/dma_engine/refcnt 2>/dev/null) references): $err"
  say removed yes
else say removed absent; fi
rm -f -- /etc/modules-load.d/stepccl.conf
for d in /lib/modules/*/updates/stepccl; do
  [ -d "$d" ] || continue
  rm -rf -- "$d"; rmdir "\${d%/stepccl}" 2>/dev/null
  kernel=\${d#/lib/modules/}; depmod "\${kernel%%/*}" 2>/dev/null
done
exit 0
`;
