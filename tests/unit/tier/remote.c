/* SPDX-License-Identifier: Apache-2.0 */
/* A shared folder that the engine writes to itself: commits that come in another order than the
 * generations were begun. */
#include "tier/remote.h"

#include "unit/tier/store_test.h"

static struct vv_remote *remote;
static struct vv_remote_hist *hist;
static struct vv_store *store;

static void reached(void *arg, uint64_t version, uint64_t generation)
{
    (void)arg;
    (void)version;
    (void)generation;
}

static void begin(void)
{
    struct vv_remote_opts opts = {.path = t_tmpdir(), .ranks = 1, .complete = true, .direct = true};
    struct vv_remote_hist_opts hist_opts = {.reached = reached};
    struct vv_store *inner;
    char err[256] = "";
    vv_store_opts_init(&opts.store);
    opts.store.page_bytes = ST_PAGE;
    opts.store.mode = VV_STORE_BUFFERED;
    T_OK(vv_remote_new(&opts, err, sizeof(err), &remote));
    T_OK(vv_remote_open(remote, "h", NULL, &hist_opts, err, sizeof(err), &hist));
    T_OK(vv_folder_store(vv_remote_folder(remote), &inner));
    T_OK(vv_remote_store(remote, inner, &store));
    vv_remote_start(hist, 0);
}

static void end(void)
{
    store->ops->close(store);
    vv_remote_stop(hist);
    vv_remote_close(hist);
    vv_remote_free(remote);
}

static void commit(uint64_t version, uint64_t generation, uint32_t edition)
{
    struct st_object o;
    st_object_init(&o, vv_remote_files(hist), version, generation, 1000, ST_PAGE);
    struct vv_store_io write = st_io(&o, VV_STORE_WRITE, 0, 1);
    struct vv_store_io last = st_io(&o, VV_STORE_COMMIT, 0, 1);
    write.edition = last.edition = edition;
    T_OK(st_run(store, &write));
    T_OK(st_run(store, &last));
    st_object_fini(&o);
}

/* The commit of a generation ends when a later one of the same life is complete already. It is about to
 * be removed, and no call has to hear of it. */
static void passed_by_a_later_one(void)
{
    uint64_t version = 0;
    begin();
    uint64_t first = vv_remote_first_generation(hist);
    commit(1, first + 8, 2);
    T_OK(vv_remote_wait(hist, 1, VV_REMOTE_COMPLETE, VV_NEVER_NS));
    commit(1, first, 1);
    T_OK(vv_remote_wait_all(hist, false, VV_NEVER_NS, &version));
    /* The worker takes files in the order of generations: then it has looked at that one. */
    commit(2, first + 16, 1);
    T_OK(vv_remote_wait(hist, 2, VV_REMOTE_COMPLETE, VV_NEVER_NS));
    T_OK(vv_remote_take_error(hist, &version));
    T_OK(vv_remote_wait_all(hist, false, VV_NEVER_NS, &version));
    end();
}

int main(void)
{
    T_RUN(passed_by_a_later_one);
    return t_done();
}
