// SPDX-License-Identifier: Apache-2.0
// VELOC's interface from C++: VELOC_Mem_protect with and without flags and a release routine.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <veloc.h>

static int released;

static int release()
{
    released++;
    return 0;
}

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

int main(int, char **argv)
{
    std::vector<int> data(1000, 3);
    int more = 4, third = 5;

    check(VELOC_Init_single(1, argv[1]) == VELOC_SUCCESS, "init");
    check(VELOC_Mem_protect(0, data.data(), data.size(), sizeof(int)) == VELOC_SUCCESS, "protect");
    check(VELOC_Mem_protect(1, &more, 1, sizeof(int), DEFAULT) == VELOC_SUCCESS, "flags");
    check(VELOC_Mem_protect(2, &third, 1, sizeof(int), READ_ONLY, release) == VELOC_SUCCESS,
          "release");
    check(VELOC_Prefetch_enqueue("c", 1) == VELOC_SUCCESS, "enqueue");
    check(VELOC_Checkpoint("c", 1) == VELOC_SUCCESS, "checkpoint");
    data.assign(1000, 0);
    more = third = 0;
    check(VELOC_Prefetch_start() == VELOC_SUCCESS, "start");
    check(VELOC_Next_prefetched("c", 1, 0), "prefetched");
    check(VELOC_Restart("c", VELOC_Restart_test("c", 0)) == VELOC_SUCCESS, "restart");
    check(data[999] == 3 && more == 4 && third == 5, "content");
    check(VELOC_Recover_ckpt_size("c", 1, 0) == 1000 * sizeof(int), "size");
    check(VELOC_Mem_unprotect(2) == VELOC_SUCCESS && released == 1, "released");
    check(VELOC_Finalize(1) == VELOC_SUCCESS, "finalize");
    std::puts("ok");
    return 0;
}
