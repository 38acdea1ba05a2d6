# SPDX-License-Identifier: Apache-2.0
# The programs of examples/ and the code in README.md and docs/ compile without a warning against this build, and print what
# they promise. So do the commands in docs/ckpt.md and docs/tools.md. Links to files have a target.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
unset VARVE_LOCAL VARVE_LEVEL
export VARVE_HOST_CACHE=128M

flags=(-std=c99 -D_POSIX_C_SOURCE=200809L -O1 -g -Wall -Wextra -Werror "-I$SOURCE_DIR/include")
[ -z "${VARVE_SANITIZE:-}" ] || flags+=("-fsanitize=$VARVE_SANITIZE")
compile() {
    local libs=(-lvarve)
    grep -q '<veloc\.h>' "$1" && libs=(-lveloc-client)
    # Kernels for the emulated device ask for nothing beyond the language.
    ! grep -q '^#define VARVE_EMULATE' "$1" || "${CC:-cc}" -std=c17 -pedantic -Wall -Wextra -Werror "-I$SOURCE_DIR/include" -fsyntax-only "$1" ||
        fail "$1 does not compile as strict C17"
    "${CC:-cc}" "${flags[@]}" "$1" "-L$BUILD_DIR/lib" "${libs[@]}" "-Wl,-rpath,$BUILD_DIR/lib" -lm -o "$2" ||
        fail "$1 does not compile"
}

