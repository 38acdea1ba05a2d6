/* SPDX-License-Identifier: Apache-2.0 */
/* Two movers at the same time on one tier, as in the runtime: one thread writes and commits, another reads the same
 * objects back, before and after their commit, and a third kicks both. Mainly for ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>

#include "store_test.h"

enum { OBJECTS = 60, CHUNKS = 4 };
#define SIZE ((uint64_t)CHUNKS * ST_PAGE - 1000)

static struct vv_store *writer, *reader;
static struct vv_files *files;
static struct st_object objects[OBJECTS];
static uint32_t pages[OBJECTS][CHUNKS];
static atomic_bool stop;

/* Progress of the writer, as the engine would report it to the reader. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int written;
static int consumed;

static void publish(int *counter)
{
    pthread_mutex_lock(&lock);
    ++*counter;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
}

static void await(const int *counter, int value)
{
    pthread_mutex_lock(&lock);
    while (*counter < value)
        pthread_cond_wait(&cond, &lock);
    pthread_mutex_unlock(&lock);
}

static struct vv_store_io request(int i, struct st_object *o, enum vv_store_op op)
{
    struct vv_store_io io = st_io(o, op, 0, CHUNKS);
    io.pages = files ? NULL : pages[i];
    return io;
}

static void *write_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < OBJECTS; i++) {
        struct vv_store_io io = request(i, &objects[i], VV_STORE_WRITE);
        T_OK(st_run(writer, &io));
        publish(&written);
        if (files) {
            io = request(i, &objects[i], VV_STORE_COMMIT);
            T_OK(st_run(writer, &io));
        }
        /* Some objects are removed after the reader has finished with them. */
        if (files && i >= 8 && i % 4 == 0) {
            await(&consumed, i - 7);
            io = request(i - 8, &objects[i - 8], VV_STORE_REMOVE);
            T_OK(st_run(writer, &io));
        }
    }
    return NULL;
}

static void *read_all(void *arg)
{
    (void)arg;
    struct st_object o;
    st_object_init(&o, files, 0, 0, SIZE, ST_PAGE);
    for (int i = 0; i < OBJECTS; i++) {
        await(&written, i + 1);
        o.key = objects[i].key;
        for (int k = 0; k < 2; k++) { /* while it is committed, and perhaps after */
            st_object_clear(&o, ST_PAGE);
            struct vv_store_io io = request(i, &o, VV_STORE_READ);
            T_OK(st_run(reader, &io));
            T_CHECK(st_object_intact(&o, ST_PAGE));
        }
        publish(&consumed);
    }
    st_object_fini(&o);
    return NULL;
}

static void *kick_all(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        writer->ops->kick(writer);
        reader->ops->kick(reader);
        sched_yield();
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t t[3];
    written = consumed = 0;
    atomic_store(&stop, false);
    for (int i = 0; i < OBJECTS; i++) {
        st_object_init(&objects[i], files, (uint64_t)i, 0, SIZE, ST_PAGE);
        for (uint32_t c = 0; c < CHUNKS; c++)
            pages[i][c] = (uint32_t)i * CHUNKS + (c ^ 1);
    }
    T_OK(pthread_create(&t[0], NULL, write_all, NULL));
    T_OK(pthread_create(&t[1], NULL, read_all, NULL));
    T_OK(pthread_create(&t[2], NULL, kick_all, NULL));
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    atomic_store(&stop, true);
    pthread_join(t[2], NULL);
    for (int i = 0; i < OBJECTS; i++)
        st_object_fini(&objects[i]);
}

static void spill(void)
{
    struct vv_spill *s;
    files = NULL;
    T_OK(vv_spill_new(t_tmpdir(), OBJECTS * CHUNKS * ST_PAGE, &st_opts, NULL, 0, &s));
    T_OK(vv_spill_store(s, &writer));
    T_OK(vv_spill_store(s, &reader));
    run_threads();
    writer->ops->close(writer);
    reader->ops->close(reader);
    vv_spill_free(s);
}

static void committed_files(void)
{
    struct st_tier tier = {.opts = st_opts};
    tier.opts.max_open = 2;
    st_tier_open(&tier, t_tmpdir());
    files = st_files_open(&tier, "h");
    writer = tier.writer;
    reader = tier.reader;
    run_threads();
    vv_files_close(files);
    st_tier_close(&tier);
}

/* Both on a paced medium. */
static void paced(void)
{
    struct vv_store_opts saved = st_opts;
    st_opts.write_bytes_per_s = 400 << 20;
    st_opts.read_bytes_per_s = 800 << 20;
    spill();
    st_opts = saved;
}

static void cases(void)
{
    T_RUN(spill);
    T_RUN(committed_files);
    T_RUN(paced);
}

int main(void)
{
    st_each_mode(cases);
    return t_done();
}
