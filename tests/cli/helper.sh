# SPDX-License-Identifier: Apache-2.0
# varve helper: refusals come before it reports that it is ready.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "helper: $*" >&2; cat "$dir/out" "$dir/err" >&2; exit 1; }
name=cli-helper-$$

# refused TEXT OPTION...
refused() {
    local text=$1 rc=0
    shift
    timeout 120 "$VARVE_BIN" helper --name "$name" --idle 1 "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc -eq 2 ] || fail "$*: exit status $rc"
    [ ! -s "$dir/out" ] || fail "$*: it said something before it refused"
    grep -q -- "$text" "$dir/err" || fail "$*: it does not say why"
}
refused '"zz" is neither' --cores zz
refused '"zz" is neither' --cores zz --json
refused '"zz" is neither' --cores zz --background
refused "nice: '40' is not a whole number from 0 to 19" --nice 40
refused "threads: '0' is not a whole number from 1 to 64" --threads 0

# It serves on a processor that it may use, and ends if no process comes.
cpu=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
timeout 120 "$VARVE_BIN" helper --name "$name" --idle 1 --cores "$cpu" >"$dir/out" 2>"$dir/err" || fail "with processor $cpu"
[ "$(head -1 "$dir/out")" = ready ] || fail "it does not say that it is ready"
grep -q "^for 0 processes: 0 requests, .* on processors: " "$dir/out" || fail "nor what it did"
