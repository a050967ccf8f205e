/**
 * Reads what a bring-up depends on, as the login user, and changes nothing.
 * Prints: system machine kernel uid user os systemd(yes|no) missing*(tool) free_opt free_tmp free_modules (KiB) time (s since the epoch)
 * memlock (KiB|unlimited) secureboot(1|0|bios|unreadable) rdma*(device) release(current) loaded(srcversion) build(yes|no) probe_socket
 * ssh_address.
 */
export const PREFLIGHT = `
uname -srm | { read -r system kernel machine && say system "$system" && say kernel "$kernel" && say machine "$machine"; }
say uid "$(id -u)"; say user "$(id -un)"
if [ -r /etc/os-release ]; then say os "$( . /etc/os-release; printf '%s' "\${PRETTY_NAME:-\${NAME:-unknown}}" )"; fi
if [ -d /run/systemd/system ]; then say systemd yes; else say systemd no; fi
for tool in tar gzip sha256sum cmp stat tac flock getent gpasswd systemctl udevadm depmod modprobe rmmod modinfo; do
  command -v "$tool" >/dev/null 2>&1 || say missing "$tool"
done
near() { near=$1; while [ ! -d "$near" ]; do near=\${near%/*}; [ -n "$near" ] || near=/; done; }
near /opt; opt=$near; near /var/tmp; tmp=$near; near /lib/modules; modules=$near
df -Pk "$opt" "$tmp" "$modules" | {
  read -r _
  for name in free_opt free_tmp free_modules; do read -r _ _ _ kib _ && say "$name" "$kib"; done
}
say time "$(date +%s)"
say memlock "$(ulimit -l)"
if [ -d /sys/firmware/efi ]; then
  state=unreadable
  for f in /sys/firmware/efi/efivars/SecureBoot-*; do
    [ -r "$f" ] && state=$(od -An -tu1 -j4 -N1 "$f" | tr -d ' ')
  done
  if [ "$state" = unreadable ] && command -v mokutil >/dev/null 2>&1; then
    case $(mokutil --sb-state 2>/dev/null) in *enabled*) state=1 ;; *disabled*) state=0 ;; esac
  fi
  say secureboot "$state"
else say secureboot bios; fi
for d in /sys/class/infiniband/*; do [ -e "$d" ] && say rdma "\${d##*/}"; done
if [ -L /opt/stepccl/current ]; then say release "$(basename "$(readlink /opt/stepccl/current)")"; fi
[ -r /sys/module/dma_engine/srcversion ] && read -r loaded </sys/module/dma_engine/srcversion && say loaded "$loaded"
read -r kernel </proc/sys/kernel/osrelease
if [ -e "/lib/modules/$kernel/build/Makefile" ] && command -v make >/dev/null 2>&1 && command -v gcc >/dev/null 2>&1; then say build yes; else say build no; fi
for s in /run/dbus/system_bus_socket /run/systemd/journal/stdout; do
  if [ -S "$s" ] && [ -r "$s" ] && [ -w "$s" ]; then say probe_socket "$s"; break; fi
done
set -- \${SSH_CONNECTION:-}
[ $# -ge 3 ] && say ssh_address "$3"
`;

/** Prints ssh_address: the node's own end of this connection. */
export const SSH_ADDRESS = `
set -- \${SSH_CONNECTION:-}
[ $# -ge 3 ] && say ssh_address "$3"
`;

/**
 * The lock that keeps two consoles off one node, as root. $1 path, $2 token, $3 owner, $4 seconds after which a lock without a
 * heartbeat is stale, $5 token that is known to be dead ("" = none).
 * Prints taken=yes, or held_token held_owner held_since age.
 */
export const LOCK_TAKE = `
lock=$1 token=$2 owner=$3 stale=$4 dead=$5
field() { sed -n "s/^$1=//p" "$lock" 2>/dev/null | head -n 1; }
for try in 1 2 3; do
  if ( set -C; printf 'token=%s\\nowner=%s\\nsince=%s\\n' "$token" "$owner" "$(date +%s)" >"$lock" ) 2>/dev/null; then say taken yes; exit 0; fi
  held=$(field token)
  if [ "$held" = "$token" ]; then touch "$lock"; say taken yes; exit 0; fi
  age=$(( $(date +%s) - $(stat -c %Y "$lock" 2>/dev/null || date +%s) ))
  if [ "$(stat -c %u "$lock" 2>/dev/null || echo 0)" != 0 ] || [ -L "$lock" ] || [ "$age" -gt "$stale" ] || { [ -n "$dead" ] && [ "$held" = "$dead" ]; }; then
    rm -f -- "$lock"; continue
  fi
  say held_token "$held"; say held_owner "$(field owner)"; say held_since "$(field since)"; say age "$age"; exit 0
done
die lock "the lock $lock changes all the time"
`;

/** Who holds the node, as root. $1 path. Prints held_token held_owner held_since age where somebody does. */
export const LOCK_SHOW = `
[ -f "$1" ] && [ ! -L "$1" ] || exit 0
field() { sed -n "s/^$1=//p" "$2" 2>/dev/null | head -n 1; }
say held_token "$(field token "$1")"; say held_owner "$(field owner "$1")"; say held_since "$(field since "$1")"
say age $(( $(date +%s) - $(stat -c %Y "$1" 2>/dev/null || date +%s) ))
`;

/** Heartbeat and release, as root. $1 path, $2 token, $3 refresh|release. Prints lost=yes when the lock is not ours any more. */
export const LOCK_KEEP = `
if [ "$(sed -n 's/^token=//p' "$1" 2>/dev/null | head -n 1)" != "$2" ]; then say lost yes; exit 0; fi
if [ "$3" = refresh ]; then touch "$1"; else rm -f -- "$1"; fi
`;
