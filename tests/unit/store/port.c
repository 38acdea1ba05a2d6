/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose kernel returns an error for completions: poll returns the error instead of repeating for ever, and
 * continues once the kernel works again. */
#include "store/aio/aio_private.h"
#include "store/store_private.h"
#include "store_test.h"

static int waits;

static int failing_wait(struct vv_aio *aio, struct vv_aio_req **ret_reqs, unsigned max,
                        int64_t timeout_ns)
{
    (void)aio;
    (void)ret_reqs;
    (void)max;
    (void)timeout_ns;
    waits++;
    return -EIO;
}

static void waiting_fails(void)
{
    struct vv_spill *spill;
    struct vv_store *s;
    struct st_object o;
    struct vv_store_io *done;
    uint32_t pages[2] = {1, 0};
    T_OK(vv_spill_new(t_tmpdir(), 8 * ST_PAGE, &st_opts, NULL, 0, &spill));
    T_OK(vv_spill_store(spill, &s));
    st_object_init(&o, NULL, 1, 0, 2 * ST_PAGE, ST_PAGE);
    struct vv_store_io io = st_io(&o, VV_STORE_WRITE, 0, 2);
    io.pages = pages;

    struct vv_aio *aio = ((struct vvi_port *)s)->aio;
    const struct vvi_aio_ops *ops = aio->ops;
    struct vvi_aio_ops failing = *ops;
    failing.wait = failing_wait;
    T_OK(s->ops->submit(s, &io));
    aio->ops = &failing;
    static const int64_t timeouts[] = {-1, 0, 1000000, INT64_C(3600) * 1000000000};
    for (unsigned i = 0; i < VV_ARRAY_SIZE(timeouts); i++) {
        waits = 0;
        T_ERR(s->ops->poll(s, &done, 1, timeouts[i]), -EIO);
        T_EQ(waits, 1);
    }
    aio->ops = ops;
    T_EQ(s->ops->poll(s, &done, 1, -1), 1);
    T_CHECK(done == &io);
    T_OK(io.status);
    s->ops->close(s);
    vv_spill_free(spill);
    st_object_fini(&o);
}

static void cases(void)
{
    T_RUN(waiting_fails);
}

int main(void)
{
    st_each_mode(cases);
    return t_done();
}
