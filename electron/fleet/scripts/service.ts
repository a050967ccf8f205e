import { TX } from "./transaction.js";

/**
 * Starts the daemon of a release, as root. $1 release. A daemon of this very release that runs already is left alone.
 * Prints service=kept|started pid; failed=service with the journal's last lines.
 */
export const SERVICE_START = `${TX}
place="$RELEASES/$1"
changed=no
unit=/etc/systemd/system/stepccld.service
[ -e "$unit" ] || tx_note service-new
tx_put "$place/etc/stepccld.service" "$unit" 644 || die service "cannot write $unit"
words() { journalctl -u stepccld -n 6 --no-pager -o cat 2>/dev/null; }
if systemctl is-enabled --quiet stepccld 2>/dev/null; then [ "$changed" = no ] || systemctl daemon-reload
else
  tx_note service-new
  # A unit that was never loaded is read when it is started; reading all units anew takes seconds on a busy node.
  err=$(systemctl enable --quiet --no-reload stepccld 2>&1) || die service "$err"
  [ "$(systemctl show -p LoadState --value stepccld)" = loaded ] && [ "$(systemctl show -p NeedDaemonReload --value stepccld)" = no ] || systemctl daemon-reload
fi
pid=$(systemctl show -p MainPID --value stepccld 2>/dev/null)
if [ "$changed" = no ] && [ "\${pid:-0}" != 0 ] && [ "$(readlink "/proc/$pid/exe")" = "$place/bin/stepccld" ]; then say service kept
else
  tx_note service-restarted
  err=$(systemctl restart stepccld 2>&1) || { said=$(words); die service "\${said:-$err}"; }
  say service started
fi
n=0
while [ ! -S /run/stepccl/agent.sock ] && [ "$n" -lt 40 ]; do n=$((n + 1)); sleep 0.25; done
# A daemon that dies right after its start is not up.
sleep 0.5
state=$(systemctl show -p ActiveState --value stepccld)
[ "$state" = active ] || die service "$state; $(words)"
[ -S /run/stepccl/agent.sock ] || die service "there is no /run/stepccl/agent.sock; $(words)"
say pid "$(systemctl show -p MainPID --value stepccld)"
`;

/** Stops the daemon and takes its unit off, as root. */
export const SERVICE_REMOVE = `
unit=/etc/systemd/system/stepccld.service
if [ -e "$unit" ]; then
  systemctl disable --quiet --no-reload --now stepccld 2>/dev/null
  rm -f -- "$unit"
  systemctl daemon-reload
  systemctl reset-failed stepccld 2>/dev/null
  say removed yes
else say removed absent; fi
exit 0
`;

/**
 * Takes everything else off that a bring-up put there, as root: what it made (by /opt/stepccl/created), never what it found.
 * Prints kept*=what stays and why, removed=yes.
 */
export const FILES_REMOVE = `
if [ -f /etc/udev/rules.d/70-stepccl.rules ]; then rm -f -- /etc/udev/rules.d/70-stepccl.rules; udevadm control --reload; fi
rm -f -- /etc/security/limits.d/60-stepccl.conf /etc/sysusers.d/stepccl.conf
if [ -f /opt/stepccl/created ]; then
  while read -r kind name <&3; do
    [ "$kind" = member-new ] && gpasswd -d "$name" stepccl >/dev/null 2>&1
  done 3</opt/stepccl/created
  # A user's own group can only go after the user.
  while read -r kind name <&3; do
    [ "$kind" != user-new ] || ! getent passwd "$name" >/dev/null || userdel "$name" 2>/dev/null || say kept "user $name"
  done 3</opt/stepccl/created
  while read -r kind name <&3; do
    [ "$kind" = group-new ] && entry=$(getent group "$name") || continue
    if [ -n "\${entry##*:}" ]; then say kept "group $name with members \${entry##*:}"
    else groupdel "$name" 2>/dev/null || say kept "group $name"; fi
  done 3</opt/stepccl/created
fi
rm -rf -- /opt/stepccl /var/lib/stepccl /run/stepccl
say removed yes
`;
