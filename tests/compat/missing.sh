# SPDX-License-Identifier: Apache-2.0
# libvarve-mpi cannot be used on one node only: VELOC_Init fails on all processes, and none waits for ever.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in ?*) skip "once is enough" ;; esac
mpi_setup
cat >"$dir/init.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <veloc.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    printf("init %d\n", VELOC_Init(MPI_COMM_WORLD, argv[1]));
    MPI_Finalize();
    return 0;
}
END
"$mpicc" -std=c99 "${flags[@]}" "$dir/init.c" "${link[@]}" -lveloc-client -lvarve -o "$dir/init" || fail "init.c does not compile"
config "$dir/cfg" "$dir/folder" sync
# A node with another version of the library, beside its own copy of the client.
mkdir "$dir/node"
cp "$lib/libveloc-client.so" "$dir/node/"
: >"$dir/empty.c"
"${CC:-cc}" -shared -fPIC "$dir/empty.c" -o "$dir/node/libvarve-mpi.so.0"
cat >"$dir/start" <<END
#!/bin/sh
[ "\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}" != 1 ] || export LD_LIBRARY_PATH=$dir/node
exec "$dir/init" "$dir/cfg"
END
chmod +x "$dir/start"
mpi 4 "$dir/start" >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "the job does not end"; }
[ "$(grep -c '^init -1$' "$dir/out")" -eq 4 ] || { cat "$dir/out" "$dir/err"; fail "VELOC_Init succeeds somewhere"; }
grep -q 'another version' "$dir/err" || { cat "$dir/err"; fail "nothing is said where it is missing"; }
[ "$(grep -c 'another process cannot use' "$dir/err")" -eq 3 ] || { cat "$dir/err"; fail "nothing is said elsewhere"; }
echo ok
