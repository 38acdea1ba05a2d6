/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcufile by dlopen, and the threads that call it.
 *
 * Declarations are our own: the few entry points used have kept their form since the library's
 * first version. The driver counts its users if cuFileDriverClose_v2 exists. Without it, closing
 * would take the driver from an application that uses it too, so it is left open.
 *
 * A few threads for each store carry out requests, as cuFileRead and cuFileWrite are synchronous.
 * Every thread has a stream, an event and room for checksums on the device. The library relies on
 * the calling thread's CUDA context: every call into it is made between vv_device_enter and
 * vv_device_leave.
 *
 * A kernel computes checksums in device memory: before a write, after a read. The result is copied
 * to unregistered memory, which makes the copy synchronous, so that no work of ours can outlive its
 * request; the event that follows shows if the kernel failed.
 *
 * Possible failures: the library refuses a file or a transfer. The request fails with the nearest
 * errno, and the caller treats it as a failed read or write. The same if the device is lost. Nothing
 * here touches device memory from the host.
 */
#define _GNU_SOURCE
#include "store/aio/gds.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "store/aio/gds_private.h"
#include "store/store_private.h"

/* At least as many as a mover has requests in flight. */
#define POOL_THREADS 8u
#define WAIT_STEP_NS ((int64_t)VV_NS_PER_S)

/* ---- the library's interface ---- */

struct cufile_error {
    int code; /* 0, or one of the library's codes, from CODE_BASE on */
    int cuda; /* the CUDA driver's code, if code is CODE_CUDA_DRIVER */
};

struct cufile_descr {
    int type; /* DESCR_FD */
    union {
        int fd;
        void *other;
    } handle;
    const void *fs_ops;
};

enum {
    DESCR_FD = 1,
    CODE_BASE = 5000,
    CODE_PLATFORM_NOT_SUPPORTED = 5007,
    CODE_IO_NOT_SUPPORTED = 5008,
    CODE_DEVICE_NOT_SUPPORTED = 5009,
    CODE_CUDA_DRIVER = 5011,
    CODE_DIO_NOT_SET = 5020,
    CODE_INVALID_VALUE = 5022,
    CODE_PERMISSION_DENIED = 5025,
    CODE_DRIVER_ALREADY_OPEN = 5026,
    CODE_IO_DISABLED = 5034,
    CODE_GPU_MEMORY_PINNING_FAILED = 5036,
};

struct cufile {
    void *library;
    struct cufile_error (*driver_open)(void);
    struct cufile_error (*driver_close)(void); /* NULL: the driver does not count its users */
    struct cufile_error (*handle_register)(void **ret_handle, struct cufile_descr *descr);
    void (*handle_deregister)(void *handle);
    struct cufile_error (*buf_register)(const void *base, size_t bytes, int flags);
    struct cufile_error (*buf_deregister)(const void *base);
    ssize_t (*read)(void *handle, void *base, size_t bytes, off_t file_offset, off_t base_offset);
    ssize_t (*write)(void *handle, const void *base, size_t bytes, off_t file_offset,
                     off_t base_offset);
};

struct vv_gds {
    struct cufile lib;        /* immutable once open */
    struct vv_device *device; /* immutable */
    bool driver_open;         /* we opened it and must close it */
    /* Synchronization: set before the first request and cleared after the last. */
    char *base;
    size_t bytes;
};

struct vvi_gds_file {
    struct vv_gds *gds;
    void *handle;
    int fd;
};

static int errno_of(int code)
{
    switch (code) {
    case 0:
        return 0;
    case CODE_PLATFORM_NOT_SUPPORTED:
    case CODE_IO_NOT_SUPPORTED:
    case CODE_DEVICE_NOT_SUPPORTED:
    case CODE_DIO_NOT_SET:
    case CODE_IO_DISABLED:
        return -ENOTSUP;
    case CODE_INVALID_VALUE:
        return -EINVAL;
    case CODE_PERMISSION_DENIED:
        return -EACCES;
    case CODE_GPU_MEMORY_PINNING_FAILED:
        return -ENOMEM;
    default:
        return -EIO;
    }
}

