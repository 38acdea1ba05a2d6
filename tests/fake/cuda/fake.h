/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in for the CUDA driver: functions for tests beyond the driver's own entry points. The stand-in's
 * libcuda.so.1 exports them; tests find them with dlsym, and find none in a real driver. All may be called from any
 * thread, before cuInit too.
 *
 * Settings have keys; each can also be given in the environment as FAKE_CUDA_<KEY> in capitals,
 * which is read when the library is loaded:
 *   devices        number of devices (1)
 *   memory         bytes of each device (16 GiB, taken from the host as it is touched)
 *   version        result of cuDriverGetVersion (13000); cuGetProcAddress finds nothing newer
 *   kernels        0: modules cannot be loaded, as on a device for which the code was not built (1)
 *   guard          1: device memory cannot be dereferenced by the processor (1)
 *   rate_d2d, rate_d2h, rate_h2d   bytes per second (0: as fast as the processor copies)
 *   latency_ns     of every copy (0)
 *   rate_register  bytes per second at which registering blocks all other calls (0: not at all)
 * FAKE_CUDA_HIDE is a list of entry points, separated by commas, that cuGetProcAddress does not find
 * and that are not supported when they are found otherwise. A second build of the stand-in, in the
 * folder old/, is a driver of version 11000 in which the newer entry points do not exist at all.
 */
#ifndef FAKE_CUDA_FAKE_H
#define FAKE_CUDA_FAKE_H

#include <stddef.h>

/* 0, or -1: unknown key. */
typedef int fake_cuda_set_fn(const char *key, long long value);

/* The nth next call (1: the next one) of the entry point `name` ("*": of any), and the calls after it up to `count` in
 * all (negative: for ever), return `code` and do nothing. A code that ends a context (an illegal address, for example)
 * ends all contexts: their work is dropped, and every call returns the code until they are destroyed. Names have no
 * version suffix. -1: bad arguments, or all slots are taken. */
typedef int fake_cuda_fail_fn(const char *name, unsigned long long nth, long long count, int code);

/* The same for copies and kernels that are accepted and fail when they run: they have no effect, and from
 * then on every call in their context returns `code`, as in real drivers. */
typedef int fake_cuda_fail_async_fn(unsigned long long nth, long long count, int code);

/* From now on every call returns `code`; work that has not started is dropped, and when the function returns
 * none is running. 0: brings the devices back, with their contexts destroyed. */
typedef void fake_cuda_lose_fn(int code);

/* Deletes the rules of fake_cuda_fail and fake_cuda_fail_async. */
typedef void fake_cuda_heal_fn(void);

/* Number of calls of the entry point, refused ones included. "*": of all. */
typedef unsigned long long fake_cuda_calls_fn(const char *name);

/* Number of live objects: "streams", "events", "allocations" (of device memory), "registrations", "contexts"
 * (active ones), "pending" (work submitted and not finished). */
typedef size_t fake_cuda_live_fn(const char *what);

/* The processor's address of device memory; NULL if `ptr` is not in device memory. */
typedef void *fake_cuda_map_fn(const void *ptr);

#endif
