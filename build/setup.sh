#!/usr/bin/env bash
# Makes a fresh Debian 12 with Node 20 ready to build, test and run everything: Debian's packages, npm's
# packages, native code, driver, host and page, node bundle, and the image of the lab's nodes.
# Safe to repeat and to kill; what is done for the same inputs is skipped.
#   build/setup.sh [--no-lab] [--only STEP]...     STEP: packages npm native agent addon driver app bundle lab
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$ROOT"
OUT=$ROOT/build/out
STAMPS=$OUT/setup
# shellcheck source=build/lib/steps.sh
. build/lib/steps.sh

ALL_STEPS='packages npm native agent addon driver app bundle lab'
steps=$ALL_STEPS
only=''
while [ $# -gt 0 ]; do
    case $1 in
        --no-lab) steps=${steps% lab} ;;
        --only)
            case " $ALL_STEPS " in
                *" ${2:-} "*) only="$only $2" ;;
                *) die "there is no step \"${2:-}\"" "The steps are: $ALL_STEPS." ;;
            esac
            shift
            ;;
        -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) die "the argument $1 is not known" "Run build/setup.sh --help." ;;
    esac
    shift
done
[ -z "$only" ] || steps=$only
wanted() { case " $steps " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# npm puts node_modules/.bin in front of PATH, and a package there brings a node of its own: what is built
# here is built by the machine's node.
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -v '/node_modules/' | paste -sd:)
export PATH

check_machine() {
    local id='' VERSION_ID='' version
    if [ -r /etc/os-release ]; then id=$(. /etc/os-release && echo "${ID:-}"); VERSION_ID=$(. /etc/os-release && echo "${VERSION_ID:-}"); fi
    if [ "$id" != debian ] || [ "$VERSION_ID" != 12 ]; then
        die "this machine runs ${id:-an unknown system} ${VERSION_ID:-}, and the set-up knows Debian 12 only" "Run it on Debian 12 (bookworm), for instance in a virtual machine."
    fi
    [ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m), and the driver and the lab are for x86_64" "Run it on an x86_64 machine."
    command -v node >/dev/null || die "node is not installed" "Install Node.js 20 (20.11 or later) with npm."
    version=$(node -p 'process.versions.node')
    node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 11) ? 0 : 1)' ||
        die "node $version is too old" "Install Node.js 20 (20.11 or later)."
    command -v npm >/dev/null || die "npm is not installed beside node $version" "Install the npm that belongs to Node.js 20."
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086 # one word a package
    as_root env DEBIAN_FRONTEND=noninteractive sh -c '
        apt-get -o DPkg::Lock::Timeout=600 update &&
        apt-get -o DPkg::Lock::Timeout=600 install --yes --no-install-recommends "$@"' sh $missing
}

missing_packages() {
    local wanted_packages
    wanted_packages=$(sed 's/#.*//' build/lib/packages.txt | tr -s ' \n' '\n' | sed '/^$/d' | sort -u)
    # shellcheck disable=SC2086
    comm -23 <(printf '%s\n' "$wanted_packages") \
        <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $wanted_packages 2>/dev/null | sed -n 's/^ii  *//p' | sort -u)
}

packages_step() {
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "these Debian packages are missing and there is no sudo: $(echo $missing)" "Run build/setup.sh --only packages as root once."
        sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } ||
            die "these Debian packages are missing and sudo wants a password that nobody can type: $(echo $missing)" "Run build/setup.sh --only packages in a terminal, or as root."
    fi
    step packages "$(printf '%s' "$missing" | sha256sum)" -- install_packages
    missing=$(missing_packages)
    [ -z "$missing" ] || die "apt-get ended well but these packages are still missing: $(echo $missing)" "Look at $STAMPS/packages.log."
}

npm_step() {
    local difference
    difference=$(node build/lib/npm-in-step.mjs) && return 0
    say "node_modules is not in step with package-lock.json ($difference)"
    step npm "$(date +%s%N)" node_modules/.package-lock.json -- npm ci
}