static int symbols_load(struct cufile *lib, char *err, size_t err_bytes)
{
    const struct {
        const char *name;
        void *place; /* of a function pointer */
    } symbol[] = {
        {"cuFileDriverOpen", &lib->driver_open},
        {"cuFileHandleRegister", &lib->handle_register},
        {"cuFileHandleDeregister", &lib->handle_deregister},
        {"cuFileBufRegister", &lib->buf_register},
        {"cuFileBufDeregister", &lib->buf_deregister},
        {"cuFileRead", &lib->read},
        {"cuFileWrite", &lib->write},
    };
    for (size_t i = 0; i < VV_ARRAY_SIZE(symbol); i++) {
        void *fn = dlsym(lib->library, symbol[i].name);
        if (!fn)
            return vvi_error(-ENOTSUP, err, err_bytes, "the library has no function %s",
                             symbol[i].name);
        memcpy(symbol[i].place, &fn, sizeof(fn));
    }
    void *close_v2 = dlsym(lib->library, "cuFileDriverClose_v2");
    memcpy(&lib->driver_close, &close_v2, sizeof(close_v2));
    return 0;
}

static void library_close(struct cufile *lib)
{
    if (lib->library)
        dlclose(lib->library);
    lib->library = NULL;
}

static int library_open(struct cufile *lib, const char *name, char *err, size_t err_bytes)
{
    /* Never unloaded: the library may run threads of its own, and its driver may be left open. */
    lib->library = dlopen(name ? name : VV_GDS_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib->library)
        return vvi_error(-ENOTSUP, err, err_bytes, "%s", dlerror());
    int rc = symbols_load(lib, err, err_bytes);
    if (rc < 0)
        library_close(lib);
    return rc;
}

int vv_gds_find(const char *library, char *err, size_t err_bytes)
{
    struct cufile lib = {0};
    int rc = library_open(&lib, library, err, err_bytes);
    if (rc == 0)
        library_close(&lib);
    return rc;
}

/* ---- open, close, memory, files ---- */

static int driver_open(struct vv_gds *gds, char *err, size_t err_bytes)
{
    int rc = vv_device_enter(gds->device);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "the device cannot be used: %s", strerror(-rc));
    struct cufile_error e = gds->lib.driver_open();
    vv_device_leave(gds->device);
    gds->driver_open = e.code == 0;
    if (e.code != 0 && e.code != CODE_DRIVER_ALREADY_OPEN)
        return vvi_error(-ENOTSUP, err, err_bytes,
                         "libcufile does not work here: error %d, CUDA %d", e.code, e.cuda);
    return 0;
}

int vv_gds_open(struct vv_device *device, const char *library, char *err, size_t err_bytes,
                struct vv_gds **ret_gds)
{
    struct vv_device_info info;
    vv_device_describe(device, &info);
    if (!info.kernels)
        return vvi_error(-ENOTSUP, err, err_bytes,
                         "checksums in device memory need kernels, and the device runs none of "
                         "ours");
    struct vv_gds *gds = calloc(1, sizeof(*gds));
    if (!gds)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    gds->device = device;
    int rc = library_open(&gds->lib, library, err, err_bytes);
    if (rc == 0)
        rc = driver_open(gds, err, err_bytes);
    if (rc < 0) {
        vv_gds_close(gds);
        return rc;
    }
    *ret_gds = gds;
    return 0;
}

void vv_gds_close(struct vv_gds *gds)
{
    if (!gds)
        return;
    vv_assert(!gds->base);
    /* A lost device cannot be entered; the driver is then closed with the process. */
    if (gds->driver_open && gds->lib.driver_close && vv_device_enter(gds->device) == 0) {
        (void)gds->lib.driver_close();
        vv_device_leave(gds->device);
    }
    library_close(&gds->lib);
    free(gds);
}

