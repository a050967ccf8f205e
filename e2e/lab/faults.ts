import { dmarDevice, dmarFaultOff, dmarFaultOn } from './dmar-fault.js';
import { LabError } from './errors.js';
import type { HubRequest } from './hub/protocol.js';
import type { ExecResult } from './ssh.js';

/**
 * The faults that the lab can make. Each can be taken back. A node fault is a shell script run as root on the
 * node; a link fault is a setting of the hub. `$peer` is the data address of the other node where there is one.
 */
interface FaultBase {
  readonly name: string;
  readonly description: string;
  /** Concerns two nodes. */
  readonly between: boolean;
}
interface NodeFault extends FaultBase {
  readonly kind: 'node';
  /** QEMU device that the machine has from before `on` until after `off`. */
  readonly plug?: string;
  readonly on: string;
  readonly off: string;
}
interface LinkFault extends FaultBase {
  readonly kind: 'link';
  readonly request: (index: number, on: boolean, peer: number | undefined) => HubRequest;
}
export type Fault = NodeFault | LinkFault;

/** In front of each script: where faults keep what they need to take themselves back, and common steps. */
const prelude = String.raw`set -eu
keep=/var/lib/stepccl-lab
mkdir -p "$keep"
release=$(uname -r)
module=/lib/modules/$release/updates/stepccl/dma_engine.ko
unit=stepccld.service
die() { echo "$1" >&2; exit 1; }
unit_known() { systemctl cat "$unit" >/dev/null 2>&1; }
# Takes the module out; a daemon that holds the device is stopped first and told apart by the kept file.
unload() {
    if systemctl is-active --quiet "$unit"; then touch "$keep/daemon-was-active"; systemctl stop "$unit"; fi
    if [ -d /sys/module/dma_engine ]; then rmmod dma_engine; fi
}
daemon_again() {
    if [ -e "$keep/daemon-was-active" ]; then rm "$keep/daemon-was-active"; systemctl start --no-block "$unit"; fi
}
# The data address with the length of its prefix, such as 10.77.0.2/24, and the one that took its place.
data_address() { ip -o -4 addr show dev eth1 | sed -n 's/.* inet \(10\.77\.[0-9.]*\/[0-9]*\) .*/\1/p'; }
other_address() { echo "10.88.$(data_address | cut -d. -f3-)"; }
has_address() { ip -o -4 addr show dev eth1 | grep -q " $1 "; }
gid_index() {
    gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' $(echo "$1" | sed 's,/.*,,; s/\./ /g'))
    grep -lx "$gid" /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | head -n 1
}
# The kernel changes the GID table some time after the address: waits until -z or -n holds for the address's GID.
gid_settles() {
    [ -e /sys/class/infiniband/rxe0 ] || return 0
    for try in $(seq 100); do if test "$1" "$(gid_index "$2")"; then return 0; fi; sleep 0.1; done
    die "the GID table does not follow the addresses"
}
module_back() {
    [ -e "$keep/dma_engine.ko" ] || exit 0
    if systemctl is-active --quiet "$unit"; then touch "$keep/daemon-was-active"; systemctl stop "$unit"; fi
    mkdir -p "$(dirname "$module")"
    mv "$keep/dma_engine.ko" "$module"
    depmod -a
    modprobe dma_engine
    daemon_again
}
`;

