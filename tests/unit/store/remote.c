/* SPDX-License-Identifier: Apache-2.0 */
/* A shared folder that the engine writes to directly: commits in another order than their generations began, and
 * leftovers of earlier lives. */
#include "store/remote/remote.h"

#include "store/remote/group.h"
#include "store/remote/remote_private.h"

#include "unit/store/store_test.h"

static struct vv_remote *remote;
static struct vv_remote_hist *hist;
static struct vv_store *store;

/* A wait for the version ends only after this has returned. */
static void reached(void *arg, uint64_t version, uint64_t generation)
{
    (void)arg;
    (void)generation;
    T_ERR(vv_remote_wait(hist, version, VV_REMOTE_COMPLETE, 0), -ETIMEDOUT);
}

static void begin(const char *path)
{
    struct vv_remote_opts opts = {.path = path, .ranks = 1, .complete = true, .direct = true};
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

/* The commit of a generation ends when a later one of the same life is already complete. It will be removed,
 * and no call reports an error. */
static void passed_by_a_later_one(void)
{
    uint64_t version = 0;
    begin(t_tmpdir());
    uint64_t first = vv_remote_first_generation(hist);
    commit(1, first + 8, 2);
    T_OK(vv_remote_wait(hist, 1, VV_REMOTE_COMPLETE, VV_NEVER_NS));
    commit(1, first, 1);
    T_OK(vv_remote_wait_all(hist, false, VV_NEVER_NS, &version));
    /* The worker takes files in the order of generations, so it has handled that one before. */
    commit(2, first + 16, 1);
    T_OK(vv_remote_wait(hist, 2, VV_REMOTE_COMPLETE, VV_NEVER_NS));
    T_OK(vv_remote_take_error(hist, &version));
    T_OK(vv_remote_wait_all(hist, false, VV_NEVER_NS, &version));
    end();
}

static int see(void *user, const struct vv_files_entry *e)
{
    (void)e;
    ++*(unsigned *)user;
    return 0;
}

/* Ends a life and begins another; so many generations are complete then. */
static void next_life(const char *path, unsigned expected)
{
    unsigned n = 0;
    end();
    begin(path);
    T_OK(vv_remote_list(hist, see, &n));
    T_EQ(n, expected);
}

/* A life is interrupted between record and marker, so that the marker stays. Later a newer generation is complete,
 * and is removed by a life that has written nothing. The older one does not come back. */
static void marker_left(void)
{
    const char *path = t_tmpdir();
    struct st_object o;
    struct vv_group g;
    struct vv_group_record record;
    begin(path);
    uint64_t first = vv_remote_first_generation(hist), run_id = vv_remote_run_id(hist);
    commit(1, first, 1);
    T_OK(vv_remote_wait(hist, 1, VV_REMOTE_COMPLETE, VV_NEVER_NS));
    T_OK(vv_group_open(hist->there, "h", 0, 1, true, &g));
    T_OK(vv_group_read_record(&g, 1, run_id, &record));
    T_OK(vv_group_write_marker(&g, 1, run_id, &record.file[0]));
    vv_group_record_fini(&record);
    vv_group_close(&g);
    next_life(path, 1);
    uint64_t newer = vv_remote_first_generation(hist);
    commit(1, newer, 1);
    T_OK(vv_remote_wait(hist, 1, VV_REMOTE_COMPLETE, VV_NEVER_NS));
    next_life(path, 1);
    st_object_init(&o, vv_remote_files(hist), 1, newer, 1000, ST_PAGE);
    T_OK(st_do(store, &o, VV_STORE_REMOVE));
    st_object_fini(&o);
    next_life(path, 0);
    end();
}

/* ---- the limit of local disk ---- */

/* One file fits. The other waits for room while the engine may still commit or remove the first one, and fails once
 * the engine has nothing else in flight. */
static void room_that_is_not_made(void)
{
    struct vv_remote_opts opts = {
        .path = t_tmpdir(), .ranks = 1, .local_bytes = vv_files_bytes(1000, 64, ST_PAGE)};
    struct vv_remote_hist_opts hist_opts = {.reached = reached};
    struct vv_store_io *done = NULL;
    struct st_object first, second;
    struct vv_store *inner;
    struct vv_folder *folder;
    struct vv_files *local;
    char err[256] = "";
    int n;
    vv_store_opts_init(&opts.store);
    opts.store.page_bytes = ST_PAGE;
    opts.store.mode = VV_STORE_BUFFERED;
    T_OK(vv_folder_new(t_tmpdir(), &opts.store, err, sizeof(err), &folder));
    T_OK(vv_files_open(folder, "h", 0, &(struct vv_files_opts){.all_generations = true}, err,
                       sizeof(err), &local));
    T_OK(vv_remote_new(&opts, err, sizeof(err), &remote));
    T_OK(vv_remote_open(remote, "h", local, &hist_opts, err, sizeof(err), &hist));
    T_OK(vv_folder_store(folder, &inner));
    T_OK(vv_remote_store(remote, inner, &store));
    vv_remote_start(hist, 0);
    uint64_t generation = vv_remote_first_generation(hist);
    st_object_init(&first, local, 1, generation, 1000, ST_PAGE);
    st_object_init(&second, local, 2, generation + 1, 1000, ST_PAGE);
    T_OK(st_do(store, &first, VV_STORE_WRITE));
    struct vv_store_io held = st_io(&second, VV_STORE_WRITE, 0, 1);
    T_OK(store->ops->submit(store, &held));
    T_EQ(*store->held, 1);
    while ((n = store->ops->poll(store, &done, 1, 20 * (int64_t)VV_NS_PER_MS)) == 0)
        ;
    T_EQ(n, -ETIMEDOUT);
    store->ops->alone(store);
    while ((n = store->ops->poll(store, &done, 1, 20 * (int64_t)VV_NS_PER_S)) == 0)
        ;
    T_EQ(n, 1);
    T_CHECK(done == &held);
    T_EQ(held.status, -ENOSPC);
    T_EQ(*store->held, 0);
    /* Then the engine continues with the first one after all. */
    held = st_io(&second, VV_STORE_WRITE, 0, 1);
    T_OK(store->ops->submit(store, &held));
    struct vv_store_io removal = st_io(&first, VV_STORE_REMOVE, 0, 0);
    T_OK(store->ops->submit(store, &removal));
    for (int left = 2; left > 0; left -= n) {
        n = store->ops->poll(store, &done, 1, -1);
        T_CHECK(n >= 0);
        T_EQ(n ? done->status : 0, 0);
    }
    T_OK(st_do(store, &second, VV_STORE_REMOVE));
    end();
    vv_files_close(local);
    vv_folder_free(folder);
    st_object_fini(&first);
    st_object_fini(&second);
}

int main(void)
{
    T_RUN(room_that_is_not_made);
    T_RUN(passed_by_a_later_one);
    T_RUN(marker_left);
    return t_done();
}