int vv_gds_memory_add(struct vv_gds *gds, void *base, size_t bytes, char *err, size_t err_bytes)
{
    if (gds->base)
        return vvi_error(-EBUSY, err, err_bytes, "a buffer is registered already");
    int rc = vv_device_enter(gds->device);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "the device cannot be used: %s", strerror(-rc));
    struct cufile_error e = gds->lib.buf_register(base, bytes, 0);
    vv_device_leave(gds->device);
    /* After any error GPUDirect Storage is unusable on this machine. */
    if (e.code != 0)
        return vvi_error(errno_of(e.code) == -EIO ? -ENOTSUP : errno_of(e.code), err, err_bytes,
                         "libcufile refused %zu bytes of device memory: error %d, CUDA %d", bytes,
                         e.code, e.cuda);
    gds->base = base;
    gds->bytes = bytes;
    return 0;
}

void vv_gds_memory_remove(struct vv_gds *gds)
{
    if (!gds->base)
        return;
    if (vv_device_enter(gds->device) == 0) {
        (void)gds->lib.buf_deregister(gds->base);
        vv_device_leave(gds->device);
    }
    gds->base = NULL;
    gds->bytes = 0;
}

int vvi_gds_file_add(struct vv_gds *gds, int fd, struct vvi_gds_file **ret_file)
{
    struct vvi_gds_file *file = malloc(sizeof(*file));
    if (!file)
        return -ENOMEM;
    *file = (struct vvi_gds_file){.gds = gds, .fd = fd};
    struct cufile_descr descr = {.type = DESCR_FD, .handle.fd = fd};
    int rc = vv_device_enter(gds->device);
    if (rc == 0) {
        rc = errno_of(gds->lib.handle_register(&file->handle, &descr).code);
        vv_device_leave(gds->device);
    }
    if (rc < 0) {
        free(file);
        return rc;
    }
    *ret_file = file;
    return 0;
}

int vvi_gds_file_first(struct vv_gds *gds, int fd, bool direct, const char *folder, char *err,
                       size_t err_bytes, struct vvi_gds_file **ret_file)
{
    int rc = direct ? vvi_gds_file_add(gds, fd, ret_file) : -ENOTSUP;
    /* Nothing was read or written yet: the library does not work on this machine. */
    if (rc == -EIO)
        rc = -ENOTSUP;
    return rc == 0 ? 0
                   : vvi_error(rc, err, err_bytes, "%s: no GPUDirect Storage here: %s", folder,
                               direct ? strerror(-rc) : "it needs direct I/O");
}

void vvi_gds_file_remove(struct vvi_gds_file *file)
{
    if (!file)
        return;
    struct vv_device *device = file->gds->device;
    /* Deregister the file even if the device is lost and cannot be entered: the caller closes the
     * descriptor next, and its number may be reused. */
    bool entered = vv_device_enter(device) == 0;
    file->gds->lib.handle_deregister(file->handle);
    if (entered)
        vv_device_leave(device);
    free(file);
}

struct vvi_gds_req *vvi_gds_req_new(size_t nparts, size_t nspans, size_t nuploads)
{
    struct vvi_gds_req *req = malloc(sizeof(*req) + nparts * sizeof(*req->parts) +
                                     nspans * (sizeof(*req->spans) + sizeof(*req->sums)) +
                                     nuploads * sizeof(*req->uploads));
    if (!req)
        return NULL;
    *req = (struct vvi_gds_req){.nparts = 0};
    req->parts = (struct vvi_gds_part *)(req + 1);
    req->spans = (struct vv_kernel_span *)(req->parts + nparts);
    req->sums = (uint64_t *)(req->spans + nspans);
    req->uploads = (struct vv_copy_seg *)(req->sums + nspans);
    return req;
}

/* ---- the threads ---- */

struct gds_worker {
    struct vvi_gds_pool *pool;
    pthread_t thread;
    struct vv_stream *stream;
    struct vv_event *event;
    void *sums; /* device memory, VV_KERNEL_SPANS of them */
};

struct vvi_gds_pool {
    struct vv_gds *gds; /* immutable, down to notify_arg */
    const struct vv_os *os;
    void (*notify)(void *arg);
    void *notify_arg;
    struct vv_mutex lock;
    struct vv_cond todo_cond;
    /* Synchronization: lock, down to `stopping`. */
    struct vvi_gds_req *todo, **todo_tail;
    struct vvi_gds_req *done, **done_tail;
    bool stopping;
    unsigned nworkers;
    struct gds_worker worker[POOL_THREADS];
};