const faultTable = [
  {
    name: 'device-mode-000',
    kind: 'node',
    between: false,
    description: '/dev/dma_device may be opened by nobody but root',
    on: String.raw`[ -e /dev/dma_device ] || die "there is no /dev/dma_device on this node"
[ -e "$keep/device-mode" ] || stat -c %a /dev/dma_device >"$keep/device-mode"
chmod 000 /dev/dma_device`,
    off: String.raw`[ -e "$keep/device-mode" ] || exit 0
if [ -e /dev/dma_device ]; then chmod "$(cat "$keep/device-mode")" /dev/dma_device; fi
rm "$keep/device-mode"`,
  },
  {
    name: 'module-missing',
    kind: 'node',
    between: false,
    description: 'the driver dma_engine.ko is neither loaded nor on the disk',
    on: String.raw`if [ ! -e "$keep/dma_engine.ko" ]; then
    [ -e "$module" ] || die "there is no $module on this node"
    unload
    mv "$module" "$keep/dma_engine.ko"
    depmod -a
    daemon_again
fi`,
    off: 'module_back',
  },
  {
    name: 'module-wrong-kernel',
    kind: 'node',
    between: false,
    description: 'the driver on the disk was built for another kernel and does not load',
    // With CONFIG_MODVERSIONS the kernel compares the symbols' checksums, not the release: both are made wrong.
    on: String.raw`if [ ! -e "$keep/dma_engine.ko" ]; then
    [ -e "$module" ] || die "there is no $module on this node"
    other=$(echo "$release" | sed 's/-[0-9]/-0/')
    RELEASE=$release OTHER=$other perl -0777 -pe 's/vermagic=\Q$ENV{RELEASE}\E/vermagic=$ENV{OTHER}/; s/.{4}(\0{4}module_layout\0)/\xde\xad\xbe\xef$1/s' "$module" >"$keep/wrong.ko"
    ! cmp -s "$module" "$keep/wrong.ko" || die "$module carries no version that could be changed"
    unload
    cp -p "$module" "$keep/dma_engine.ko"
    mv "$keep/wrong.ko" "$module"
    depmod -a
    ! modprobe dma_engine 2>/dev/null || die "the kernel loads the changed module all the same"
    daemon_again
fi`,
    off: 'module_back',
  },
  {
    name: 'rdma-link-down',
    kind: 'node',
    between: false,
    description: 'eth1 is down, so that the port of rxe0 is DOWN',
    on: 'ip link set eth1 down',
    off: 'ip link set eth1 up',
  },
  {
    name: 'rxe-removed',
    kind: 'node',
    between: false,
    description: 'the node has no RDMA device',
    on: 'if [ -e /sys/class/infiniband/rxe0 ]; then rdma link delete rxe0; fi',
    off: '[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev eth1',
  },
  {
    name: 'wrong-gid-index',
    kind: 'node',
    between: false,
    description: 'another address has the GID index that the cluster names for the data address',
    on: String.raw`[ -e /sys/class/infiniband/rxe0 ] || die "there is no rxe0 on this node"
own=$(data_address)
other=$(other_address)
[ -n "$own" ] || die "eth1 has no data address"
if ! has_address "$other"; then
    ip addr del "$own" dev eth1
    gid_settles -z "$own"
    ip addr add "$other" dev eth1
    gid_settles -n "$other"
    ip addr add "$own" dev eth1
    gid_settles -n "$own"
fi`,
    off: String.raw`own=$(data_address)
other=$(other_address)
if has_address "$other"; then
    ip addr del "$other" dev eth1
    ip addr del "$own" dev eth1
    gid_settles -z "$other"
    gid_settles -z "$own"
    ip addr add "$own" dev eth1
fi`,
  },
  {
    name: 'memlock-small',
    kind: 'node',
    between: false,
    description: 'logins and the daemon may lock 64 KiB of memory, too little to register buffers',
    // What lifted the limit of an earlier fault comes after this one's file.
    on: String.raw`rm -f "/etc/systemd/system/$unit.d/zz-stepccl-memlock.conf"
printf '* hard memlock 64\n* soft memlock 64\n' >/etc/security/limits.d/90-lab-memlock.conf
mkdir -p "/run/systemd/system/$unit.d"
printf '[Service]\nLimitMEMLOCK=64K\n' >"/run/systemd/system/$unit.d/90-lab-memlock.conf"
systemctl daemon-reload
if unit_known; then systemctl try-restart "$unit"; fi`,
    off: String.raw`rm -f /etc/security/limits.d/90-lab-memlock.conf "/run/systemd/system/$unit.d/90-lab-memlock.conf"
systemctl daemon-reload
if unit_known; then systemctl try-restart "$unit"; fi`,
  },
  {
    name: 'firewall-drop',
    kind: 'node',
    between: true,
    description: 'the packet filter drops TCP and RoCE (UDP 4791) that come from another node',
    on: String.raw`nft -f - <<EOF
table inet lab_fault
delete table inet lab_fault
table inet lab_fault {
    chain input {
        type filter hook input priority filter; policy accept;
        iifname "eth1" ip saddr $peer meta l4proto tcp counter drop
        iifname "eth1" ip saddr $peer udp dport 4791 counter drop
    }
}
EOF`,
    off: 'if nft list table inet lab_fault >/dev/null 2>&1; then nft delete table inet lab_fault; fi',
  },
  {
    name: 'mtu-mismatch',
    kind: 'node',
    between: false,
    description: 'eth1 has an MTU of 1500 bytes where the others have 9000',
    on: 'ip link set eth1 mtu 1500',
    off: 'ip link set eth1 mtu 9000',
  },
  {
    name: 'clock-skew',
    kind: 'node',
    between: false,
    description: 'the clock is 10 minutes ahead',
    on: String.raw`hwclock --hctosys --utc
date -s "@$(($(date +%s) + 600))" >/dev/null`,
    off: 'hwclock --hctosys --utc',
  },
  {
    name: 'disk-full',
    kind: 'node',
    between: false,
    description: 'the root file system has no free byte',
    on: String.raw`free=$(df --output=avail -B1 / | tail -n 1)
if [ "$free" -gt 0 ]; then fallocate -o "$(stat -c %s "$keep/fill" 2>/dev/null || echo 0)" -l "$free" "$keep/fill" || true; fi
dd if=/dev/zero of="$keep/fill" bs=4k oflag=append conv=notrunc 2>/dev/null || true
[ "$(df --output=avail -B1 / | tail -n 1)" -eq 0 ] || die "the disk would not fill"`,
    off: 'rm -f "$keep/fill"',
  },
  {
    name: 'daemon-killed',
    kind: 'node',
    between: false,
    description: 'stepccld was killed and does not come back by itself',
    on: String.raw`unit_known || die "there is no $unit on this node"
mkdir -p "/run/systemd/system/$unit.d"
printf '[Service]\nRestart=no\n' >"/run/systemd/system/$unit.d/90-lab-killed.conf"
systemctl daemon-reload
systemctl kill --signal=KILL "$unit"`,
    off: String.raw`rm -f "/run/systemd/system/$unit.d/90-lab-killed.conf"
systemctl daemon-reload
if unit_known; then systemctl reset-failed "$unit"; systemctl start --no-block "$unit"; fi`,
  },
  {
    name: 'rank-stopped',
    kind: 'node',
    between: false,
    description: 'the ranks that run on the node are stopped with SIGSTOP: they neither work nor end',
    on: 'pkill -STOP -x stepccl-perf || die "no rank runs on this node"',
    off: 'if pgrep -x stepccl-perf >/dev/null; then pkill -CONT -x stepccl-perf; fi',
  },
  {
    name: 'dmar-fault',
    kind: 'node',
    between: false,
    description: 'a device without a driver writes again and again to memory that the IOMMU did not give it',
    plug: dmarDevice,
    on: dmarFaultOn,
    off: dmarFaultOff,
  },
  {
    name: 'netem-loss-5',
    kind: 'node',
    between: false,
    description: 'the node itself drops 5 % of what it sends on eth1',
    on: 'tc qdisc replace dev eth1 root netem loss 5%',
    off: 'if tc qdisc show dev eth1 | grep -q netem; then tc qdisc del dev eth1 root; fi',
  },
  {
    name: 'loss-5',
    kind: 'link',
    between: false,
    description: 'the link of eth1 loses 5 % of the frames in each direction',
    request: (port, on) => ({ op: 'link', port, dropPercent: on ? 5 : 0 }),
  },
  {
    name: 'delay-50',
    kind: 'link',
    between: false,
    description: 'the link of eth1 delays each frame by 50 ms in each direction',
    request: (port, on) => ({ op: 'link', port, delayMs: on ? 50 : 0 }),
  },
  {
    name: 'cut',
    kind: 'link',
    between: true,
    description: 'no frame passes the link of eth1; with a peer, none between the two nodes',
    request: (port, on, peer) => (peer === undefined ? { op: 'link', port, cut: on } : { op: 'pair', a: port, b: peer, cut: on }),
  },
] as const satisfies readonly Fault[];

