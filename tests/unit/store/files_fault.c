/* SPDX-License-Identifier: Apache-2.0 */
/* One workload on committed files with every system call failing in turn, once and from then on, and with
 * the process killed before every system call in turn. Afterwards, with a working system: versions reported
 * as committed exist, versions reported as removed do not, and every listed version is intact. */
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store_test.h"

enum { VERSIONS = 3 };
#define SIZE (2 * ST_PAGE + 100)

/* The reports; shared with the parent of a killed process. */
struct reported {
    _Atomic bool committed[VERSIONS], removing[VERSIONS], removed[VERSIONS];
};

static struct reported *reported;

static int remove_version(struct vv_store *s, struct vv_files *f, uint64_t v)
{
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {f, v, 0}};
    reported->removing[v] = true;
    int rc = st_run(s, &io);
    if (rc == 0)
        reported->removed[v] = true;
    return rc;
}

static void put_versions(struct vv_store *w, struct vv_files *f)
{
    for (uint64_t v = 0; v < VERSIONS; v++) {
        struct st_object o;
        st_object_init(&o, f, v, 0, SIZE, ST_PAGE);
        struct vv_store_io io = st_io(&o, VV_STORE_WRITE, 1, 2);
        int rc = st_run(w, &io);
        io = st_io(&o, VV_STORE_WRITE, 0, 1);
        if (rc == 0)
            rc = st_run(w, &io);
        if (rc == 0)
            rc = st_do(w, &o, VV_STORE_COMMIT);
        if (rc == 0)
            reported->committed[v] = true;
        else
            (void)remove_version(w, f, v);
        st_object_fini(&o);
    }
}

static void workload(const struct vv_store_opts *opts, const char *dir)
{
    struct vv_folder *folder = NULL;
    struct vv_files *f = NULL;
    struct vv_store *w = NULL, *r = NULL;
    char err[256];
    if (vv_folder_new(dir, opts, err, sizeof(err), &folder) < 0)
        return;
    if (vv_files_open(folder, "h", 0, NULL, err, sizeof(err), &f) < 0)
        goto out;
    T_OK(vv_folder_store(folder, &w));
    T_OK(vv_folder_store(folder, &r));
    put_versions(w, f);
    for (uint64_t v = 0; v < VERSIONS; v++) {
        int rc = st_check_version(r, f, v, 0, SIZE, ST_PAGE); /* checks the bytes on success */
        T_CHECK(rc != 0 || reported->committed[v] || !reported->removed[v]);
    }
    if (reported->committed[1])
        (void)remove_version(r, f, 1);
    w->ops->close(w);
    r->ops->close(r);
out:
    vv_files_close(f);
    vv_folder_free(folder);
}

static int see(void *user, const struct vv_files_entry *e)
{
    T_CHECK(e->version < VERSIONS && e->generation == 0 && e->size == SIZE);
    ((bool *)user)[e->version] = true;
    return 0;
}

static int see_damage(void *user, const struct vv_files_damage *d)
{
    (void)user;
    t_note("version %llu: %s", (unsigned long long)d->version, d->what);
    return d->status;
}

static void no_temporaries(const char *dir)
{
    DIR *d = opendir(st_path(dir, "h"));
    T_CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        T_CHECK(!strstr(e->d_name, ".tmp") || strncmp(e->d_name, "index", 5) == 0);
    closedir(d);
}

static void check_aftermath(const struct vv_store_opts *opts, const char *dir)
{
    struct st_tier t = {.opts = *opts};
    t.opts.os = vv_os_posix();
    bool there[VERSIONS] = {false};
    st_tier_open(&t, dir);
    struct vv_files *f = st_files_open(&t, "h");
    T_OK(vv_files_list_damaged(f, see_damage, NULL));
    T_OK(vv_files_list(f, see, there));
    for (uint64_t v = 0; v < VERSIONS; v++) {
        if (reported->removed[v])
            T_CHECK(!there[v]);
        else if (reported->committed[v] && !reported->removing[v])
            T_CHECK(there[v]);
        if (there[v])
            T_OK(st_check_version(t.reader, f, v, 0, SIZE, ST_PAGE));
    }
    vv_files_close(f);
    st_tier_close(&t);
    no_temporaries(dir);
}

static struct vv_store_opts options(struct fault_os *fault)
{
    struct vv_store_opts opts;
    vv_store_opts_init(&opts);
    fault_os_init(fault);
    opts.os = &fault->os;
    opts.page_bytes = ST_PAGE;
    opts.backend = VV_AIO_THREADS;
    opts.mode = VV_STORE_BUFFERED;
    opts.max_open = 2;
    opts.depth = 4;
    return opts;
}

static void sweep(enum fault_mode mode)
{
    long at = 1;
    for (bool hit = true; hit; at++) {
        struct fault_os fault;
        struct vv_store_opts opts = options(&fault);
        const char *dir = t_tmpdir();
        fault.mode = mode;
        fault.at = at;
        fault.err = at % 2 == 0 ? ENOSPC : EIO;
        memset(reported, 0, sizeof(*reported));
        workload(&opts, dir);
        T_EQ(atomic_load(&fault.descriptors), 0);
        hit = atomic_load(&fault.count) >= at;
        check_aftermath(&opts, dir);
    }
    t_note("%ld system calls failed in turn", at - 2);
    T_CHECK(reported->committed[0] && reported->removed[1] && reported->committed[2]);
    T_CHECK(at > 40);
}

static void failing_once(void)
{
    sweep(FAULT_ONCE);
}

static void failing_for_ever(void)
{
    sweep(FAULT_FOREVER);
}

static void killed(void)
{
    long at = 1;
    for (bool hit = true; hit; at++) {
        const char *dir = t_tmpdir();
        struct fault_os fault;
        struct vv_store_opts opts = options(&fault);
        memset(reported, 0, sizeof(*reported));
        fault.mode = FAULT_KILL;
        fault.at = at;
        pid_t pid = fork();
        T_CHECK(pid >= 0);
        if (pid == 0) {
            workload(&opts, dir);
            _exit(0);
        }
        int status;
        T_EQ(waitpid(pid, &status, 0), pid);
        hit = WIFSIGNALED(status);
        T_CHECK(hit ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
        check_aftermath(&opts, dir);
    }
    t_note("killed before each of %ld system calls", at - 2);
    T_CHECK(at > 40);
}

int main(void)
{
    reported =
        mmap(NULL, sizeof(*reported), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    T_CHECK(reported != MAP_FAILED);
    T_RUN(failing_once);
    T_RUN(failing_for_ever);
    T_RUN(killed);
    return t_done();
}
