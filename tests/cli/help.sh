# SPDX-License-Identifier: Apache-2.0
# Every command, part of a command and program prints its help for --help, -h and 'varve help': the same, to standard output, at
# most 80 columns wide, with status 0.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
shown() { # PROGRAM WORD ...
    "$@" --help >"$dir/long" 2>"$dir/err" </dev/null || fail "$* --help: status $?"
    "$@" -h >"$dir/short" 2>>"$dir/err" </dev/null || fail "$* -h: status $?"
    [ ! -s "$dir/err" ] || { cat "$dir/err"; fail "$* --help: to standard error"; }
    [ -s "$dir/long" ] && cmp -s "$dir/long" "$dir/short" || fail "$*: --help and -h differ"
    head -1 "$dir/long" | grep -q '^usage: ' || fail "$* --help begins with: $(head -1 "$dir/long")"
    awk 'length > 80 { print; wide = 1 } END { exit wide }' "$dir/long" || fail "$* --help is wider than 80 columns"
}
parts() { sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' "$dir/long"; }
bin=${VARVE_BIN%/*}
count=0
for program in varve-rtm varve-rtm-mpi varve-kirchhoff; do
    [ ! -x "$bin/$program" ] || shown "$bin/$program"
done
shown "$bin/varve-lab"
shown "$VARVE_BIN"
for command in $(parts); do
    shown "$VARVE_BIN" "$command"
    "$VARVE_BIN" help "$command" >"$dir/short" && cmp -s "$dir/long" "$dir/short" || fail "varve help $command"
    case $command in
    bench | sim | trace) more=$(parts) ;;
    ring) more='sim where' ;;
    cached) more='status preload stop drain join forget' ;;
    *) more= ;;
    esac
    for part in $more; do
        shown "$VARVE_BIN" "$command" "$part"
        count=$((count + 1))
    done
    count=$((count + 1))
done
# A word that is not a command leads to the command that does it.
for pair in repair:verify remove:rm; do
    if "$VARVE_BIN" "${pair%:*}" 2>"$dir/err"; then fail "varve ${pair%:*} succeeds"; fi
    grep -qF "did you mean '${pair#*:}'?" "$dir/err" || { cat "$dir/err"; fail "varve ${pair%:*} does not lead to ${pair#*:}"; }
done
[ $count -gt 30 ] || fail "$count commands and parts"
echo "ok, $count"
