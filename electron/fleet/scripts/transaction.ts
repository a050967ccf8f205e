/**
 * The journal of changes to a node: before each act its undoing is written to /opt/stepccl/.tx/journal and synced. It lies on
 * the node, so that a change that was cut off (console ended, link lost, node switched off) is undone by whoever comes next.
 * A line is `KIND ARG…`, without blanks inside an argument.
 */
export const TX = `
ROOT=/opt/stepccl
RELEASES=$ROOT/releases
TX=$ROOT/.tx
saves=0
# One at a time on the node: a script whose link was cut off may still be at work when the next one comes.
exec 9>>/run/stepccl-tx.lock && flock -w 150 9 || die busy "another change of this node does not end"
tx_note() { printf '%s\\n' "$*" >>"$TX/journal" && sync "$TX/journal"; }
tx_dir() { [ -d "$1" ] || { tx_note dir-new "$1"; mkdir -m 0755 "$1"; }; }
tx_save() {
  if [ -e "$1" ] || [ -L "$1" ]; then
    saves=$((saves + 1)); while [ -e "$TX/saved.$$.$saves" ]; do saves=$((saves + 1)); done
    cp -aP -- "$1" "$TX/saved.$$.$saves" && tx_note file-old "$1" "saved.$$.$saves"
  else tx_note file-new "$1"; fi
}
# tx_put SOURCE TARGET MODE: installs a file by rename; leaves one that is the same already. Sets changed=yes.
tx_put() {
  if [ -f "$2" ] && [ ! -L "$2" ] && cmp -s -- "$1" "$2" && [ "$(stat -c '%a:%u:%g' "$2")" = "$3:0:0" ]; then return 0; fi
  tx_save "$2" || return 1
  install -o 0 -g 0 -m "$3" -- "$1" "$2.stepccl-new" && sync "$2.stepccl-new" && mv -fT -- "$2.stepccl-new" "$2" || return 1
  changed=yes
}
# tx_link TARGET LINK: switches a symbolic link by rename. Sets changed=yes.
tx_link() {
  old=$(readlink "$2" 2>/dev/null || true)
  [ "$old" = "$1" ] && return 0
  if [ -n "$old" ]; then tx_note link-old "$2" "$old"; else tx_note link-new "$2"; fi
  rm -f -- "$2.stepccl-new" && ln -s -- "$1" "$2.stepccl-new" && mv -fT -- "$2.stepccl-new" "$2" || return 1
  changed=yes
}
tx_undo() {
  tac "$TX/journal" >"$TX/undo" || return 1
  while read -r kind a b c <&3; do
    case $kind in
      file-new) rm -f -- "$a" ;;
      file-old) cp -aP -- "$TX/$b" "$a.stepccl-new" && mv -fT -- "$a.stepccl-new" "$a" ;;
      dir-new) rmdir -- "$a" 2>/dev/null || true ;;
      tree-new) rm -rf -- "$a" ;;
      tree-moved) rm -rf -- "$a" && mv -T -- "$b" "$a" ;;
      link-new) rm -f -- "$a" ;;
      link-old) rm -f -- "$a.stepccl-new" && ln -s -- "$b" "$a.stepccl-new" && mv -fT -- "$a.stepccl-new" "$a" ;;
      user-new) ! getent passwd "$a" >/dev/null || userdel "$a" ;;
      group-new) ! getent group "$a" >/dev/null || groupdel "$a" ;;
      member-new) gpasswd -d "$a" stepccl >/dev/null ;;
      udev) udevadm control --reload ;;
      module-was) depmod "$a"; [ "$b" = loaded ] && { [ -d /sys/module/dma_engine ] || modprobe dma_engine; } || true ;;
      module-new) [ ! -d /sys/module/dma_engine ] || rmmod dma_engine ;;
      service-new) systemctl disable --quiet --no-reload --now stepccld 2>/dev/null; true ;;
      service-restarted) systemctl stop stepccld 2>/dev/null; true ;;
      service-was)
        systemctl daemon-reload
        if [ "$a" = active ]; then systemctl restart stepccld; fi ;;
      *) false ;;
    esac || say undo_failed "$kind $a"
  done 3<"$TX/undo"
  rm -rf -- "$TX"
}
`;

/**
 * Opens a transaction. Prints recovered=yes when an earlier one was cut off and is undone now, undo_failed*.
 */
export const TX_BEGIN = `${TX}
if [ -f "$TX/journal" ]; then say recovered yes; tx_undo || die recover "the journal $TX/journal cannot be undone"; fi
mkdir -p -m 0755 "$ROOT" "$RELEASES" && rm -rf -- "$TX" && mkdir -m 0700 "$TX" && : >"$TX/journal" || die begin "cannot write to $ROOT"
tx_note service-was "$(systemctl is-active stepccld 2>/dev/null || true)"
`;

/** Undoes everything since TX_BEGIN. Prints undo_failed* and undone=yes. */
export const TX_ROLLBACK = `${TX}
if [ -f "$TX/journal" ]; then tx_undo; fi
# The folders themselves go last: the journal stood inside them.
rmdir "$RELEASES" "$ROOT" 2>/dev/null
say undone yes
`;

/**
 * Closes a transaction: what was done stays. Notes users, groups and memberships that were made (for a later removal), keeps the
 * running release and the one before it, and removes older ones.
 */
export const TX_COMMIT = `${TX}
if [ -f "$TX/journal" ]; then
  { cat "$ROOT/created" 2>/dev/null; grep -E '^(user-new|group-new|member-new) ' "$TX/journal"; } | sort -u >"$ROOT/created.new"
  mv -fT "$ROOT/created.new" "$ROOT/created"
  rm -rf -- "$TX"
fi
current=$(basename "$(readlink "$ROOT/current")"); previous=$(basename "$(readlink "$ROOT/previous" 2>/dev/null)" 2>/dev/null)
for d in "$RELEASES"/*; do
  name=\${d##*/}
  case $name in "$current"|"$previous") ;; *) rm -rf -- "$d" ;; esac
done
say committed yes
`;