export type FaultName = (typeof faultTable)[number]['name'];
export const faults: readonly Fault[] = faultTable;

/** @throws LabError LAB_BAD_ARGUMENT when there is no fault of this name. */
export function findFault(name: string): Fault {
  const fault = faults.find((candidate) => candidate.name === name);
  if (fault === undefined) throw new LabError('LAB_BAD_ARGUMENT', `there is no fault ${JSON.stringify(name)}`, '`npm run lab -- fault --list` names them all.');
  return fault;
}

/** True when the fault needs a device that is plugged into the machine. */
export function hasPlug(name: string): boolean {
  return faults.some((fault) => fault.name === name && fault.kind === 'node' && fault.plug !== undefined);
}

/** The other node of a fault between two: the one asked for, else the next in the ring. */
export function choosePeer(index: number, indexes: readonly number[], asked?: number): number {
  const others = indexes.filter((other) => other !== index);
  const peer = asked ?? others.find((other) => other > index) ?? others[0];
  if (peer === undefined || !others.includes(peer)) {
    throw new LabError('LAB_BAD_ARGUMENT', `node ${index} has no peer ${asked ?? ''}`.trim(), others.length === 0 ? 'This fault needs a lab of two nodes.' : `Its peers are ${others.join(', ')}.`);
  }
  return peer;
}

/** The whole script of a node fault. */
export function faultScript(fault: NodeFault, on: boolean, peerAddress?: string): string {
  return `${prelude}${peerAddress === undefined ? '' : `peer=${peerAddress}\n`}${on ? fault.on : fault.off}\n`;
}

/** Runs a node fault through `run`, which executes a shell script as root on the node. */
export async function runOnNode(fault: NodeFault, on: boolean, { peerAddress }: { peerAddress?: string }, run: (script: string) => Promise<ExecResult>): Promise<void> {
  const result = await run(faultScript(fault, on, peerAddress));
  if (result.code === 0) return;
  const why = result.stderr.trim().split('\n').at(-1) ?? '';
  throw new LabError('LAB_FAULT_FAILED', `the fault ${fault.name} could not be ${on ? 'made' : 'taken back'}: ${why}`, 'Faults of the driver and the daemon need a node that was brought up; `npm run lab -- reset` makes a node new.');
}
