/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend over a driver whose Nth call fails, for every N, with a harmless result and with one that ends the
 * context: every operation returns 0 or an error, bytes are right if all returned 0, and nothing crashes, hangs or
 * leaks.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "device/cuda/cuda.h"
#include "device/cuda/driver.h"
#include "t.h"
#include "t_cuda.h"

enum { PIECES = 20, PIECE = 8192, BYTES = PIECES * PIECE, SLICE = 64 * 1024 };

static struct t_fake fake;
static struct vvi_cuda_driver app;
static unsigned (*reset_device)(CUdevice device);
static const char *path;
static char *in, *out;

static int copy_pieces(struct vv_device *d, struct vv_stream *s, char *dst, const char *src)
{
    struct vv_copy_seg segs[PIECES];

    for (size_t i = 0; i < PIECES; i++)
        segs[i] = (struct vv_copy_seg){dst + (i ^ 1) * PIECE, src + i * PIECE, PIECE};
    return vv_device_copy_async(d, s, segs, PIECES);
}

static int register_all(struct vv_device *d, char *p)
{
    int rc = 0;

    for (size_t at = 0; at < BYTES && !rc; at += SLICE)
        rc = vv_device_host_register(d, p + at, VV_MIN((size_t)SLICE, BYTES - at));
    return rc;
}

static int unregister_all(struct vv_device *d, char *p)
{
    int rc = 0;

    for (size_t at = 0; at < BYTES && !rc; at += SLICE)
        rc = vv_device_host_unregister(d, p + at);
    return rc;
}

/* Copies down in pieces, within the device, and back, with all operations. */
static int use(struct vv_device *d)
{
    struct vv_stream *s = NULL;
    struct vv_event *ev = NULL;
    void *a = NULL, *b = NULL;
    size_t free_bytes, total;
    int rc = vv_device_stream_new(d, &s);

    if (!rc)
        rc = vv_device_event_new(d, &ev);
    if (!rc)
        rc = vv_device_mem_info(d, &free_bytes, &total);
    if (!rc)
        rc = vv_device_mem_alloc(d, BYTES, &a);
    if (!rc)
        rc = vv_device_mem_alloc(d, BYTES, &b);
    if (!rc)
        rc = register_all(d, in);
    if (!rc)
        rc = vv_device_after_app(d, s);
    if (!rc)
        rc = copy_pieces(d, s, a, in);
    if (!rc)
        rc = copy_pieces(d, s, b, a);
    if (!rc) /* not registered: returns when it is done */
        rc = vv_device_copy_async(d, s, &(struct vv_copy_seg){out, b, BYTES}, 1);
    if (!rc)
        rc = vv_device_event_record(d, ev, s);
    if (!rc)
        rc = vv_device_event_wait(d, ev, -1);
    if (!rc)
        rc = unregister_all(d, in);
    if (!rc)
        rc = vv_device_mem_free(d, a);
    if (!rc) { /* closing frees the rest */
        vv_device_event_free(d, ev);
        vv_device_stream_free(d, s);
    }
    return rc;
}

/* 0, or the error of the first operation that failed. */
static int run(void)
{
    struct vv_device_cuda_opts opts = {.index = 0, .library = path};
    struct vv_device *d = NULL;
    char err[256] = "";
    int rc = vv_device_open_cuda(&opts, err, sizeof(err), &d);

    T_CHECK(rc == 0 ? d != NULL : !d && err[0]);
    memset(out, 0, BYTES);
    if (!rc) {
        rc = use(d);
        vv_device_close(d);
    }
    T_CHECK(rc <= 0 && rc != -EBUSY);
    if (!rc)
        T_CHECK(memcmp(in, out, BYTES) == 0);
    return rc;
}

/* Undoes what a failed call could not undo. */
static void clean_up(void)
{
    CUcontext ctx = NULL;

    while (app.cuCtxGetCurrent(&ctx) == 0 && ctx)
        T_EQ(app.cuCtxPopCurrent(&ctx), 0);
    T_EQ(reset_device(0), 0);
    T_EQ(fake.live("contexts") + fake.live("allocations") + fake.live("registrations"), 0);
    T_EQ(fake.live("streams") + fake.live("events") + fake.live("pending"), 0);
}

/* The number of calls of this function alone depends on the speed of the device. */
static unsigned long long tries_of(const char *name, unsigned long long calls)
{
    return strcmp(name, "cuEventQuery") == 0 ? VV_MIN(calls, 2) : calls;
}

static void fail_each(unsigned code)
{
    static const char *const names[] = {
#define X(need, name, symbol, since, params) #name,
        VVI_CUDA_FUNCTIONS(X)
#undef X
    };
    unsigned long long calls[VV_ARRAY_SIZE(names)], tries = 0, failed = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++)
        calls[i] = fake.calls(names[i]);
    T_OK(run());
    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++)
        calls[i] = tries_of(names[i], fake.calls(names[i]) - calls[i]);
    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++) {
        for (unsigned long long n = 1; n <= calls[i]; n++) {
            T_EQ(fake.fail(names[i], n, 1, (int)code), 0);
            failed += run() != 0;
            tries++;
            fake.heal();
            clean_up();
        }
    }
    T_OK(run());
    t_note("%llu calls failed, %llu runs with them", tries, failed);
    T_CHECK(failed > tries / 5); /* many failures are survived: names, kernels, closing */
}

static void out_of_memory(void)
{
    fail_each(VVI_CU_OUT_OF_MEMORY);
}

static void not_supported(void)
{
    fail_each(VVI_CU_NOT_SUPPORTED);
}

static void the_end(void)
{
    fail_each(VVI_CU_ECC_UNCORRECTABLE);
}

static void unheard_of(void)
{
    fail_each(12345);
}

int main(void)
{
    unsigned int code;
    void *handle;
    char err[256];

    path = t_fake_path(false);
    T_CHECK(t_fake_load(path, &handle, &fake));
    T_OK(vvi_cuda_driver_load(path, err, sizeof(err), &code, &app));
    *(void **)&reset_device = dlsym(handle, "cuDevicePrimaryCtxReset_v2");
    T_CHECK(reset_device);
    in = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    out = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_CHECK(in != MAP_FAILED && out != MAP_FAILED);
    for (size_t i = 0; i < BYTES; i++)
        in[i] = (char)(i * 31 + (i >> 11));
    T_RUN(out_of_memory);
    T_RUN(not_supported);
    T_RUN(the_end);
    T_RUN(unheard_of);
    vvi_cuda_driver_unload(&app);
    return t_done();
}
