# SPDX-License-Identifier: Apache-2.0
# Varve can be built without optional libraries, and its disk tier, its devices and its topology work then too; and
# libraries that only the compiler's variables or pkg-config name are found.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
build=$BUILD_DIR/lint-without
# This build compiles other parts than the other builds, so it is neither optimised nor has debug information, which takes
# less than half the time.
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 -DVARVE_DEBUG=ON -DVARVE_WERROR=ON -DCMAKE_C_COMPILER="${CC:-cc}" \
    -DVARVE_WITH_LIBURING=OFF -DVARVE_WITH_HWLOC=OFF -DVARVE_WITH_ISAL=OFF -DVARVE_WITH_NVCC=OFF -DVARVE_WITH_MPI=OFF -DVARVE_WITH_FORTRAN=OFF -DVARVE_WITH_UCX=OFF -DVARVE_WITH_PETSC=OFF -DVARVE_WITH_LIBCURL=OFF \
    >"$dir/log" 2>&1 || { cat "$dir/log"; fail "configure"; }
tests=$(cd tests/unit && printf '%s\n' base/topo.c store/{aio,erasure,files,gds,spill}.c device/{conformance,cuda_open}.c ckpt/{life,gds}.c net/talk.c | sed 's,/,_,;s,\.c$,,;s,^,t_unit_,')
# Helpers have no main and so no target of their own.
ninja -C "$build" -t targets all | sed 's,:.*,,' | sort >"$dir/targets"
tests=$(printf '%s\n' $tests | sort | comm -12 - "$dir/targets")
# shellcheck disable=SC2086 # a list
cmake --build "$build" -j 2 --target varve_cli varve_shared varve_veloc $tests >"$dir/log" 2>&1 ||
    { tail -40 "$dir/log"; fail "the build without what is optional fails"; }
(cd "$build" && ctest -j 2 --output-on-failure -R '^unit/(base/topo|store/(aio|erasure|files|gds|spill)|device/(conformance|cuda_open)|net/talk|ckpt/(life|gds))( |$)') || fail "its tests fail"
ldd "$build/bin/varve" >"$dir/ldd"
grep -E 'uring|hwloc|isal' "$dir/ldd" && fail "it links them all the same"
"$build/bin/varve" doctor >"$dir/doctor"
nm -D "$build/lib/libveloc-client.so" >"$dir/veloc"
grep -qE ' VELOC_Init_single(@|$)' "$dir/veloc" || fail "no VELOC without MPI"
grep -qE ' VELOC_Init(@|$)' "$dir/veloc" && fail "VELOC_Init without MPI"
grep -q 'missing  *UCX' "$dir/doctor" || { cat "$dir/doctor"; fail "doctor says nothing about UCX"; }
grep -q 'missing  liburing' "$dir/doctor" || { cat "$dir/doctor"; fail "doctor does not say so"; }

# A library in another place. Its header is found as the compiler would, or through pkg-config.
header=$(echo '#include <ini.h>' | "${CC:-cc}" -E -x c - | sed -n 's,^# [0-9]* "\(.*/ini\.h\)".*,\1,p' | head -1)
mkdir -p "$dir/else/include" "$dir/else/pkgconfig"
cp "$header" "$dir/else/include"
cat >"$dir/else/pkgconfig/inih.pc" <<END
Name: inih
Description: the same, elsewhere
Version: 1
Cflags: -I$dir/else/include
END
found() {
    env "$@" cmake -G Ninja -S . -B "$dir/found" --fresh -DCMAKE_C_COMPILER="${CC:-cc}" -DVARVE_BUILD_TESTS=OFF \
        >"$dir/log" 2>&1 || { cat "$dir/log"; fail "configure with $1"; }
    grep -q "INIH_INCLUDE_DIR:PATH=$dir/else/include" "$dir/found/CMakeCache.txt" || fail "$1 is not honoured"
}
found C_INCLUDE_PATH="$dir/else/include"
found CPATH="$dir/else/include"
command -v pkg-config >/dev/null && found PKG_CONFIG_PATH="$dir/else/pkgconfig"
exit 0
