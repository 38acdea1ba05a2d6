# SPDX-License-Identifier: Apache-2.0
# The first steps of docs/dataset.md, command by command as printed there: two nodes, a reader in Python, hits in the status.
set -euo pipefail
fail() { echo "dataset_start: $*" >&2; exit 1; }
if [ -n "${VARVE_SANITIZE:-}" ] && [ -z "${VARVE_TEST_LONG:-}" ]; then
    echo "tried without a sanitizer"
    exit 77
fi
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
dir=$(mktemp -d)
finish() {
    local rc=$?
    for socket in "$dir"/*/a.sock "$dir"/*/b.sock; do
        [ ! -e "$socket" ] || timeout 300 "$VARVE_BIN" cached stop --socket "$socket" >/dev/null 2>&1 || true
    done
    rm -rf "$dir"
    exit $rc
}
trap finish EXIT
# The first block. Nodes meet while a reader would type the next line; here they are waited for.
awk '/^```console$/ { on = 1; next } on && /^```/ { exit } on && sub(/^\$ /, "")
    /--node b / { print "until varve cached status --socket a.sock | grep -q \"2 of 2 nodes up\"; do sleep 0.05; done" }' \
    "$SOURCE_DIR/docs/dataset.md" >"$dir/commands"
[ "$(wc -l <"$dir/commands")" -ge 8 ] || fail "docs/dataset.md begins with too few commands"
unset VARVE_CACHED_SOCKET XDG_RUNTIME_DIR

# A place that looks like a clone after `make`.
mkdir -p "$dir/clone/build"
ln -s "$(dirname "$VARVE_BIN")" "$dir/clone/build/bin"
ln -s "$BUILD_DIR/lib" "$dir/clone/build/lib"
ln -s "$SOURCE_DIR/examples" "$dir/clone/examples"
export TMPDIR=$dir PYTHONDONTWRITEBYTECODE=1
cd "$dir/clone"
timeout 300 bash -e "$dir/commands" >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "a command failed"; }
[ "$(grep -c '^epoch [0-2]: 300 files, 28 MiB' "$dir/out")" = 6 ] || { cat "$dir/out"; fail "not six epochs"; }
[ "$(grep -o 'checksum [0-9a-f]*' "$dir/out" | sort -u | wc -l)" = 1 ] || { cat "$dir/out"; fail "different bytes"; }
grep -q '^a: 2 of 2 nodes up' "$dir/out" || { cat "$dir/out"; fail "the nodes have not met"; }
grep -qE '^opens +[1-9][0-9]* from disk, 0 from memory, [1-9][0-9]* from other nodes' "$dir/out" ||
    { cat "$dir/out"; fail "no hits"; }
grep -q '0 left to the shared file system' "$dir/out" || { cat "$dir/out"; fail "files were read past the cache"; }
