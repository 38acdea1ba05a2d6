# SPDX-License-Identifier: Apache-2.0
# varve trace report: pages are well formed, whole, and load nothing; and they work in a browser, if there is one.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
page() { python3 "$SOURCE_DIR/tests/cli/report_page.py" "$@" || fail "the page $1"; }
says() { grep -q -- "$1" "$dir/err" || { cat "$dir/err"; fail "does not say '$1'"; }; }
unset VARVE_LOCAL

# A real run: a history of three times the caches, on an emulated device.
rates=d2d=2G,d2h=400M,h2d=400M,h2f=200M,f2h=200M
"$VARVE_BIN" bench shot --device host --ckpts 24 --size 512K --page 64K --device-cache 1M --host-cache 3M \
    --interval-ms 2 --hints all --order rev --rate $rates --local "$dir" --json --trace "$dir/run.vtrace" >"$dir/shot.json" ||
    fail "the run that is traced"
expect 0 trace report "$dir/run.vtrace"
[ "$(cat "$dir/out")" = "$dir/run.html" ] || fail "it does not say where the page is"
page "$dir/run.html" chart-checkpoint chart-restore chart-distance chart-tier-0 chart-tier-1 chart-tier-2 \
    chart-cumulative bound-parts cause-parts longest hops origin config machine run
expect 0 trace report --json -o "$dir/other.html" "$dir/run.vtrace"
cmp "$dir/run.html" "$dir/other.html" || fail "two pages of one trace differ"
python3 - "$dir/out" "$dir/shot.json" <<'PY' || fail "the figures are not those of the run"
import json, sys
d, shot = (json.load(open(path)) for path in sys.argv[1:3])
size = 24 * 512 * 1024
for part in d["checkpoint"], d["restore"]:
    assert part["calls"] == 24 and part["bytes"] == size and part["failed"] == 0, part
    assert abs(sum(part["blocked"].values()) - part["blocked_s"]) < 1e-6 * part["blocked_s"] + 1e-9, part
assert d["blocked_s"] <= d["wall_s"] and d["threads"] == 1 and d["lost"] == 0 and d["errors"] == 0, d
# The library's time is within the caller's.
assert 0 < d["blocked_s"] <= shot["blocked_checkpoint_s"] + shot["blocked_restore_s"], (d, shot)
ways = {way["way"]: way for way in d["ways"]}
assert ways["application to device"]["bytes"] == size, ways
assert d["bound_s"] > 0 and abs(d["prefetch_distance"] - shot["prefetch_distance_mean"]) < 1e-6, (d, shot)
assert [t["tier"] for t in d["tiers"]][:2] == ["device", "host"] and d["tiers"][0]["peak_bytes"] <= 1 << 20, d["tiers"]
assert [t["buffer_bytes"] > 0 for t in d["tiers"]][:2] == [False, True], d["tiers"] # of host_cache, and not for versions
assert 0 <= d["restores_found_ready"] <= 24
PY
expect 0 trace report -o - "$dir/run.vtrace"
cmp "$dir/run.html" "$dir/out" || fail "standard output"

# Cut off, and empty of calls: a page that says so.
head -c $(($(stat -c %s "$dir/run.vtrace") / 2)) "$dir/run.vtrace" >"$dir/torn.vtrace"
expect 0 trace report "$dir/torn.vtrace"
page "$dir/torn.html" lost

# Wrong command lines.
expect 2 trace report
says "no trace is given"
expect 2 trace report "$dir/run.vtrace" "$dir/torn.vtrace"
expect 2 trace report --nonsense "$dir/run.vtrace"
expect 2 trace report --json -o - "$dir/run.vtrace"
expect 2 trace report -o "$dir/run.vtrace" "$dir/run.vtrace"
says "the trace itself"
# An output that is not a regular file is written to, not replaced.
mkfifo "$dir/pipe"
cat "$dir/pipe" >"$dir/through" &
expect 0 trace report -o "$dir/pipe" "$dir/run.vtrace"
wait $!
[ -p "$dir/pipe" ] || fail "a pipe was replaced by a file"
cmp "$dir/through" "$dir/run.html" || fail "another page comes through a pipe"
expect 1 trace report "$dir/none.vtrace"
[ ! -e "$dir/none.html" ] || fail "a page of nothing"
expect 1 trace report -o "$dir/never.html" "$dir/run.html"
[ ! -e "$dir/never.html" ] || fail "a page of a page"
expect 1 trace report -o "$dir/none/page.html" "$dir/run.vtrace"
expect 0 trace report --help
if [ -e /dev/full ]; then
    rc=0
    "$VARVE_BIN" trace report -o - "$dir/run.vtrace" >/dev/full 2>"$dir/err" || rc=$?
    [ $rc -eq 1 ] || fail "a full device is not noticed"
fi
[ -z "$(find "$dir" -name '*.new')" ] || fail "half a page is left"

# An invented run, with names that try to bring markup into the page.
make="$BUILD_DIR/tests/unit/cli/trace_page"
[ -x "$make" ] || { echo "skipped: no $make"; exit 77; }
"$make" make "$dir/page.html" 300
page "$dir/page.html" sec-pictures sec-errors

# The browser does the same for every build; the checks above cover the differences under a sanitizer.
if [ -n "${VARVE_SANITIZE:-}" ]; then
    echo "ok; in a browser: not under a sanitizer"
    exit 0
fi
rc=0
for name in page run; do
    mkdir "$dir/$name"
    brief=
    [ $name = page ] || brief=brief
    timeout 300 python3 "$SOURCE_DIR/tests/cli/report_browser.py" "$dir/$name.html" "$dir/$name" $brief || rc=$?
    [ $rc -ne 77 ] || { echo "skipped: all but the browser was tested"; exit 77; }
    [ $rc -eq 0 ] || fail "$name.html in a browser ($rc)"
done
echo ok
