/** The lab's DMAR fault: real lines of the kernel, made by a device that QEMU can plug into a running node. */

/** Name of the plugged device, in QEMU and nowhere else. */
export const dmarDevice = 'edu';

/**
 * QEMU's teaching device copies 64 bytes of its own to an address that nobody mapped (docs/specs/edu.txt: source 0x80,
 * target 0x88, length 0x90, command 0x98). Its registers take whole words only: read(2) into the mapped page copies
 * eight bytes as one, which perl can do without a compiler on the node. It repeats, as a driver's bug does, until the
 * device may no longer be a bus master.
 */
export const dmarFaultOn = String.raw`[ -d /sys/class/iommu/dmar0 ] || die "this kernel runs without an IOMMU"
device=
for try in $(seq 150); do
    device=$(grep -lx 0x11e8 /sys/bus/pci/devices/*/device 2>/dev/null | head -n 1)
    [ -z "$device" ] || break
    sleep 0.1
done
[ -n "$device" ] || die "the device did not appear on the bus"
device=$(dirname "$device")
[ "$(cat "$device/enable")" != 0 ] || echo 1 >"$device/enable"
setpci -s "$(basename "$device")" COMMAND=4:4
cat >"$keep/dmar-fault.pl" <<'PERL'
use strict;
my $page = 0x20000000;
sysopen(my $registers, $ARGV[0], 2) or die "$ARGV[0]: $!";
syscall(9, $page, 4096, 3, 0x100001, fileno($registers), 0) == $page or die "mmap: $!";
pipe(my $out, my $in) or die $!;
sub put { my ($at, $value) = @_; syswrite($in, pack("Q", $value)); syscall(0, fileno($out), $page + $at, 8) == 8 or die $!; }
while (1) {
    put(0x80, 0x40000); put(0x88, 0xbad0000); put(0x90, 64); put(0x98, 3);
    sleep 3;
}
PERL
before=$(dmesg | grep -c 'DMAR: .*fault addr 0xbad0000' || true)
systemctl is-active --quiet lab-dmar-fault || systemd-run --quiet --collect --unit=lab-dmar-fault perl "$keep/dmar-fault.pl" "$device/resource0"
for try in $(seq 150); do
    [ "$(dmesg | grep -c 'DMAR: .*fault addr 0xbad0000' || true)" -eq "$before" ] || exit 0
    sleep 0.1
done
die "the IOMMU reported nothing"`;

export const dmarFaultOff = 'if systemctl is-active --quiet lab-dmar-fault; then systemctl stop lab-dmar-fault; fi';
