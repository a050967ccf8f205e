# Steps that are done once for given inputs. Sourced by setup.sh, which sets ROOT and STAMPS.

say() { printf 'setup: %s\n' "$*" >&2; }

# Ends with one sentence that says what is missing and one that says how to mend it.
die() {
    printf 'setup: %s\n  next: %s\n' "$1" "$2" >&2
    exit 1
}

# Prints a hash over names and contents of all files below the given paths, without what git ignores.
# A path that does not exist counts as empty, so that it changes the hash when it appears.
hash_inputs() {
    if git -C "$ROOT" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git -C "$ROOT" ls-files -z --cached --others --exclude-standard -- "$@"
    else
        (cd "$ROOT" && find "$@" -type f -not -path '*/node_modules/*' -not -path '*/addon/build/*' -print0 2>/dev/null || true)
    fi | sort -zu | (cd "$ROOT" && xargs -0 --no-run-if-empty sha256sum 2>/dev/null || true) | sha256sum | cut -c1-64
}

# step NAME HASH OUTPUT... -- COMMAND...
# Runs COMMAND unless it succeeded before with the same HASH and every OUTPUT is still there. The stamp is
# removed first and written last: a run that was killed is repeated.
step() {
    local name=$1 hash=$2 outputs=() stamp="$STAMPS/$1" log="$STAMPS/$1.log" output began
    shift 2
    while [ "$1" != -- ]; do outputs+=("$1"); shift; done
    shift
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$hash" ]; then
        local whole=yes
        for output in "${outputs[@]}"; do [ -e "$output" ] || whole=no; done
        if [ $whole = yes ]; then return 0; fi
    fi
    rm -f "$stamp"
    say "$name ..."
    began=$SECONDS
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        die "the step $name failed; the end of its log is above" "Mend the cause and run build/setup.sh again; the whole log is $log."
    fi
    for output in "${outputs[@]}"; do
        [ -e "$output" ] || die "the step $name ended well but did not make $output" "This is a fault of the build; its log is $log."
    done
    printf '%s' "$hash" >"$stamp.new"
    mv "$stamp.new" "$stamp"
    say "$name done ($((SECONDS - began)) s)"
}