static int wait_for_stream(struct gds_worker *w)
{
    struct vv_device *d = w->pool->gds->device;
    int rc = vv_device_event_record(d, w->event, w->stream);
    if (rc == 0)
        do
            rc = vv_device_event_wait(d, w->event, WAIT_STEP_NS);
        while (rc == -ETIMEDOUT);
    return rc;
}

static int hash_some(struct gds_worker *w, const struct vv_kernel_span *spans, size_t n,
                     uint64_t *ret_sums)
{
    struct vv_device *d = w->pool->gds->device;
    struct vv_kernel k = {
        .kind = VV_KERNEL_HASH, .spans = spans, .n_spans = (uint32_t)n, .sums = w->sums};
    /* To the stack, which is not registered: the copy is synchronous. */
    uint64_t sums[VV_KERNEL_SPANS];
    struct vv_copy_seg back = {sums, w->sums, n * sizeof(*sums)};
    int rc = vv_device_launch(d, w->stream, &k);
    if (rc == 0)
        rc = vv_device_copy_async(d, w->stream, &back, 1);
    if (rc == 0)
        rc = wait_for_stream(w);
    if (rc == 0)
        memcpy(ret_sums, sums, n * sizeof(*sums));
    return rc;
}

static int hash(struct gds_worker *w, struct vvi_gds_req *req)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < req->nspans; at += VV_KERNEL_SPANS)
        rc = hash_some(w, req->spans + at, VV_MIN(req->nspans - at, (size_t)VV_KERNEL_SPANS),
                       req->sums + at);
    return rc;
}

/* One call of the library, under the fault hook. Returns bytes, or a negative errno. */
static int64_t transfer_once(struct gds_worker *w, const struct vvi_gds_req *req,
                             const struct vvi_gds_part *part)
{
    struct vv_gds *gds = w->pool->gds;
    const struct vv_os *os = w->pool->os;
    size_t bytes = part->bytes;
    int64_t hook = !os->aio ? 0
                            : os->aio(os, req->write ? VV_OS_AIO_WRITE : VV_OS_AIO_READ,
                                      req->file->fd, part->offset, bytes);
    if (hook < 0)
        return hook;
    if (hook > 0)
        bytes = VV_MIN(bytes, (size_t)hook);
    off_t at = (char *)part->mem - gds->base;
    ssize_t n;
    errno = 0;
    if (req->write)
        n = gds->lib.write(req->file->handle, gds->base, bytes, (off_t)part->offset, at);
    else
        n = gds->lib.read(req->file->handle, gds->base, bytes, (off_t)part->offset, at);
    if (n == -1)
        return errno > 0 ? -errno : -EIO;
    if (n < 0)
        return errno_of((int)-n);
    return n;
}

static int transfer(struct gds_worker *w, struct vvi_gds_req *req)
{
    struct vv_gds *gds = w->pool->gds;
    for (size_t i = 0; i < req->nparts; i++) {
        struct vvi_gds_part *part = &req->parts[i];
        uintptr_t at = (uintptr_t)part->mem - (uintptr_t)gds->base; /* huge if below the base */
        if (at > gds->bytes || part->bytes > gds->bytes - at)
            return -EINVAL;
        while (part->bytes > 0) {
            int64_t n = transfer_once(w, req, part);
            if (n == -EINTR)
                continue;
            if (n < 0)
                return (int)n;
            if (n == 0)
                return req->write ? -EIO : -ENODATA;
            part->mem = (char *)part->mem + n;
            part->offset += (uint64_t)n;
            part->bytes -= (uint64_t)n;
        }
    }
    return 0;
}

static int carry_out(struct gds_worker *w, struct vvi_gds_req *req)
{
    struct vv_device *d = w->pool->gds->device;
    if (req->nuploads > 0) {
        int rc = vv_device_copy_async(d, w->stream, req->uploads, req->nuploads);
        return rc == 0 ? wait_for_stream(w) : rc;
    }
    int rc = req->write ? hash(w, req) : 0;
    if (rc == 0)
        rc = vv_device_enter(d);
    if (rc == 0) {
        rc = transfer(w, req);
        vv_device_leave(d);
    }
    if (rc == 0 && !req->write)
        rc = hash(w, req);
    return rc;
}

