# SPDX-License-Identifier: Apache-2.0
# varve-rtm as its users see it: its output, its messages about bad input, and the files that are left after a signal.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
for v in $(env | sed -n 's/^\(VARVE_\(DEVICE\|HOST\|LOCAL\|LEVEL\|POLICY\|TRACE\)[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
export OMP_NUM_THREADS=1
rtm=$BUILD_DIR/bin/varve-rtm
cd "$dir"

# A survey of a hundredth of a second.
small=(--model layers --grid 64x40 --spacing 2.5 --frequency 90 --border 6 --steps 120 --every 3 --shots 3 --quiet)
small3=(--model salt --grid 26x30x20 --spacing 2.5 --frequency 90 --border 6 --steps 100 --every 4 --shots 2 --quiet)
# In three dimensions the loops take long under a sanitizer: a quarter of the ground, and of the time.
[ -z "${VARVE_SANITIZE:-}" ] || [ -n "${VARVE_TEST_LONG:-}" ] ||
    small3=(--model salt --grid 20x22x18 --spacing 2.5 --frequency 90 --border 6 --steps 60 --every 4 --shots 1 --quiet)

# ---- output
"$rtm" "${small[@]}" --in-memory --out ref >out
grep -q '^blocked' out || fail "no table"
"$rtm" "${small[@]}" --memory 64K --page 4K --json >out.json
cmp ref/image.raw rtm-out/image.raw || fail "the image with Varve is another"
[ "$(find rtm-out | sort | tr '\n' ' ')" = "rtm-out rtm-out/image.png rtm-out/image.raw rtm-out/migration.png rtm-out/model.png rtm-out/summary.json " ] ||
    { find rtm-out; fail "other files than expected"; }
cmp out.json rtm-out/summary.json || fail "summary.json is not what --json prints"
if command -v python3 >/dev/null; then
    python3 - <<'PY' || fail "JSON or PNG"
import json, struct, zlib
d = json.load(open("out.json"))
assert d["store"] == "varve" and d["snapshots"] == 40 and d["history_bytes"] == 40 * 64 * 40 * 4, d
assert d["bytes_read"] == d["bytes_written"] == 3 * d["history_bytes"] and d["varve"]["moved_f2h_bytes"] > 0, d
assert abs(d["wall_s"] - d["compute_s"] - d["blocked_s"]) < 1e-6 and d["history_over_cache"] > 6, d
for name in "image", "model", "migration":
    b = open(f"rtm-out/{name}.png", "rb").read()
    assert b[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, size, kinds = 8, b"", None, []
    while at < len(b):
        n, kind = struct.unpack(">I4s", b[at:at + 8])
        assert zlib.crc32(b[at + 4:at + 8 + n]) == struct.unpack(">I", b[at + 8 + n:at + 12 + n])[0], kind
        kinds.append(kind)
        if kind == b"IHDR":
            size = struct.unpack(">II", b[at + 8:at + 16])
        if kind == b"IDAT":
            data += b[at + 8:at + 8 + n]
        at += 12 + n
    assert kinds == [b"IHDR", b"PLTE", b"IDAT", b"IEND"] and len(zlib.decompress(data)) == (size[0] + 1) * size[1]
PY
fi
# Settings of the library count, and flags go over them.
cache() { # bytes, arguments
    local want=$1
    shift
    "$rtm" "${small[@]}" --json --out o "$@" >out || fail "$*"
    grep -q "\"cache_bytes\": $want," out || { cat out; fail "$*: the cache has not $want bytes"; }
}
VARVE_HOST_CACHE=128K cache 131072
VARVE_HOST_CACHE=1M cache 196608 --memory 192K
cache 163840 --memory 1M --host-cache 160K
"$rtm" "${small[@]}" --memory 1M --quiet --out o 2>err >out && [ ! -s err ] || fail "not quiet"
"$rtm" --help >out && grep -q -- '--memory' out || fail "--help"

# Data and models from files give the same image.
"$rtm" "${small[@]}" --in-memory --write-data data.raw --out o >out
"$rtm" "${small[@]}" --in-memory --data data.raw --out o >out
cmp ref/image.raw o/image.raw || fail "the image from data in a file is another"
cp data.raw data.was
head -c 100000 /dev/zero >>data.raw
"$rtm" "${small[@]}" --in-memory --write-data data.raw --out o >out
cmp data.raw data.was || fail "data that were longer before are others"

# ---- the kernels for GPUs, run on the CPU
if [ -x "$BUILD_DIR/fake/varve-rtm-fake" ]; then
    fake=$BUILD_DIR/fake/varve-rtm-fake
    for dims in 2 3; do
        args=("${small[@]}"); [ $dims = 2 ] || args=("${small3[@]}")
        "$rtm" "${args[@]}" --in-memory --out cpu >out
        ways=("--in-memory" "--store file" "--host-cache 400K --page 4K --access copy" "--host-cache 600K --page 4K")
        [ -z "${VARVE_SANITIZE:-}" ] || ways=("${ways[@]:dims}") # takes ten times as long
        for how in "${ways[@]}"; do
            # shellcheck disable=SC2086 # several words
            "$fake" "${args[@]}" --device cuda $how --out gpu >out || fail "kernels, ${dims}D, $how"
            cmp cpu/image.raw gpu/image.raw || fail "the kernels' image differs, ${dims}D, $how"
        done
    done
fi

# ---- MPI: the number of ranks changes nothing
if [ -x "$BUILD_DIR/bin/varve-rtm-mpi" ] && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$dir
    mpi=(timeout -k 10 180 mpirun -n 2)
    mpirun --version >out 2>&1 || true
    ! grep -q 'Open MPI' out ||
        mpi+=(--oversubscribe --mca btl self,vader --mca oob_tcp_if_include lo)
    if "${mpi[@]}" true >out 2>&1; then
        "${mpi[@]}" "$BUILD_DIR/bin/varve-rtm-mpi" "${small[@]}" --memory 64K --page 4K --out mpi >out 2>err </dev/null ||
            { cat out err; fail "MPI"; }
        cmp ref/image.raw mpi/image.raw || fail "the image of two ranks is another"
        [ ! -e mpi/history-0 ] && [ ! -e mpi/history-1 ] || fail "MPI leaves its folders"
    else
        echo "MPI does not start here: $(tail -1 out)"
    fi
fi

# ---- bad input: the error and the remedy
refused() { # pattern, arguments
    local pattern=$1 rc=0
    shift
    "$rtm" "${small[@]}" --out bad "$@" >out 2>err || rc=$?
    [ $rc -eq 1 ] || [ $rc -eq 2 ] || { cat err; fail "$*: status $rc"; }
    grep -Eq -- "$pattern" err || { cat err; fail "$*: it does not say $pattern"; }
    [ "$(wc -l <err)" -eq 1 ] || { cat err; fail "$*: more than a line"; }
}
head -c 1000 /dev/zero >short.raw
head -c 10240 /dev/zero >zero.raw
echo file >file
refused 'has 1000 bytes, .* has 10240: set --grid' --model short.raw
refused 'no velocity' --model zero.raw
refused 'layers, salt, graded, or a file' --model nosuch
refused 'unstable.* 0\.0004.* at most \(--dt\)' --dt 0.001
refused 'cannot be made: Not a directory; name another with --out' --out file/out
refused 'cannot be made: Not a directory; name another with --local' --local file/history
refused 'a snapshot takes 10 KiB, and the host cache has 4 KiB.*--memory 40K' --memory 4K
refused 'the device cache has 4 KiB' --varve-device emulated --device-cache 4K
refused 'at least 16 cells' --grid 8x8
refused 'as 401x201' --grid 12
refused 'as 401x201' --grid 64x40x
refused 'whole number' --shots 0
refused 'one of varve file memory' --store disk
refused 'nosuch is no option' --nosuch
refused 'takes no value' --quiet=yes
refused 'a size is needed' --memory=0
refused 'not below 0' --dt nan
refused 'needs a value' --store
refused 'host_cache' --host-cache many
refused 'data short.raw has 1000 bytes' --data short.raw
refused 'leave out one of them' --data data.raw --write-data data.raw
cmp data.raw data.was || fail "data that were to be read are gone"
rc=0
"$rtm" --grid 64x40 --time 1e30 --quiet --out bad >out 2>err || rc=$?
[ $rc -eq 1 ] && grep -q 'steps of .* are too many: set --time or --steps' err || { cat err; fail "--time 1e30: $rc"; }
[ "$(id -u)" -eq 0 ] || { mkdir ro && chmod 555 ro && refused 'Permission denied' --out ro; chmod 755 ro; }
rc=0
"$rtm" "${small[@]}" --device cuda --out bad >out 2>err || rc=$?
[ $rc -ne 0 ] && grep -q 'leave out --device cuda' err || [ $rc -eq 0 ] || { cat err; fail "--device cuda"; }
# Too coarse a grid is a warning.
"$rtm" "${small[@]}" --frequency 200 --in-memory --out bad >out 2>err || fail "a coarse grid"
grep -q 'warning: .*disperse; use cells of' err || { cat err; fail "no warning of dispersion"; }

# ---- a trace that finds no room costs the trace, and not the image
traced=(--model salt --grid 64x40 --steps 400 --every 1 --local none --memory 64M --quiet)
"$rtm" "${traced[@]}" --out whole >out 2>err || { cat err; fail "without a trace"; }
(ulimit -f 300 && exec "$rtm" "${traced[@]}" --out traced --trace traced.vtrace >out 2>err) || { cat err; fail "a trace without room"; }
grep -q 'warning: .*traced.vtrace is not whole: File too large' err || { cat err; fail "nothing is said of the trace"; }
cmp whole/image.raw traced/image.raw || fail "another image with a trace"

# ---- ended half-way
long=(--model layers --grid 200x100 --steps 300 --every 2 --shots 300 --memory 2M)
start() { # in the background, until it has a history
    rm -rf run
    : >err # what the run before said would be taken for this one's
    "$rtm" "${long[@]}" --out run >out 2>err &
    pid=$!
    for _ in $(seq 2400); do
        grep -q 'forward.*disk [1-9]' err 2>/dev/null && return
        kill -0 $pid 2>/dev/null || { cat err; fail "it ended by itself"; }
        sleep 0.05
    done
    fail "no history after two minutes"
}
for signal in INT TERM KILL; do
    start
    kill -$signal $pid
    rc=0
    wait $pid || rc=$?
    case $signal in
    INT) want=130 ;; TERM) want=143 ;; KILL) want=137 ;;
    esac
    [ $rc -eq $want ] || { cat err; fail "SIG$signal: status $rc"; }
    # Only the folder, which a kill may leave empty, and then the page of figures.
    left=$(find run -mindepth 1 ! -path run/history ! -name "varve-stats.$([ $signal != KILL ] || echo "$pid").*")
    [ -z "$left" ] || fail "SIG$signal leaves $left"
    [ -z "$(find /dev/shm -maxdepth 1 -name "varve-stats.$pid.*")" ] || fail "SIG$signal leaves a page in /dev/shm"
    [ $signal = KILL ] || [ ! -e run/history ] || fail "SIG$signal leaves the folder of the history"
done
"$rtm" "${small[@]}" --memory 64K --page 4K --out run >out || fail "it does not run again"
cmp ref/image.raw run/image.raw || fail "the image after a kill is another"
[ ! -e run/history ] || fail "the folder of the history is left"
[ -z "$(find run -name 'varve-stats.*')" ] || fail "the page of the run that was killed is still there"
echo "ok"