# ---- examples/
for source in "$SOURCE_DIR"/examples/*.c; do
    ! grep -q '<mpi\.h>' "$source" || continue # tests/compat/examples_mpi.sh
    compile "$source" "$dir/$(basename "$source" .c)"
done
"$dir/adjoint" >"$dir/out" || { cat "$dir/out"; fail "adjoint"; }
grep -q ': the same$' "$dir/out" || fail "adjoint: the gradient"
"$dir/blocks" >"$dir/out" && grep -q ' 0 sums are wrong$' "$dir/out" || { cat "$dir/out"; fail "blocks"; }
"$dir/tables" >"$dir/out" && grep -q ' 0 sums are wrong$' "$dir/out" || { cat "$dir/out"; fail "tables"; }
(cd "$dir" && ./lines) >"$dir/out" && grep -qx '5000 lines' "$dir/out" || { cat "$dir/out"; fail "lines"; }
VARVE_HOST_CACHE=16M VARVE_LOCAL=$dir "$dir/adjoint" >"$dir/out" || { cat "$dir/out"; fail "adjoint, spilling"; }

# For every mix of storing and computing again, the gradient is the same, and as many steps are computed as the tool says.
"$dir/revolve" "$dir" 10 30 >"$dir/out" || { cat "$dir/out"; fail "revolve"; }
[ "$(grep -c ' the same$' "$dir/out")" = 4 ] || { cat "$dir/out"; fail "revolve: the gradients"; }
for snapshots in 10 40; do
    "$VARVE_BIN" model --revolve --steps 300 --record 512K --host-cache $((snapshots * 512))K >"$dir/model"
    steps=$(awk '$1 == "binomial" { print $4 }' "$dir/model")
    grep -qE "^binomial, .* $steps +[0-9.]+ +[0-9.]+ +[0-9]+ +the same$" "$dir/out" ||
        { cat "$dir/out" "$dir/model"; fail "revolve computes another number of steps with $snapshots snapshots"; }
done
"$dir/revolve" "$dir" 2 1 >"$dir/out" || { cat "$dir/out"; fail "revolve with three snapshots"; }
rc=0; "$dir/revolve" "$dir" 200 100 >"$dir/out" 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] && grep -q '^revolve: MEMORY and DISK' "$dir/err" || { cat "$dir/err"; fail "revolve with room for all"; }

if command -v "${CXX:-g++}" >/dev/null; then
    "${CXX:-g++}" -std=c++11 "${flags[@]:2}" "$SOURCE_DIR/examples/outofcore.cpp" "-L$BUILD_DIR/lib" -lvarve "-Wl,-rpath,$BUILD_DIR/lib" \
        -o "$dir/outofcore" || fail "outofcore.cpp does not compile"
    "$dir/outofcore" "$dir" >"$dir/out" && grep -q '^forward .* backward ' "$dir/out" || { cat "$dir/out"; fail "outofcore"; }
    rc=0; "$dir/outofcore" "$dir/no/such" 2>"$dir/err" || rc=$?
    [ $rc -eq 1 ] && grep -q '^outofcore: ' "$dir/err" || { cat "$dir/err"; fail "outofcore without a folder"; }
fi

mkdir "$dir/whole" "$dir/killed"
"$dir/restart" "$dir/whole" >"$dir/out" || fail "restart"
grep -q '^no checkpoint' "$dir/out" || fail "restart found something in an empty folder"
want=$(tail -1 "$dir/out")
rc=0; { "$dir/restart" "$dir/killed" 700 >"$dir/out"; } 2>/dev/null || rc=$?
[ $rc -eq 137 ] || fail "restart was to be killed: $rc"
"$dir/restart" "$dir/killed" >"$dir/out" || fail "restart after a kill"
[ "$(tail -1 "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "restart: the result differs after a kill"; }
"$dir/restart" "$dir/killed" >"$dir/out" && grep -q '^going on from step 1000' "$dir/out" || fail "restart of what had finished"
rc=0; VARVE_LEVEL=local "$dir/adjoint" 2>"$dir/err" || rc=$?
[ $rc -eq 1 ] && grep -q 'needs a folder' "$dir/err" || { cat "$dir/err"; fail "level local without a folder"; }

# ---- README.md
readme=$SOURCE_DIR/README.md
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$readme" >"$dir/first.c"
[ -s "$dir/first.c" ] || fail "README.md has no program"
[ "$(wc -l <"$dir/first.c")" -le 25 ] || fail "the program of README.md has more than 25 lines"
[ "$(wc -l <"$readme")" -le 130 ] || fail "README.md has more than 130 lines"
compile "$dir/first.c" "$dir/first"
(cd "$dir" && ./first >"$dir/out") || fail "the program of README.md"

# ---- docs/
for page in "$SOURCE_DIR"/docs/*.md; do
    name=$(basename "$page" .md)
    awk -v out="$dir/$name" '/^```c$/ { n++; on = 1; next } /^```/ { on = 0 } on { print > (out n ".c") }' "$page"
    for source in "$dir/$name"[0-9]*.c; do
        [ -e "$source" ] || continue
        compile "$source" "${source%.c}"
        (cd "$dir" && "${source%.c}") >"$dir/out" || fail "the program of docs/$name.md"
    done
done
[ -e "$dir/streams1" ] || fail "docs/streams.md has no program"
tail -n +2 "$SOURCE_DIR/examples/blocks.c" | cmp - "$dir/ooc1.c" || fail "docs/ooc.md shows another program than examples/blocks.c"
tail -n +2 "$SOURCE_DIR/examples/lines.c" | cmp - "$dir/gpufile1.c" || fail "docs/gpufile.md shows another program than examples/lines.c"

# Lines '$ ...' of console blocks, run one after the other where the program left its files.
pages=("$SOURCE_DIR/docs/ckpt.md" "$SOURCE_DIR/docs/tools.md" "$SOURCE_DIR/docs/adjoint.md")
mkdir "$dir/bin" "$dir/console"
ln -s "$VARVE_BIN" "$dir/bin/varve"
cp "$dir/restart" "$dir/revolve" "$dir/console"
cp "$dir/first" "$dir/console"
PATH=$dir/bin:$PATH
cd "$dir/console"
awk '/^```console$/ { on = 1; next } /^```/ { on = 0 } on && sub(/^\$ /, "")' "${pages[@]}" >"$dir/commands"
[ "$(grep -c '^varve ' "$dir/commands")" -ge 5 ] || fail "docs/ shows too few commands"
# Commands that measure nothing print the same on every machine; '...' stands for any text.
awk -v dir="$dir" '/^```console$/ { on = 1; next } /^```/ { on = 0; shown = "" }
    on && sub(/^\$ /, "") { shown = ""; n++; if (/^varve (ring|sim|model) /) shown = dir "/shown" n; next }
    on && shown && $0 != "..." { print > shown }' "${pages[@]}"
n=0
while read -r line; do
    n=$((n + 1))
    # Under a sanitizer long commands that leave nothing for later ones: one of three, by the seed. Each has a test.
    case ${VARVE_SANITIZE:+$line} in
    'varve bench blocks '* | 'varve bench vector '* | 'varve ring sim '* | 'varve sim training '*)
        [ -n "${VARVE_TEST_LONG:-}" ] || [ $(((n + ${VARVE_TEST_SEED:-0}) % 3)) -eq 0 ] || continue ;;
    esac
    bash -c "$line" >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "docs/: $line"; }
    [ ! -e "$dir/shown$n" ] || ! grep -vxFf "$dir/out" "$dir/shown$n" || { cat "$dir/out"; fail "docs/ shows another result of: $line"; }
done <"$dir/commands"
[ "$(find "$dir" -name 'shown[0-9]*' | wc -l)" -ge 4 ] || fail "docs/ shows too few results"

# Blocks marked 'gpu' take a GPU, and minutes: without one they must fail with the message that asks for one.
awk '/^```console gpu$/ { on = 1; next } /^```/ { on = 0 } on && sub(/^\$ /, "")' "${pages[@]}" >"$dir/commands"
[ -s "$dir/commands" ] || fail "docs/ shows no command for a GPU"
while read -r line; do
    ! CUDA_VISIBLE_DEVICES='' bash -c "$line" >"$dir/out" 2>&1 </dev/null && grep -q 'no GPU was found' "$dir/out" ||
        { cat "$dir/out"; fail "docs/: $line"; }
    echo "not run, because it takes a GPU and minutes: $line"
done <"$dir/commands"

# Links to files, here and in docs/.
cd "$SOURCE_DIR"
for page in README.md CONTRIBUTING.md docs/*.md docs/*/*.md src/*/README.md; do
    [ -e "$page" ] || continue
    { grep -oE '\]\([^)# ]+' "$page" | grep -v '://' || true; } | sed 's/^](//' | while read -r target; do
        [ -e "$(dirname "$page")/$target" ] || echo "$page: $target"
    done
done >"$dir/dead"
[ ! -s "$dir/dead" ] || { cat "$dir/dead"; fail "links that lead nowhere"; }
echo "ok"
