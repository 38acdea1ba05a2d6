# SPDX-License-Identifier: Apache-2.0
# The tool without a command, and varve doctor.
. "$SOURCE_DIR/tests/cli/common.sh.inc"

"$VARVE_BIN" --version | grep -Eq '^varve [0-9]+\.[0-9]+\.[0-9]+$' || fail "--version"
"$VARVE_BIN" --help | grep -q '^  doctor ' || fail "--help does not list doctor"
rc=0; "$VARVE_BIN" >"$dir/out" 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] && [ ! -s "$dir/out" ] && grep -q usage "$dir/err" || fail "no command: $rc"
rc=0; "$VARVE_BIN" docter 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] && grep -q "did you mean 'doctor'" "$dir/err" || fail "unknown command: $rc"
rc=0; "$VARVE_BIN" xyz 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] && grep -q -- "--help" "$dir/err" || fail "unknown command: $rc"
rc=0; "$VARVE_BIN" doctor --nonsense 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] || fail "unknown option: $rc"
rc=0; "$VARVE_BIN" doctor a b 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] || fail "two folders: $rc"
"$VARVE_BIN" doctor --help | grep -q '^usage: varve doctor' || fail "doctor --help"
"$VARVE_BIN" help doctor | grep -q '^usage: varve doctor' || fail "help doctor"
"$VARVE_BIN" help bench shot | grep -q '^usage: varve bench shot' || fail "help bench shot"
rc=0; "$VARVE_BIN" help docter 2>"$dir/err" || rc=$?
[ $rc -eq 2 ] && grep -q "did you mean 'doctor'" "$dir/err" || fail "help of an unknown command: $rc"

"$VARVE_BIN" doctor "$dir" >"$dir/out"
for name in inih xxHash liburing varve-lab io_uring hwloc MPI UCX libcurl "GPU kernels" libcuda.so.1 libcufile.so.0 O_DIRECT statistics cores memory "locked memory"; do
    grep -q " $name " "$dir/out" || fail "nothing about $name"
done
# It reports the libraries of this build.
says() { # NAME FILE
    local status=missing
    [ ! -e "$BUILD_DIR/lib/$2" ] || status=found
    grep -q "^$status  *$1 .*" "$dir/out" || { cat "$dir/out"; fail "$1, and $2 says $status"; }
    [ $status = missing ] || grep "^found  *$1 " "$dir/out" | grep -q "$2" || { cat "$dir/out"; fail "$1: nothing about $2"; }
}
says MPI libvarve-mpi.so
says Fortran libvarve-fortran.so
[ ! -e "$BUILD_DIR/lib/libvarve-petsc.so" ] || says PETSc libvarve-petsc.so
[ ! -e "$BUILD_DIR/lib/libvarve-fortran-mpi.so" ] || says Fortran libvarve-fortran-mpi.so
if [ -e "$BUILD_DIR/fake/cufile/libcufile.so.0" ]; then
    LD_LIBRARY_PATH=$BUILD_DIR/fake/cufile "$VARVE_BIN" doctor "$dir" >"$dir/out"
    grep 'libcufile.so.0' "$dir/out" | grep -q 'GPUDirect Storage' || fail "libcufile is there and not found"
fi
# The program with the experiments may be left out.
grep -q "^found  *varve-lab .*/varve-lab" "$dir/out" || fail "varve-lab is there and not found"
mkdir "$dir/bin"
cp "$VARVE_BIN" "$dir/bin/varve"
"$dir/bin/varve" doctor "$dir" | grep -A1 '^missing  *varve-lab ' | grep -q "'varve model'" || fail "varve-lab is not there"
rm -r "$dir/bin"
[ "$(ls "$dir" | sort | tr '\n' ' ')" = "err out " ] || fail "it left something in the folder"
"$VARVE_BIN" doctor "$dir/nowhere" | grep -q 'cannot write in' || fail "a folder that is not there"

VARVE_STATS=$dir "$VARVE_BIN" doctor "$dir" | grep -q "found *statistics .* in $dir\$" || fail "where statistics are published"
VARVE_STATS=$dir/nowhere "$VARVE_BIN" doctor "$dir" | grep -q "missing *statistics .*$dir/nowhere: No such file" || fail "statistics nowhere"
[ -z "$(find "$dir" -name 'varve-stats.*')" ] || fail "it left a page"

VARVE_HOST_CAHCE=1G VARVE_POLICY=best "$VARVE_BIN" doctor "$dir" >"$dir/out"
grep -q 'VARVE_HOST_CAHCE is not a setting' "$dir/out" || fail "misspelt variable"
grep -q "'best' is not one of" "$dir/out" || fail "malformed variable"

printf '%s\n' 'host_cache = 2G' 'rank = 3' >"$dir/varve.conf"
VARVE_CONFIG=$dir/varve.conf VARVE_RANK=5 "$VARVE_BIN" doctor "$dir" >"$dir/out"
grep -q "setting *host_cache = 2G, from $dir/varve.conf\$" "$dir/out" || fail "a setting of a file"
grep -q 'setting *rank = 5, from VARVE_RANK$' "$dir/out" || fail "a setting of the environment"
! grep -q 'is not a setting' "$dir/out" || fail "VARVE_CONFIG is not known"
VARVE_CONFIG=$dir/nowhere "$VARVE_BIN" doctor "$dir" >"$dir/out"
[ "$(grep -c "VARVE_CONFIG: $dir/nowhere: No such file" "$dir/out")" = 1 ] || fail "no file of settings"

VARVE_LEVEL=local "$VARVE_BIN" doctor "$dir" >"$dir/out"
grep -q 'level local needs a folder' "$dir/out" || fail "level local without a folder"
VARVE_LEVEL=complete VARVE_RANKS=2 VARVE_REMOTE=/somewhere "$VARVE_BIN" doctor "$dir" >"$dir/out"
grep -q 'level complete on several ranks needs' "$dir/out" || fail "level complete without a run"
"$VARVE_BIN" doctor "$dir" >"$dir/out"
! grep -q ' configuration ' "$dir/out" || fail "nothing is set, and something is wrong with it"

# With a driver, and with one that finds no GPU.
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ]; then
    LD_LIBRARY_PATH="$BUILD_DIR/fake" FAKE_CUDA_DEVICES=2 "$VARVE_BIN" doctor "$dir" >"$dir/out"
    grep -q 'the driver has CUDA 13.0; 2 GPUs' "$dir/out" || fail "the driver"
    [ "$(grep -c ' GPU  .* PCI ' "$dir/out")" -eq 2 ] || fail "the GPUs"
    grep -q ' device = auto ' "$dir/out" || fail "what auto does"
    LD_LIBRARY_PATH="$BUILD_DIR/fake" FAKE_CUDA_DEVICES=0 "$VARVE_BIN" doctor "$dir" >"$dir/out"
    grep -q 'warning *libcuda.so.1 .*sees no GPU' "$dir/out" || fail "a driver without a GPU"
fi

"$VARVE_BIN" doctor --json "$dir" >"$dir/json"
python3 - "$dir/json" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
by_name = {f["name"]: f for f in report["findings"]}
assert report["version"]
for name in ("inih", "xxHash", "liburing", "io_uring", "O_DIRECT", "memory", "cores"):
    assert by_name[name]["detail"], name
for f in report["findings"]:
    assert f["status"] in ("found", "missing", "warning", "info"), f
    if f["status"] == "missing":
        assert f["effect"], f
PY
echo ok
