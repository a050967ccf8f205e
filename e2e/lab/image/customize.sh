#!/bin/sh
# mmdebstrap's customize hook: makes a freshly unpacked Debian a lab node.
# usage: customize.sh ROOT, with LAB_ROOTFS (folder laid over the root) and LAB_MODULES (a lib/modules tree).
set -eu
root=$1

cp -R --no-preserve=ownership "$LAB_ROOTFS/." "$root/"
chmod 0440 "$root/etc/sudoers.d/ops"
mkdir -p "$root/lib/modules" "$root/mnt/host"
cp -R --no-preserve=ownership "$LAB_MODULES/." "$root/lib/modules/"

{
    printf '127.0.0.1 localhost\n::1 localhost\n'
    for n in $(seq 1 32); do printf '10.77.0.%d node%d\n' "$n" "$n"; done
} >"$root/etc/hosts"
: >"$root/etc/resolv.conf"

chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash ops
chroot "$root" usermod --lock root
install -d -m 0700 -o 1000 -g 1000 "$root/home/ops/.ssh"
# Identity comes with each node: its own host key, machine id and name.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname"
: >"$root/etc/machine-id"

chroot "$root" systemctl --quiet enable lab-network.service lab-rxe.service
chroot "$root" systemctl --quiet mask \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer getty@tty1.service serial-getty@ttyS0.service systemd-networkd.service \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-logind.service

rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
: >"$root/etc/apt/sources.list"
# Nothing under /usr is newer than these, so that no update service runs at the first boot.
touch "$root/etc/.updated" "$root/var/.updated"
