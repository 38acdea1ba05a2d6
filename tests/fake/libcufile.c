/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for NVIDIA's libcufile: the entry points that src/store/aio/gds.c uses, on plain reads and writes. Device
 * memory is memory of this process, that of the emulated device; `map` finds it. It counts, fails on demand, and notes
 * misuse that the real library would not accept: a file that is not registered or lacks O_DIRECT, memory outside a
 * registered buffer, a driver that is not open.
 *
 * Any thread. One lock protects the tables; it is not held during a transfer.
 */
#define _GNU_SOURCE
#include "libcufile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct error {
    int code, cuda;
};

struct descr {
    int type;
    union {
        int fd;
        void *other;
    } handle;
    const void *fs_ops;
};

struct handle {
    int fd;
    struct handle *next;
};

struct buffer {
    char *base;
    size_t bytes;
};

enum { BUFFERS = 8, NOT_INITIALIZED = 5001, DIO_NOT_SET = 5020, INVALID_VALUE = 5022 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_cufile state;
static struct handle *handles;
static struct buffer buffers[BUFFERS];

struct fake_cufile *fake_cufile(void);
struct error cuFileDriverOpen(void);
struct error cuFileDriverClose_v2(void);
struct error cuFileHandleRegister(void **ret_handle, struct descr *descr);
void cuFileHandleDeregister(void *handle);
struct error cuFileBufRegister(const void *base, size_t bytes, int flags);
struct error cuFileBufDeregister(const void *base);
ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t file_offset, off_t base_offset);
ssize_t cuFileWrite(void *handle, const void *base, size_t bytes, off_t file_offset,
                    off_t base_offset);

struct fake_cufile *fake_cufile(void)
{
    return &state;
}

static struct error misuse_locked(int code, const char *what)
{
    if (state.misuse++ == 0)
        snprintf(state.what, sizeof(state.what), "%s", what);
    return (struct error){.code = code};
}

struct error cuFileDriverOpen(void)
{
    struct error e = {0};
    pthread_mutex_lock(&lock);
    e.code = state.driver_open_code;
    state.drivers += e.code == 0;
    pthread_mutex_unlock(&lock);
    return e;
}

struct error cuFileDriverClose_v2(void)
{
    struct error e = {0};
    pthread_mutex_lock(&lock);
    if (state.drivers == 0)
        e = misuse_locked(NOT_INITIALIZED, "driver closed too often");
    else if (--state.drivers == 0 && (state.handles > 0 || state.bufs > 0))
        e = misuse_locked(INVALID_VALUE, "driver closed with files or memory registered");
    pthread_mutex_unlock(&lock);
    return e;
}

struct error cuFileHandleRegister(void **ret_handle, struct descr *descr)
{
    struct error e = {0};
    struct handle *h = calloc(1, sizeof(*h));
    int flags = descr->type == 1 ? fcntl(descr->handle.fd, F_GETFL) : -1;
    pthread_mutex_lock(&lock);
    if (state.handle_code != 0)
        e.code = state.handle_code;
    else if (!h || state.drivers == 0)
        e = misuse_locked(NOT_INITIALIZED, "file registered without a driver");
    else if (flags < 0 || !(flags & O_DIRECT))
        e = misuse_locked(DIO_NOT_SET, "file registered that is not open for direct I/O");
    if (e.code == 0) {
        h->fd = descr->handle.fd;
        h->next = handles;
        handles = h;
        state.handles++;
        *ret_handle = h;
    }
    pthread_mutex_unlock(&lock);
    if (e.code != 0)
        free(h);
    return e;
}

void cuFileHandleDeregister(void *handle)
{
    pthread_mutex_lock(&lock);
    struct handle **at = &handles;
    while (*at && *at != handle)
        at = &(*at)->next;
    if (!*at) {
        misuse_locked(0, "unknown file deregistered");
    } else {
        struct handle *h = *at;
        if (fcntl(h->fd, F_GETFD) < 0)
            misuse_locked(0, "file deregistered after it was closed");
        *at = h->next;
        free(h);
        state.handles--;
    }
    pthread_mutex_unlock(&lock);
}