static void *worker_main(void *arg)
{
    struct gds_worker *w = arg;
    struct vvi_gds_pool *pool = w->pool;
    vv_mutex_lock(&pool->lock);
    for (;;) {
        struct vvi_gds_req *req = pool->todo;
        if (!req) {
            if (pool->stopping)
                break;
            vv_cond_wait(&pool->todo_cond, &pool->lock);
            continue;
        }
        pool->todo = req->next;
        if (!pool->todo)
            pool->todo_tail = &pool->todo;
        vv_mutex_unlock(&pool->lock);
        req->result = carry_out(w, req);
        req->next = NULL;
        vv_mutex_lock(&pool->lock);
        *pool->done_tail = req;
        pool->done_tail = &req->next;
        vv_mutex_unlock(&pool->lock);
        pool->notify(pool->notify_arg);
        vv_mutex_lock(&pool->lock);
    }
    vv_mutex_unlock(&pool->lock);
    return NULL;
}

static void worker_fini(struct vvi_gds_pool *pool, struct gds_worker *w)
{
    struct vv_device *d = pool->gds->device;
    vv_device_mem_free(d, w->sums);
    vv_device_event_free(d, w->event);
    vv_device_stream_free(d, w->stream);
}

static int worker_start(struct vvi_gds_pool *pool, struct gds_worker *w)
{
    struct vv_device *d = pool->gds->device;
    w->pool = pool;
    int rc = vv_device_stream_new(d, &w->stream);
    if (rc == 0)
        rc = vv_device_event_new(d, &w->event);
    if (rc == 0)
        rc = vv_device_mem_alloc(d, VV_KERNEL_SPANS * sizeof(uint64_t), &w->sums);
    if (rc == 0)
        rc = vv_thread_start(&w->thread, worker_main, w);
    if (rc < 0)
        worker_fini(pool, w);
    return rc;
}

void vvi_gds_pool_free(struct vvi_gds_pool *pool)
{
    if (!pool)
        return;
    vv_mutex_lock(&pool->lock);
    pool->stopping = true; /* threads end when `todo` is empty */
    vv_cond_broadcast(&pool->todo_cond);
    vv_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->nworkers; i++)
        pthread_join(pool->worker[i].thread, NULL);
    for (unsigned i = 0; i < pool->nworkers; i++)
        worker_fini(pool, &pool->worker[i]);
    vv_cond_fini(&pool->todo_cond);
    vv_mutex_fini(&pool->lock);
    free(pool);
}

int vvi_gds_pool_new(struct vv_gds *gds, const struct vv_os *os, void (*notify)(void *arg),
                     void *arg, struct vvi_gds_pool **ret_pool)
{
    struct vvi_gds_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    pool->gds = gds;
    pool->os = os;
    pool->notify = notify;
    pool->notify_arg = arg;
    pool->todo_tail = &pool->todo;
    pool->done_tail = &pool->done;
    vv_mutex_init(&pool->lock, "gds threads", VV_RANK_AIO);
    vv_cond_init(&pool->todo_cond);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < POOL_THREADS; i++) {
        rc = worker_start(pool, &pool->worker[i]);
        pool->nworkers += rc == 0;
    }
    if (rc < 0) {
        vvi_gds_pool_free(pool);
        return rc;
    }
    *ret_pool = pool;
    return 0;
}

void vvi_gds_submit(struct vvi_gds_pool *pool, struct vvi_gds_req *req)
{
    req->next = NULL;
    vv_mutex_lock(&pool->lock);
    *pool->todo_tail = req;
    pool->todo_tail = &req->next;
    vv_cond_signal(&pool->todo_cond);
    vv_mutex_unlock(&pool->lock);
}

struct vvi_gds_req *vvi_gds_reap(struct vvi_gds_pool *pool)
{
    vv_mutex_lock(&pool->lock);
    struct vvi_gds_req *req = pool->done;
    if (req) {
        pool->done = req->next;
        if (!pool->done)
            pool->done_tail = &pool->done;
    }
    vv_mutex_unlock(&pool->lock);
    return req;
}
