/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training steps on streams: a host that runs ahead puts kernels of given duration and the calls between them on one
 * or more streams and never waits. Forward, a kernel writes each object, and a checkpoint follows; backward, a restore
 * comes, and a kernel that reads the object. `varve bench stream` measures it by events of the device, `varve sim
 * stream` runs it in virtual time (lab/sim/sim_ahead.h).
 *
 * The workload is a shot without a wait; compute times are kernels, and time blocked is the time for which a stream
 * stalls: from the end of the kernel before a call to the beginning of the kernel after it.
 */
#ifndef LAB_SHOT_STREAM_H
#define LAB_SHOT_STREAM_H

#include "lab/shot/shot_app.h"
#include "lab/shot/shot_engine.h"
#include "lab/shot/work.h"

struct shot_report;
struct shot_trace;

enum stream_engine {
    STREAM_ENGINE_VARVE,
    STREAM_ENGINE_POOL, /* pinned memory, and copies ahead of the restores */
    STREAM_ENGINE_NONE  /* everything stays in device memory of its own */
};

enum { STREAM_MAX_STREAMS = 16, STREAM_MAX_STEPS = 64 };

struct stream_plan {
    int engine;      /* enum stream_engine */
    uint32_t blocks; /* of objects, which share its kernel times */
    uint32_t streams;
    uint32_t steps;
    uint32_t ahead; /* pool: number of objects brought up ahead */
    uint64_t forward_ns, backward_ns;
};

/* The command line of both commands. */
struct stream_args {
    struct shot_args shot; /* first */
    struct stream_plan plan;
};

/* Returns -1, or an exit status. Fills in the fields below: shot.o is then the shot that is the workload. */
VV_WARN_UNUSED int stream_args_parse(const char *command, int argc, char **argv,
                                     struct stream_args *ret_args);
/* The line that repeats the run. */
void stream_args_print(FILE *f, const char *command, const struct shot_opts *opts,
                       const struct stream_plan *plan);

/* Each stream is a thread with a history of its own. A line of text goes with errors. */
VV_WARN_UNUSED int stream_work_make(const struct shot_opts *opts, const struct stream_plan *plan,
                                    char *err, size_t err_size, struct shot_work *ret_work);

/* The figures of a thread beside its shot_trace, which has the best step. */
struct stream_figures {
    uint32_t nr_steps;
    double step_s[STREAM_MAX_STEPS];           /* of all streams: until the last has ended */
    double put_host_s[2], get_host_s[2];       /* of a call: median and longest */
    uint64_t moved_down_bytes, moved_up_bytes; /* in all steps, by the engine */
    uint64_t restores, ready;
};

/* Shared by the threads of a run. */
struct stream_shared {
    struct vv_event *origin;                /* the beginning of a step, on the first stream */
    uint64_t end_ns[2][STREAM_MAX_STREAMS]; /* of this step, or the one before; between barriers */
};

struct stream_run {
    const struct stream_plan *plan;
    const struct shot_script *script;
    struct shot_engine *engine;
    struct shot_app *app; /* with a stream of its own and, for the library, room for two objects */
    struct stream_shared *shared;
    uint32_t index; /* of the stream */
    uint64_t seed;
    int (*barrier)(void *arg);
    void (*progress)(void *arg, size_t ops_done);
    void *arg;
};

/* How much memory of the application a stream needs. */
size_t stream_app_bytes(const struct stream_plan *plan, const struct shot_script *script);

/* Runs all steps. As shot_run: wrong bytes are no error. */
VV_WARN_UNUSED int stream_run(const struct stream_run *run, char *err, size_t err_size,
                              struct shot_trace *trace, struct stream_figures *figures);

struct stream_baseline {
    struct vv_device *device;
    struct vv_stream *stream; /* the application's */
    const struct shot_script *script;
    uint64_t device_bytes; /* pool: memory for objects in transfer, down or up */
    uint32_t ahead;
};

/*
 * A pool of pinned host memory with room for every object of a step, one stream down and one up. Kernels write into
 * memory of the pool and read from it, so nothing is copied within the device. It has no cache there: every
 * object goes down and comes up again, `ahead` objects before it is wanted.
 *   -ENOMEM, -EFBIG  memory is short
 */
VV_WARN_UNUSED int stream_engine_pool(const struct stream_baseline *b, char *err, size_t err_size,
                                      struct shot_engine **ret_engine);
/* Nothing is saved: every object has device memory of its own. */
VV_WARN_UNUSED int stream_engine_none(const struct stream_baseline *b, char *err, size_t err_size,
                                      struct shot_engine **ret_engine);

/* Replaces the bound of each stream by its bound on the shared machine, where that is larger. Call shot_report_finish
 * afterwards. Errors: those of bound_compute. */
VV_WARN_UNUSED int stream_report_bound(struct shot_report *report, const struct shot_work *work);

/* Lines of a report that only streams have. */
void stream_report_print(FILE *f, const struct shot_report *report);
void stream_report_json(struct json *j, const struct shot_report *report);

#endif
