/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the lines of a file inside a kernel. The kernel compiles as C and runs on the emulated device; for
 * a GPU, make it a __global__ function with the same calls in it, and launch that. */
#define VARVE_EMULATE 1
#include <stdio.h>
#include <stdlib.h>
#include <varve/gpufile.h>
#include <varve/gpufile_device.h>

enum { BLOCKS = 4, THREADS = 8, PIECE = 8192, LINES = 5000 };

/* Arguments of the kernel. */
struct arguments {
    struct varve_gfs fs;
    uint32_t file;
    uint32_t error; /* the last one, as a positive errno; 0: none */
    uint64_t lines;
    char buffers[BLOCKS][PIECE]; /* on a GPU: device memory */
};

/* The kernel: each thread of each block runs it. All threads of a block make the calls on its file together. */
static void count(void *kernel_arguments)
{
    struct arguments *a = kernel_arguments;
    char *buffer = a->buffers[varve_d_block()];
    uint64_t lines = 0, at;
    struct varve_gfile f;
    int64_t bytes = varve_gopen(&a->fs, a->file, VARVE_GBLOCK, &f);

    if (bytes == 0) {
        for (at = varve_d_block() * PIECE; at < varve_gsize(&f); at += varve_d_blocks() * PIECE) {
            bytes = varve_gread(&f, at, buffer, PIECE);
            if (bytes < 0)
                break;
            for (int64_t i = varve_d_thread(); i < bytes; i += varve_d_threads())
                lines += buffer[i] == '\n';
            varve_d_sync_block(); /* all threads are done with the buffer before it is filled again */
        }
        varve_d_add64_dev(&a->lines, lines);
        varve_gclose(&f);
    }
    if (bytes < 0)
        varve_d_store32_dev(&a->error, (uint32_t)-bytes);
}

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, varve_strerror(rc));
    exit(1);
}

int main(void)
{
    struct arguments *a = calloc(1, sizeof(*a));
    FILE *out = fopen("lines.txt", "w");
    struct varve_gpufs_opts options;
    struct varve_gpufs *fs;
    struct varve_opts opts;
    struct varve_ctx *ctx;
    int right;

    if (!a || !out)
        return 1;
    for (int i = 0; i < LINES; i++)
        fprintf(out, "this is line %d\n", i);
    fclose(out);

    /* A context on the emulated device, without caches for histories, and a file system with one file per block. */
    must(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.device = VARVE_DEVICE_HOST; /* or VARVE_DEVICE_CUDA */
    opts.device_cache = opts.host_cache = 0;
    must(varve_open(&opts, &ctx), "varve_open");
    must(varve_gpufs_opts_init(&options, sizeof(options)), "options");
    options.cache_bytes = 1 << 20;
    options.streams = BLOCKS;
    must(varve_gpufs_open(ctx, &options, &fs), "varve_gpufs_open");
    must(varve_gpufs_register(fs, "lines.txt", VARVE_GFILE_READ, &a->file), "lines.txt");
    must(varve_gpufs_handle(fs, &a->fs), "handle");

    /* On a GPU: count<<<BLOCKS, THREADS>>>(...). Here all blocks run at once, and the random seed is 1. */
    must(varve_emu_launch(BLOCKS, THREADS, BLOCKS, 1, count, a), "launch");
    must(-(int)a->error, "lines.txt");
    printf("%d lines\n", (int)a->lines);

    must(varve_gpufs_close(fs), "varve_gpufs_close");
    must(varve_close(ctx), "varve_close");
    right = a->lines == LINES;
    free(a);
    return right ? 0 : 1;
}