struct error cuFileBufRegister(const void *base, size_t bytes, int flags)
{
    struct error e = {0};
    (void)flags;
    pthread_mutex_lock(&lock);
    e.code = state.buf_code;
    if (e.code == 0 && state.drivers == 0)
        e = misuse_locked(NOT_INITIALIZED, "memory registered without a driver");
    int i = 0;
    while (i < BUFFERS && buffers[i].base)
        i++;
    if (e.code == 0 && i == BUFFERS)
        e = misuse_locked(INVALID_VALUE, "too many buffers");
    if (e.code == 0) {
        buffers[i] = (struct buffer){(char *)base, bytes};
        state.bufs++;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

struct error cuFileBufDeregister(const void *base)
{
    struct error e = {0};
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < BUFFERS && buffers[i].base != base)
        i++;
    if (i == BUFFERS) {
        e = misuse_locked(INVALID_VALUE, "unknown memory deregistered");
    } else {
        buffers[i] = (struct buffer){0};
        state.bufs--;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

/* The data of a transfer, taken under the lock; false: refused with *ret_rc. */
struct transfer {
    int fd;
    char *mem;
    size_t bytes;
    bool spoil;
};

static bool begin(void *handle, const void *base, size_t bytes, off_t base_offset,
                  struct transfer *ret, ssize_t *ret_rc)
{
    bool ok = true;
    *ret_rc = -INVALID_VALUE;
    pthread_mutex_lock(&lock);
    struct handle *h = handles;
    while (h && h != handle)
        h = h->next;
    int i = 0;
    while (i < BUFFERS &&
           (buffers[i].base != base || base_offset < 0 || (size_t)base_offset > buffers[i].bytes ||
            bytes > buffers[i].bytes - (size_t)base_offset))
        i++;
    if (!h || i == BUFFERS) {
        misuse_locked(0, !h ? "transfer on an unknown file" : "transfer outside all buffers");
        ok = false;
    } else if (state.fail_nth > 0 && --state.fail_nth == 0) {
        *ret_rc = state.fail_code != 0 ? -state.fail_code : -1;
        errno = state.fail_errno;
        ok = false;
    }
    if (ok) {
        void *mem = (char *)base + base_offset;
        *ret = (struct transfer){.fd = h->fd, .mem = mem, .bytes = bytes};
        if (state.short_bytes > 0 && bytes > state.short_bytes)
            ret->bytes = state.short_bytes;
        if (state.map)
            ret->mem = state.map(state.map_arg, mem);
        ret->spoil = state.spoil_nth > 0 && --state.spoil_nth == 0;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t file_offset, off_t base_offset)
{
    struct transfer t;
    ssize_t n;
    if (!begin(handle, base, bytes, base_offset, &t, &n))
        return n;
    n = pread(t.fd, t.mem, t.bytes, file_offset);
    if (t.spoil && n > 0)
        t.mem[n / 2] ^= 4;
    pthread_mutex_lock(&lock);
    state.reads++;
    state.read_bytes += n > 0 ? (uint64_t)n : 0;
    pthread_mutex_unlock(&lock);
    return n;
}

ssize_t cuFileWrite(void *handle, const void *base, size_t bytes, off_t file_offset,
                    off_t base_offset)
{
    struct transfer t;
    ssize_t n;
    if (!begin(handle, base, bytes, base_offset, &t, &n))
        return n;
    n = pwrite(t.fd, t.mem, t.bytes, file_offset);
    pthread_mutex_lock(&lock);
    state.writes++;
    state.written_bytes += n > 0 ? (uint64_t)n : 0;
    pthread_mutex_unlock(&lock);
    return n;
}
