# SPDX-License-Identifier: Apache-2.0
# varve probe on the emulated device: every row is there, the file it writes is one that the library takes, files are
# never replaced without --force, and no file is left behind. Speeds are not checked.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
unset VARVE_LOCAL VARVE_DEVICE
tool=(probe)
mkdir "$dir/disk"
empty() { [ -z "$(ls -A "$dir/disk")" ] || fail "it left something in the folder: $(ls -A "$dir/disk")"; }
short="--quick --seconds 0.5 --local $dir/disk"

expect 0 $short --device host --json --write "$dir/varve.conf"
empty
grep -q 'this takes about' "$dir/err" || fail "it does not say how long it takes"
! grep -q $'\r' "$dir/err" || fail "a progress bar where there is no terminal"
python3 - "$dir/out" "$dir/disk" "$dir/varve.conf" <<'PY'
import json, os, sys
d = json.load(open(sys.argv[1]))
assert d["device"] == "host" and d["folder"] == os.path.realpath(sys.argv[2]) and d["written"] == sys.argv[3]
assert d["memory_bytes"] >= d["memory_available_bytes"] > 0 and d["device_total_bytes"] > 0
rows = {(r["hop"], r["what"]): r for r in d["rows"]}
assert len(rows) == len(d["rows"]), "two rows of the same name"
for r in d["rows"]:
    if not r["failed"]:
        assert (r["gbps"] is None) != (r["seconds"] is None), r
        assert (r["gbps"] or r["seconds"]) > 0, r
hops = {h for h, _ in rows}
assert hops == {"d2d", "d2h", "h2d", "link", "pin", "touch", "h2h", "h2f", "f2h", "sync"}, hops
for seg in ("16.0 MiB", "1.00 MiB", "256 KiB"):
    assert ("d2h", "segments of " + seg) in rows and ("h2d", "segments of " + seg) in rows
refused = rows.get(("h2f", "direct"), {"failed": False})["failed"]
for depth in (1, 2, 4, 8, 16, 32):
    assert refused or ("h2f", f"direct, {depth} in flight") in rows and ("f2h", f"direct, {depth} in flight") in rows
    assert ("h2f", f"buffered, {depth} in flight, then synced") in rows
    assert ("f2h", f"buffered, {depth} in flight, not cached") in rows
assert any(r["so"] for r in d["rows"])
s = d["settings"]
assert set(s) == {"device", "device_cache", "host_cache", "local", "local_io"}, s
assert s["device"] == "host" and s["local"] == d["folder"] and s["local_io"] in ("direct", "buffered")
PY

# The library reads the file, and its settings are those of the report.
cat >"$dir/load.c" <<'C'
#include <stdio.h>
#include <varve/varve.h>

int main(int argc, char **argv)
{
    struct varve_opts opts;
    struct varve_error error = {.error_size = sizeof(error)};

    if (argc < 2 || varve_opts_init(&opts, sizeof(opts)) < 0)
        return 2;
    if (varve_opts_load(&opts, argv[1]) < 0) {
        if (varve_last_error(NULL, &error) == 0)
            printf("%s\n", error.text);
        return 1;
    }
    printf("%d %d %d %llu %llu %s\n", opts.device == VARVE_DEVICE_HOST, opts.local_io == VARVE_LOCAL_IO_DIRECT,
           opts.local_io == VARVE_LOCAL_IO_BUFFERED, (unsigned long long)opts.device_cache,
           (unsigned long long)opts.host_cache, opts.local);
    return 0;
}
C
flags=(-std=c99 -Wall -Wextra -Werror "-I$SOURCE_DIR/include")
[ -z "${VARVE_SANITIZE:-}" ] || flags+=("-fsanitize=$VARVE_SANITIZE")
"${CC:-cc}" "${flags[@]}" "$dir/load.c" "-L$BUILD_DIR/lib" -lvarve "-Wl,-rpath,$BUILD_DIR/lib" -o "$dir/load"
"$dir/load" "$dir/varve.conf" >"$dir/loaded" || { cat "$dir/varve.conf" "$dir/loaded"; fail "the library refuses the file"; }
python3 - "$dir/out" "$dir/loaded" <<'PY'
import json, sys
s = json.load(open(sys.argv[1]))["settings"]
host, direct, buffered, device_cache, host_cache, local = open(sys.argv[2]).read().rstrip("\n").split(" ", 5)
size = lambda t: int(t[:-1]) << {"K": 10, "M": 20, "G": 30, "T": 40}[t[-1]] if t[-1] in "KMGT" else int(t)
assert host == "1" and local == s["local"]
assert (s["local_io"] == "direct") == (direct == "1") and (s["local_io"] == "buffered") == (buffered == "1")
assert size(s["device_cache"]) == int(device_cache) > 0 and size(s["host_cache"]) == int(host_cache) > 0
PY

expect 0 $short --device host
cp "$dir/out" "$dir/text"