# cmake_build SOURCE: configures and builds SOURCE into build/out/SOURCE; both are incremental.
cmake_build() {
    cmake -S "$1" -B "$OUT/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release "${@:2}" &&
        cmake --build "$OUT/$1" -j "$(nproc)"
}

native_step() {
    step native "$(hash_inputs native ':!native/addon')" "$OUT/native/stepccl-perf" -- cmake_build native -DUSE_CUDA=OFF
}

# As few large units: whoever sets up builds all of it once, and its headers cost more than its code.
agent_step() {
    step agent "$(hash_inputs agent native/include native/src package.json)" "$OUT/agent/stepccld" -- \
        cmake_build agent -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=5
}

# The headers of the node that runs this, so that node-gyp has nothing to fetch.
addon_build() {
    local prefix
    prefix=$(node -p 'require("path").dirname(require("path").dirname(require("fs").realpathSync(process.execPath)))')
    set --
    if [ -f "$prefix/include/node/node_api.h" ]; then set -- "--nodedir=$prefix"; fi
    node node_modules/node-gyp/bin/node-gyp.js rebuild -C native/addon "$@"
}

addon_step() {
    step addon "$(hash_inputs native/addon native/include native/src) $(node -p process.version)" native/addon/build/Release -- addon_build
}

# The newest headers that are installed: the kernel that the lab boots.
headers_release() {
    local release
    release=$(find /usr/src -maxdepth 1 -name 'linux-headers-*-amd64' -printf '%f\n' | sed 's/^linux-headers-//' | sort -V | tail -n 1)
    [ -n "$release" ] || die "no kernel headers are installed" "Run build/setup.sh --only packages."
    echo "$release"
}

driver_step() {
    local release
    release=$(headers_release)
    step driver "$(hash_inputs driver) $release" "$OUT/driver/$release/dma_engine.ko" -- \
        make -C driver "KREL=$release" "KDIR=/usr/src/linux-headers-$release" "OUT=$OUT/driver" module tools
}

app_step() {
    step app "$(hash_inputs electron renderer native/addon build/build-host.mjs package.json package-lock.json tsconfig.json)" "$OUT/host" "$OUT/page/index.html" -- npm run build
}

bundle_step() {
    local parts
    parts=$(cat "$STAMPS/native" "$STAMPS/agent" "$STAMPS/driver" 2>/dev/null || true)
    step bundle "$(printf '%s' "$parts $(hash_inputs build/bundle.mjs agent driver package.json)" | sha256sum | cut -c1-64)" "$OUT/bundle/manifest.json" -- npm run bundle
}

# The image is in the user's cache, under a hash of what it is made of; this only sees that it is there.
lab_build() {
    node node_modules/tsx/dist/cli.mjs e2e/lab/cli.ts image | tail -n 1 >"$STAMPS/lab-image"
}

lab_step() {
    local lists image=''
    lists=$(stat -c %Y /var/lib/apt/lists /var/lib/dpkg/status | paste -sd-)
    if [ -f "$STAMPS/lab-image" ]; then image=$(cat "$STAMPS/lab-image")/complete; fi
    step lab "$(hash_inputs e2e/lab) $(headers_release) $lists" "${image:-$STAMPS/lab-image}" -- lab_build
}

check_machine
mkdir -p "$STAMPS" || die "$OUT cannot be written by $(id -un)" "Give the clone to the user who builds: chown -R $(id -un) $ROOT."
[ -w "$STAMPS" ] || die "$STAMPS cannot be written by $(id -un)" "Give the clone to the user who builds: chown -R $(id -un) $ROOT."
exec 9>"$STAMPS/lock"
flock --nonblock 9 || { say 'another set-up runs in this clone; waiting for it'; flock 9; }

for name in $ALL_STEPS; do
    if wanted "$name"; then "${name}_step"; fi
done
say "ready ($SECONDS s)"
