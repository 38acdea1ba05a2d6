# SPDX-License-Identifier: Apache-2.0
# The Fortran module and its example, compiled against what was built, and from its sources as other compilers would.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
need gfortran
[ -e "$lib/libvarve-fortran.so" ] || skip "built without Fortran"
case ${VARVE_SANITIZE:-} in *thread*) skip "the Fortran library is not built for ThreadSanitizer" ;; esac
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
fortran=(gfortran -O1 -g -Wall -Wextra -Wno-compare-reals -Werror -std=f2018)
[ -z "${VARVE_SANITIZE:-}" ] || fortran+=("-fsanitize=$VARVE_SANITIZE")
"${fortran[@]}" "-J$dir" "-I$BUILD_DIR/fortran" "$SOURCE_DIR/tests/compat/fortran.f90" "${link[@]}" -lvarve-fortran -lvarve -o "$dir/test" ||
    fail "fortran.f90 does not compile"
mkdir "$dir/a" "$dir/b" "$dir/whole" "$dir/cut" "$dir/own"
"$dir/test" "$dir/a" >"$dir/out" 2>&1 || { cat "$dir/out"; fail "fortran.f90"; }
rc=0; "$dir/test" "$dir/b" die >"$dir/out" 2>&1 || rc=$?
[ $rc -eq 1 ] && grep -q 'varve: restore: ' "$dir/out" || { cat "$dir/out"; fail "an error without stat: status $rc"; }
head -1 "$dir/out" | grep -q 'varve: restore: ' || { cat "$dir/out"; fail "what was wrong comes after the backtrace"; }

"${fortran[@]}" "-J$dir" "-I$BUILD_DIR/fortran" "$SOURCE_DIR/examples/restart.f90" "${link[@]}" -lvarve-fortran -lvarve -o "$dir/restart" ||
    fail "the example does not compile"
want=$("$dir/restart" "$dir/whole" | tail -1)
rc=0; "$dir/restart" "$dir/cut" 700 >"$dir/out" || rc=$?
[ $rc -eq 3 ] || { cat "$dir/out"; fail "the example was to stop: $rc"; }
"$dir/restart" "$dir/cut" >"$dir/out" || { cat "$dir/out"; fail "the example after it was stopped"; }
[ "$(tail -1 "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "the example: another result, $want"; }

if [ -z "${VARVE_SANITIZE:-}" ]; then
    (cd "$dir/own" && gcc -O1 "-I$include" -c "$SOURCE_DIR/src/fortran/array.c" &&
        gfortran "$SOURCE_DIR/src/fortran/varve.f90" "$SOURCE_DIR/examples/restart.f90" array.o "${link[@]}" -lvarve -o restart) ||
        fail "the module does not compile from its sources"
    [ "$("$dir/own/restart" "$dir/own" | tail -1)" = "$want" ] || fail "the module from its sources"
fi
echo ok
