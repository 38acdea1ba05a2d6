# SPDX-License-Identifier: Apache-2.0
# The portable build needs none of the small dependencies at run time. It is built with optimisation and -Werror, so
# that warnings that only an optimiser finds are seen as well; without the kernels, which every build compiles alike, and
# without debug information, which no test uses here.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need ldd
mkdir -p "$BUILD_DIR/lint-portable"
{ cmake --preset portable -B "$BUILD_DIR/lint-portable" -DVARVE_WERROR=ON -DCMAKE_C_COMPILER="${CC:-cc}" \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O2 -DVARVE_WITH_NVCC=OFF &&
    cmake --build "$BUILD_DIR/lint-portable" -j 2 --target varve_cli varve_lab_program varve_shared; } >"$dir/log" 2>&1 ||
    { tail -40 "$dir/log"; fail "the portable build fails"; }
for file in bin/varve bin/varve-lab lib/libvarve.so; do
    ldd "$BUILD_DIR/lint-portable/$file" >"$dir/ldd"
    if grep -E 'inih|xxhash|uring|hwloc|isal' "$dir/ldd"; then
        fail "$file needs these at run time"
    fi
done
"$BUILD_DIR/lint-portable/bin/varve" --version
