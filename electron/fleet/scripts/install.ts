import { TX } from "./transaction.js";

/** Makes a private folder for the upload, as the login user. Prints dir. */
export const STAGE = `
umask 077
dir=$(mktemp -d /var/tmp/stepccl-upload.XXXXXX) || die stage "cannot make a folder in /var/tmp"
say dir "$dir"
`;

/** Removes the upload's folder, as the login user. $1 = folder. */
export const UNSTAGE = `
case $1 in /var/tmp/stepccl-upload.*) rm -rf -- "$1" ;; esac
`;

/**
 * Whether a release on the node is whole, as root (see withCheck). $1 = release. Prints whole=yes or wrong.
 */
export const CHECK_RELEASE = `
@CHECK@
if check_tree "/opt/stepccl/releases/$1"; then say whole yes; else say wrong "$wrong"; fi
`;

/** check_tree FOLDER: every file of the manifest is there with its bytes, and nothing but plain files. Sets wrong. */
const CHECK_TREE = `
check_tree() {
  wrong=
  cd "$1" 2>/dev/null || { wrong="$1 is not there"; return 1; }
  out=$(sha256sum --check --strict --quiet - 2>&1 <<'STEPCCL_SUMS'
@SUMS@
STEPCCL_SUMS
) || { wrong=$(printf '%s' "$out" | head -n 3); return 1; }
  odd=$(find . ! -type f ! -type d | head -n 1)
  [ -z "$odd" ] || { wrong="$odd is no plain file"; return 1; }
}
`;

/** A script with its check of the files of a bundle. Paths and digests have passed the manifest's schema: no quoting is needed. */
export function withCheck(script: string, files: readonly { path: string; sha256: string }[]): string {
  return script.replace("@CHECK@", () => CHECK_TREE.replace("@SUMS@", () => files.map((f) => `${f.sha256}  ${f.path}`).join("\n")));
}

/**
 * Checks the archive and unpacks it beside its place, as root. $1 archive, $2 sha256, $3 release, $4 number of files, $5 bytes
 * needed. Prints unpacked=yes; or failed=sha256 detail=<found>, failed=disk detail=<free bytes>, failed=unpack, failed=tree.
 */
export const UNPACK = `${TX}
found=$(sha256sum <"$1" | cut -c 1-64)
[ "$found" = "$2" ] || die sha256 "$found"
part="$RELEASES/$3.part"
kib=$(df -Pk "$RELEASES" | { read -r _; read -r _ _ _ kib _; printf '%s' "$kib"; })
[ "$((kib * 1024))" -ge "$5" ] || die disk "$((kib * 1024))"
tx_note tree-new "$part"
rm -rf -- "$part" && mkdir -m 0755 "$part" || die unpack "cannot make $part"
err=$(tar -xzf "$1" -C "$part" --no-same-owner --preserve-permissions 2>&1) || die unpack "$err"
# Whatever modes the archive's folders have: everybody may read and run a release, only root may write it.
chmod -R u=rwX,go=rX "$part" && chown -R 0:0 "$part"
@CHECK@
[ "$(find "$part" -type f | wc -l)" -le "$(($4 + 2))" ] || die tree "it has files that the manifest does not name"
check_tree "$part" || die tree "$wrong"
# Moved, not copied, so that a half-written release never has a release's name.
sync -f "$part"
say unpacked yes
`;

/**
 * Puts an unpacked release in its place and the node's own files around it, as root. $1 release, $2 login user, $3 limits text.
 * Prints membership=new when the user was put into the group, changed=yes when a file changed.
 * failed=place|sysusers|group|files|link with detail.
 */
export const INSTALL = `${TX}
release=$1 user=$2
place="$RELEASES/$release"
if [ -d "$place.part" ]; then
  if [ -d "$place" ]; then tx_note tree-moved "$place" "$place.old"; rm -rf -- "$place.old"; mv -T "$place" "$place.old"; else tx_note tree-new "$place"; fi
  mv -T "$place.part" "$place" || die place "cannot move $place.part"
  sync -f "$RELEASES"
fi
[ -d "$place" ] || die place "$place is not there"
changed=no
tx_dir /etc/sysusers.d
if ! getent group stepccl >/dev/null; then
  if ! getent passwd stepccl >/dev/null && grep -Eq '^u!?[[:space:]]+stepccl' "$place/etc/stepccl.sysusers"; then tx_note group-new stepccl; tx_note user-new stepccl
  else tx_note group-new stepccl; fi
fi
tx_put "$place/etc/stepccl.sysusers" /etc/sysusers.d/stepccl.conf 644 || die sysusers "cannot write /etc/sysusers.d/stepccl.conf"
if command -v systemd-sysusers >/dev/null 2>&1; then err=$(systemd-sysusers /etc/sysusers.d/stepccl.conf 2>&1) || die sysusers "$err"; fi
getent group stepccl >/dev/null || err=$(addgroup --system stepccl 2>&1 || groupadd --system stepccl 2>&1) || die group "$err"
if [ "$(id -u "$user")" != 0 ] && ! id -nG "$user" | tr ' ' '\\n' | grep -qx stepccl; then
  tx_note member-new "$user"
  err=$(usermod -aG stepccl "$user" 2>&1) || die group "$err"
  say membership new
fi
tx_note udev
tx_dir /etc/udev/rules.d
tx_put "$place/etc/70-stepccl.rules" /etc/udev/rules.d/70-stepccl.rules 644 || die files "cannot write /etc/udev/rules.d/70-stepccl.rules"
udevadm control --reload
limits="$TX/limits"
printf '%s' "$3" >"$limits"
tx_dir /etc/security; tx_dir /etc/security/limits.d
tx_put "$limits" /etc/security/limits.d/60-stepccl.conf 644 || die files "cannot write /etc/security/limits.d/60-stepccl.conf"
old=$(readlink "$ROOT/current" 2>/dev/null || true)
if [ -n "$old" ] && [ "$old" != "releases/$release" ]; then tx_link "$old" "$ROOT/previous" || die link "cannot switch $ROOT/previous"; fi
tx_link "releases/$release" "$ROOT/current" || die link "cannot switch $ROOT/current"
sync -f "$ROOT"
say changed "$changed"
`;