# A file that is there is left alone, before anything is measured.
echo mine >"$dir/mine.conf"
expect 1 $short --device none --write "$dir/mine.conf"
grep -q -- '--force' "$dir/err" && ! grep -q 'takes about' "$dir/err" && [ "$(cat "$dir/mine.conf")" = mine ] || fail "an existing file"
expect 0 $short --device none --write "$dir/mine.conf" --force
grep -q '^host_cache = ' "$dir/mine.conf" && ! grep -q device_cache "$dir/mine.conf" || fail "--force"
expect 1 $short --device none --write "$dir/nowhere/varve.conf"
! grep -q "this takes about" "$dir/err" || { cat "$dir/err"; echo "probe: measured for a file that it cannot write" >&2; exit 1; }
expect 1 $short --device none --force --write "$dir/disk"
empty

# Without --write it prints the settings and says how to keep them.
(cd "$dir/disk" && expect 0 --quick --seconds 0.2 --device none)
grep -q 'Nothing was written: ' "$dir/out" && grep -q '^  host_cache = ' "$dir/out" && grep -q '^h2f ' "$dir/out" || fail "the text"
! grep -q '^d2d' "$dir/out" || fail "a device where there is none"
empty
expect 0 --quick --seconds 0.1 --device none --local none --write "$dir/nodisk.conf"
! grep -q '^h2f' "$dir/out" && ! grep -q '^local' "$dir/nodisk.conf" || fail "--local none"

# A folder whose name cannot be written into an INI file: an error, and no file.
mkdir "$dir/a ;b"
rc=0; "$VARVE_BIN" probe --quick --seconds 0.1 --device none --local "$dir/a ;b" --write "$dir/odd.conf" >"$dir/out" 2>"$dir/err" || rc=$?
[ $rc -eq 1 ] && grep -q 'cannot hold' "$dir/err" && [ -z "$(ls "$dir" | grep odd)" ] || { cat "$dir/err"; fail "an odd folder: $rc"; }

# An interrupted run leaves nothing.
for signal in INT TERM; do
    python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
        "$VARVE_BIN" probe --quick --seconds 600 --device none --local "$dir/disk" --write "$dir/int.conf" >"$dir/out" 2>"$dir/$signal" &
    pid=$!
    until grep -q 'takes about' "$dir/$signal" 2>/dev/null; do
        kill -0 $pid || fail "it ended by itself"
        sleep 0.05
    done
    sleep 0.2
    kill -$signal $pid
    rc=0; wait $pid || rc=$?
    [ $rc -eq $((128 + $(kill -l $signal))) ] || fail "SIG$signal: status $rc"
    empty
    [ -z "$(ls "$dir" | grep int.conf)" ] || fail "a file after SIG$signal"
done

for bad in "--device gpu" "--seconds 0" "--seconds long" "--nonsense" "extra"; do
    expect 2 $short $bad
    [ -s "$dir/err" ] && [ ! -s "$dir/out" ] || fail "$bad"
done
expect 1 --quick --local "$dir/nowhere"
expect 1 --quick --local "$dir/load.c"
if ! "$VARVE_BIN" doctor | grep -q 'device  *0:'; then
    expect 1 $short --device cuda
    [ -s "$dir/err" ] || fail "no GPU, and no word of it"
fi
# GPUDirect Storage, on the stand-in for its library: both ways are measured, and the file has the faster one.
grep -q 'no GPUDirect Storage' "$dir/text" || ldconfig -p | grep -q libcufile || fail "no libcufile, and no word of it"
if [ -e "$BUILD_DIR/fake/cufile/libcufile.so.0" ]; then
    LD_LIBRARY_PATH="$BUILD_DIR/fake/cufile${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        expect 0 $short --device host --json --write "$dir/gds.conf"
    empty
    python3 - "$dir/out" "$dir/gds.conf" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
rows = {(r["hop"], r["what"]): r for r in d["rows"]}
past = [rows[k] for k in (("h2f", "from the device, past host memory"), ("f2h", "to the device, past host memory")) if k in rows]
through = [rows[k] for k in (("h2f", "from the device, through host memory"), ("f2h", "to the device, through host memory")) if k in rows]
if ("h2f", "direct") in rows:  # direct I/O was refused
    assert not through and all(r["failed"] for r in past)
    faster = False
else:
    assert len(past) == len(through) == 2 and not any(r["failed"] for r in past + through)
    time = lambda rs: sum(1 / r["gbps"] for r in rs)
    faster = d["settings"]["local_io"] == "direct" and time(through) >= 1.05 * time(past)
assert d["settings"].get("gds", "off") == ("on" if faster else "off"), d["settings"]
assert ("gds = on" in open(sys.argv[2]).read().split("# Measured:")[0]) == faster
PY
    "$dir/load" "$dir/gds.conf" >/dev/null || fail "the library refuses the file"
fi

# The way through the CUDA backend, on the stand-in for its driver.
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ]; then
    LD_LIBRARY_PATH="$BUILD_DIR/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        expect 0 --quick --seconds 0.2 --device cuda --local none --write "$dir/cuda.conf"
    grep -q '^device  cuda, stand-in' "$dir/out" && grep -q '^link ' "$dir/out" && grep -q '^device = cuda' "$dir/cuda.conf" ||
        { cat "$dir/out" "$dir/err"; fail "the stand-in"; }
fi
expect 0 --help
grep -q '^usage: varve probe' "$dir/out" || fail "--help"
echo ok
