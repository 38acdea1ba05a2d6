/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `varve bench stream` and `varve sim stream`, and its workload: a shot without a wait whose
 * compute times are those of kernels. Most options are those of a shot.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common/command.h"
#include "lab/shot/stream.h"

/* In the order of the enumerations. */
#define ENGINES "varve|pool|none"
#define ORDERS  "fifo|lifo|irr" /* of SHOT_ORDER_SEQ, SHOT_ORDER_REV, SHOT_ORDER_IRR */

/* The longest time of a kernel (device/device.h). */
#define KERNEL_MAX_NS VV_NS_PER_S

/* The rows of a shot's table that have the same meaning here. */
static const char *const shared[] = {
    "size",       "sizes", "scale",       "seed",     "device", "device-cache",
    "host-cache", "local", "local-cache", "local-io", "level",  "rate",
    "policy",     "page",  "no-bound",    "csv",      "trace",  "json",
};

static int set_ns(const char *value, uint64_t *ret_ns)
{
    double ms;
    int rc = opts_real(value, 0, 1e9, &ms);

    if (rc == 0)
        *ret_ns = (uint64_t)llround(ms * 1e6);
    return rc;
}

static int set_forward(const char *value, void *args)
{
    return set_ns(value, &((struct stream_args *)args)->plan.forward_ns);
}

static int set_backward(const char *value, void *args)
{
    return set_ns(value, &((struct stream_args *)args)->plan.backward_ns);
}

#define AT(field)   offsetof(struct stream_args, field)
#define WORDS(list) .arg = (list), .words = (list)

static const struct opt own[] = {
    {OPT_WORD, .name = "engine", WORDS(ENGINES), .at = AT(plan.engine),
     .help = "engine of the calls: the library (varve), pinned memory with copies ahead,\n"
             "or nothing: all stays in device memory"},
    {OPT_U32, .name = "blocks", .arg = "N", .at = AT(plan.blocks), .least = 1, .most = 1000000,
     .help = "blocks of a step (10): the objects of a list of --sizes, or one object"},
    {OPT_SET, .name = "forward-ms", .arg = "MS", .set = set_forward,
     .takes = "a number of milliseconds", .help = "kernels of a block that write its objects (10)"},
    {OPT_SET, .name = "backward-ms", .arg = "MS", .set = set_backward,
     .takes = "a number of milliseconds", .help = "kernels of a block that read its objects (20)"},
    {OPT_WORD, .name = "order", WORDS(ORDERS), .at = AT(shot.o.order),
     .help = "order of the restores (lifo): declared, or irregular and hinted"},
    {OPT_U32, .name = "streams", .arg = "N", .at = AT(plan.streams), .least = 1,
     .most = STREAM_MAX_STREAMS, .help = "each with a thread and a history of its own (1)"},
    {OPT_U32, .name = "steps", .arg = "N", .at = AT(plan.steps), .least = 1,
     .most = STREAM_MAX_STEPS, .help = "steps that count, behind one that does not (5)"},
    {OPT_U32, .name = "ahead", .arg = "N", .at = AT(plan.ahead), .least = 1, .most = 1000000,
     .help = "engine pool: objects brought up before they are wanted (3)"},
};

static struct opts all_options(const char *command, struct opt *buf)
{
    size_t n = VV_ARRAY_SIZE(own);

    memcpy(buf, own, sizeof(own));
    for (size_t i = 0; i < VV_ARRAY_SIZE(shared); i++)
        for (size_t k = 0; k < shot_options.nr; k++)
            if (strcmp(shot_options.list[k].name, shared[i]) == 0)
                buf[n++] = shot_options.list[k];
    return (struct opts){
        .command = command,
        .usage = "[OPTION]...",
        .about =
            "Steps of a program that runs ahead of the device: forward, kernels write objects and\n"
            "checkpoints follow; backward, restores come and kernels that read them.\n\n"
            "Options (defaults in parentheses; device cache 35%, host cache 125%, no disk):",
        .tail = shot_options.tail,
        .list = buf,
        .nr = n};
}

