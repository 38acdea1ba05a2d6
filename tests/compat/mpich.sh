# SPDX-License-Identifier: Apache-2.0
# The other MPI: built with MPICH, in a folder of its own, the same programs do the same. In long runs only; an MPI takes its
# libraries for itself, so that everything is built once more.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
[ -n "${VARVE_TEST_LONG:-}" ] || skip "in long runs only"
[ -z "${VARVE_SANITIZE:-}" ] || skip "once is enough"
need mpicc.mpich
need cmake
build=$BUILD_DIR/compat-mpich
targets=(varve_veloc varve_mpi)
scripts=(mpi partner missing heat examples_mpi)
fortran=OFF
if command -v gfortran >/dev/null && command -v mpifort.mpich >/dev/null; then
    fortran=ON targets+=(varve_fortran_mpi) scripts+=(fortran_mpi)
fi
{ cmake -G Ninja -S "$SOURCE_DIR" -B "$build" -DCMAKE_BUILD_TYPE=Debug -DVARVE_WERROR=ON -DCMAKE_C_COMPILER="${CC:-cc}" \
    -DVARVE_WITH_MPI=ON -DMPI_C_COMPILER=mpicc.mpich -DVARVE_WITH_NVCC=OFF -DVARVE_WITH_FORTRAN=$fortran -DVARVE_BUILD_TESTS=OFF &&
    cmake --build "$build" -j 2 --target "${targets[@]}"; } >"$dir/log" 2>&1 || { tail -40 "$dir/log"; fail "the build with MPICH fails"; }
ldd "$build/lib/libvarve-mpi.so" >"$dir/ldd"
grep -q libmpich "$dir/ldd" || { cat "$dir/ldd"; fail "this is not MPICH"; }
for script in "${scripts[@]}"; do
    BUILD_DIR=$build VARVE_TEST_LONG='' bash "$SOURCE_DIR/tests/compat/$script.sh" || fail "$script with MPICH"
done
echo ok
