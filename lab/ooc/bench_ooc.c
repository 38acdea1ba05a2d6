/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench blocks: data that do not fit the device, with the measurements of paper 004. On the emulated device
 * this program runs them. Kernels for a GPU are in another program (lab/ooc/ooc_gpu.cu), which is built and
 * installed if nvcc was found, and takes the same options.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "cli/common/beside.h"
#include "cli/common/command.h"
#include "lab/lab.h"
#include "lab/ooc/ooc_command.h"

#define COMMAND "varve bench blocks"

/* True if the program finds a GPU. */
static bool has_gpu(const char *program)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        execl(program, "ooc_gpu", "--present", (char *)NULL);
        _exit(127);
    }
    if (child < 0)
        return false;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int lab_bench_ooc(int argc, char **argv)
{
    static const char *const places[] = {"ooc_gpu"};
    struct ooc_options options;
    char program[4096];
    bool there = beside_find(places, 1, X_OK, program, sizeof(program)), found;
    int status;

    status = ooc_parse(argc, argv, true, &options);
    if (status >= 0)
        return status;
    if (options.device == OOC_CUDA && !there) {
        fprintf(stderr,
                COMMAND ": there is no program with kernels for a GPU, ooc_gpu, beside this one: "
                        "builds with nvcc have it; or choose --device host, which is emulated\n");
        return CLI_FAILED;
    }
    found = options.device != OOC_EMULATED && there && has_gpu(program);
    if (options.device == OOC_CUDA && !found) {
        fprintf(stderr, COMMAND ": no GPU can be used here ('varve doctor' says why); --device "
                                "host runs on the emulated device\n");
        return 77;
    }
    if (options.device == OOC_AUTO && !found)
        fprintf(stderr, COMMAND ": on the emulated device, whose times say nothing of a GPU: %s\n",
                there ? "no GPU can be used here" : "there is no program with kernels for a GPU");
    if (found) {
        execv(program, argv);
        fprintf(stderr, COMMAND ": %s: %s\n", program, strerror(errno));
        return CLI_FAILED;
    }
    return ooc_command(&options, &ooc_emulated);
}
