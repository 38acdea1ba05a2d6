/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/model_revolve.h"

#include <errno.h>

#include "lab/shot/revolve.h"

/* The work of a phase. */
struct phase {
    uint64_t computed, reversed;    /* steps */
    uint64_t copied, written, read; /* snapshots: to or from any place; to or from the disk */
};

static uint32_t snapshots(uint64_t bytes, uint64_t record_bytes, uint32_t steps)
{
    return (uint32_t)VV_MIN(bytes / record_bytes, (uint64_t)steps);
}

uint32_t model_memory_snapshots(const struct model_reversal *r)
{
    return snapshots(r->host_bytes, r->record_bytes, r->steps);
}

uint32_t model_disk_snapshots(const struct model_reversal *r)
{
    if (!r->has_disk)
        return 0;
    return r->disk.capacity_bytes ? snapshots(r->disk.capacity_bytes, r->record_bytes, r->steps)
                                  : r->steps;
}

/* The first phase includes computing the last step: the adjoint begins with the final state. */
static void count(const struct revolve_plan *plan, uint32_t on_disk, struct phase ret_phase[2])
{
    struct phase *p = &ret_phase[0];
    uint32_t live = 0;

    for (size_t i = 0; i < plan->nr_actions; i++) {
        const struct revolve_action *a = &plan->actions[i];
        switch (a->kind) {
        case REVOLVE_ADVANCE:
            p->computed += a->to - a->from;
            break;
        case REVOLVE_STORE:
            p->copied++;
            p->written += live++ < on_disk;
            break;
        case REVOLVE_RESTORE:
            p->copied++;
            p->read += live - 1 < on_disk; /* only the newest snapshot is ever restored */
            break;
        case REVOLVE_REVERSE:
            if (p == &ret_phase[0]) {
                p->computed++;
                p = &ret_phase[1];
            }
            p->reversed++;
            break;
        case REVOLVE_FREE:
            live--;
            break;
        }
    }
}

static uint32_t peak(const struct revolve_plan *plan)
{
    uint32_t live = 0, most = 0;

    for (size_t i = 0; i < plan->nr_actions; i++) {
        live += plan->actions[i].kind == REVOLVE_STORE;
        live -= plan->actions[i].kind == REVOLVE_FREE;
        most = VV_MAX(most, live);
    }
    return most;
}

static double seconds(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

static void add_phase(const struct model_reversal *r, const struct phase *p, struct model_way *way)
{
    double record = (double)r->record_bytes;
    double compute_s = (double)p->computed * r->step_s + (double)p->reversed * r->adjoint_s;
    double busy_s = compute_s + seconds((double)p->copied * record, r->copy_bytes_per_s);
    double disk_s = seconds((double)p->written * record, r->disk.write_bytes_per_s) +
                    seconds((double)p->read * record, r->disk.read_bytes_per_s);

    way->disk_written += (double)p->written * record;
    way->disk_read += (double)p->read * record;
    way->compute_s += compute_s;
    way->wall_s += VV_MAX(busy_s, disk_s);
}

static int with_slots(const struct model_reversal *r, uint32_t slots, struct model_way *ret_way)
{
    struct revolve_plan plan;
    struct phase phase[2] = {0};
    struct model_way way = {.fits = true};
    int rc = revolve_plan_init(r->steps, slots, &plan);

    if (rc < 0)
        return rc;
    uint32_t used = peak(&plan);
    way.in_memory = VV_MIN(used, model_memory_snapshots(r));
    way.on_disk = used - way.in_memory;
    way.recomputed = revolve_cost(r->steps, slots) - (r->steps - 1);
    way.repeats = VV_MAX(revolve_repeats(r->steps, slots), UINT64_C(1)) - 1;
    count(&plan, way.on_disk, phase);
    revolve_plan_fini(&plan);
    for (int i = 0; i < 2; i++)
        add_phase(r, &phase[i], &way);
    *ret_way = way;
    return 0;
}

/* The last step is reversed from the end of the first sweep: its snapshot is never needed. */
static uint32_t all_slots(const struct model_reversal *r)
{
    return VV_MAX(r->steps - 1, UINT32_C(1));
}

int model_store_all(const struct model_reversal *r, struct model_way *ret_way)
{
    int rc = with_slots(r, all_slots(r), ret_way);

    if (rc == 0)
        ret_way->fits = ret_way->on_disk <= model_disk_snapshots(r);
    return rc;
}

int model_binomial(const struct model_reversal *r, struct model_way *ret_way)
{
    if (model_memory_snapshots(r) == 0) {
        *ret_way = (struct model_way){0};
        return 0;
    }
    return with_slots(r, VV_MIN(model_memory_snapshots(r), all_slots(r)), ret_way);
}

/* A slow disk is best used in part, so numbers of snapshots on it are tried in steps of an eighth. */
int model_mix(const struct model_reversal *r, struct model_way *ret_way)
{
    uint32_t memory = model_memory_snapshots(r);
    uint32_t most = VV_MIN(memory + model_disk_snapshots(r), all_slots(r));
    uint32_t slots = VV_MIN(VV_MAX(memory, UINT32_C(1)), most);
    struct model_way best = {0}, way;

    while (slots > 0) {
        int rc = with_slots(r, slots, &way);
        if (rc < 0)
            return rc;
        if (!best.fits || way.wall_s < best.wall_s)
            best = way;
        slots = slots < most ? VV_MIN(slots + 1 + (slots - memory) / 8, most) : 0;
    }
    *ret_way = best;
    return 0;
}