/* Values that follow from the options. */
static int settle(struct stream_args *a, char *err, size_t err_size)
{
    struct shot_opts *o = &a->shot.o;
    size_t group = shot_sizes_listed(o->sizes);
    int rc = shot_args_settle(&a->shot, err, err_size);

    if (rc < 0)
        return rc;
    if (!shot_has_device(o)) {
        snprintf(err, err_size, "--device: streams need a device: expected cuda or host");
        return -EINVAL;
    }
    if (VV_MAX(a->plan.forward_ns, a->plan.backward_ns) / group > KERNEL_MAX_NS) {
        snprintf(err, err_size,
                 "--forward-ms, --backward-ms: expected at most a second for each object");
        return -EINVAL;
    }
    if (a->plan.engine != STREAM_ENGINE_VARVE && o->trace) {
        snprintf(err, err_size,
                 "--trace is allowed only with --engine varve: baselines record nothing");
        return -EINVAL;
    }
    o->ckpts = a->plan.blocks * (uint32_t)group;
    o->hints = o->order == SHOT_ORDER_IRR ? SHOT_HINTS_ALL : SHOT_HINTS_NONE;
    return 0;
}

int stream_args_parse(const char *command, int argc, char **argv, struct stream_args *ret_args)
{
    struct opt buf[VV_ARRAY_SIZE(own) + VV_ARRAY_SIZE(shared)];
    struct opts table = all_options(command, buf);
    struct stream_args a = {.plan = {.blocks = 10,
                                     .streams = 1,
                                     .steps = 5,
                                     .ahead = 3,
                                     .forward_ns = 10 * VV_NS_PER_MS,
                                     .backward_ns = 20 * VV_NS_PER_MS}};
    char err[256];
    int first, status;

    shot_args_init(&a.shot);
    a.shot.wait = false;
    a.shot.o.local = "none";
    a.shot.o.device_cache.share = 0.35;
    a.shot.o.host_cache.share = 1.25; /* pages of small objects are not full */
    status = opts_parse(&table, argc, argv, &a, &first);
    if (status >= 0)
        return status;
    if (settle(&a, err, sizeof(err)) < 0) {
        fprintf(stderr, "%s: %s\n", command, err);
        return CLI_USAGE;
    }
    *ret_args = a;
    return -1;
}

void stream_args_print(FILE *f, const char *command, const struct shot_opts *opts,
                       const struct stream_plan *plan)
{
    static const char *const engines[] = {"varve", "pool", "none"};
    static const char *const orders[] = {"fifo", "lifo", "irr"};

    fprintf(f,
            "varve %s stream --engine %s --blocks %" PRIu32 " --forward-ms %.6f --backward-ms %.6f "
            "--order %s --streams %" PRIu32 " --steps %" PRIu32 " --ahead %" PRIu32 " ",
            command, engines[plan->engine], plan->blocks, (double)plan->forward_ns / 1e6,
            (double)plan->backward_ns / 1e6, orders[opts->order], plan->streams, plan->steps,
            plan->ahead);
    shot_opts_print_named(f, opts, shared, VV_ARRAY_SIZE(shared));
    fprintf(f, "\n");
}

/* Forward the kernel comes before the call, backward after it. */
static int set_kernels(struct shot_script *s, uint64_t forward_ns, uint64_t backward_ns)
{
    bool forward = true;

    for (size_t i = 0; i + 1 < s->nr_ops; i++) {
        struct shot_op *op = &s->ops[i];

        if (op->kind != SHOT_COMPUTE)
            continue;
        op->ns = !forward ? backward_ns : s->ops[i + 1].kind == SHOT_PUT ? forward_ns : 0;
        forward = forward && s->ops[i + 1].kind == SHOT_PUT;
    }
    return shot_script_add(s, (struct shot_op){SHOT_COMPUTE, .ns = backward_ns});
}

int stream_work_make(const struct shot_opts *opts, const struct stream_plan *plan, char *err,
                     size_t err_size, struct shot_work *ret_work)
{
    static const int declared[] = {[SHOT_ORDER_SEQ] = VARVE_ORDER_FIFO,
                                   [SHOT_ORDER_REV] = VARVE_ORDER_LIFO,
                                   [SHOT_ORDER_IRR] = VARVE_ORDER_HINTS};
    size_t group = shot_sizes_listed(opts->sizes);
    struct shot_plan shot;
    struct shot_work work;
    int rc;

    shot_plan_init(&shot);
    shot.threads = plan->streams;
    shot.declare = declared[opts->order];
    rc = shot_work_make(opts, &shot, err, err_size, &work);
    for (uint32_t t = 0; rc == 0 && t < work.nr_threads; t++) {
        rc = set_kernels(&work.threads[t], plan->forward_ns / group, plan->backward_ns / group);
        if (rc < 0) {
            snprintf(err, err_size, "out of memory");
            shot_work_fini(&work);
            return rc;
        }
    }
    if (rc == 0)
        *ret_work = work;
    return rc;
}
