/* SPDX-License-Identifier: Apache-2.0 */
/* A cache folder that does not belong to this user alone, or has files of another user: refused, or dropped, with a
 * text that gives the reason. Cases with a second user run as root only. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/ours.h"
#include "unit/dataset/ds.h"

#define OTHER 65534 /* number of another user, and of another group */

static char base[512];

static const char *in(const char *name)
{
    static char path[4][1024];
    static unsigned next;
    char *p = path[next++ % 4];

    snprintf(p, sizeof(path[0]), "%s/%s", base, name);
    return p;
}

/* Opening has to be refused with a text that contains both parts; NULL: it has to succeed. */
static void expect(const char *folder, const char *what, const char *where)
{
    struct vv_dataset_opts opts = {.capacity = 64 * DS_KIB};
    struct vv_dataset *d = NULL;
    char err[1024] = "";
    int rc = vv_dataset_open(folder, &opts, err, sizeof(err), &d);

    if (!what) {
        if (rc < 0)
            t_fail(__FILE__, __LINE__, "%s: %s", folder, err);
        vv_dataset_close(d);
        return;
    }
    T_CHECK(rc < 0);
    if (!strstr(err, what) || !strstr(err, where))
        t_fail(__FILE__, __LINE__, "%s: '%s' has no '%s' or no '%s'", folder, err, what, where);
}

static void fresh(void)
{
    snprintf(base, sizeof(base), "%s", t_tmpdir());
}

static void folder_mode(void)
{
    fresh();
    T_EQ(mkdir(in("c"), 0700), 0);
    T_EQ(chmod(in("c"), 0777), 0);
    expect(in("c"), "other users can write to folder", "chmod go-w");
    T_EQ(chmod(in("c"), 01777), 0);
    expect(in("c"), "other users can write to folder", "chmod go-w");
    T_EQ(chmod(in("c"), 0770), 0);
    expect(in("c"), "other users can write to folder", "chmod go-w");
    T_EQ(chmod(in("c"), 0755), 0);
    expect(in("c"), NULL, NULL);
    expect(in("new"), NULL, NULL);
    expect(in("new/"), NULL, NULL);
}

static void parent_mode(void)
{
    fresh();
    T_EQ(mkdir(in("p"), 0700), 0);
    T_EQ(mkdir(in("p/q"), 0700), 0);
    T_EQ(chmod(in("p"), 0777), 0);
    expect(in("p/c"), "is not safe", in("p "));
    expect(in("p/q/c"), "other users can write to", in("p "));
    T_CHECK(access(in("p/c"), F_OK) < 0 && access(in("p/q/c"), F_OK) < 0);
    T_EQ(chmod(in("p"), 01777), 0);
    expect(in("p/c"), NULL, NULL);
    expect(in("p/q/c"), NULL, NULL);
    /* A group may write only if it is root's. */
    T_EQ(mkdir(in("g"), 0700), 0);
    T_EQ(chmod(in("g"), 0770), 0);
    if (geteuid() == 0) {
        expect(in("g/c"), NULL, NULL);
        T_EQ(chown(in("g"), 0, OTHER), 0);
    }
    if (geteuid() == 0 || getegid() != 0)
        expect(in("g/d"), "other users can write to", in("g "));
    T_EQ(chmod(in("g"), 0750), 0);
    expect(in("g/d"), NULL, NULL);
}

static void links(void)
{
    fresh();
    T_EQ(mkdir(in("real"), 0700), 0);
    T_EQ(mkdir(in("open"), 0700), 0);
    T_EQ(chmod(in("open"), 0777), 0);
    T_EQ(mkdir(in("open/sub"), 0700), 0);
    T_EQ(symlink("real", in("link")), 0);
    T_EQ(symlink(in("open/sub"), in("away")), 0);
    T_EQ(symlink("away", in("twice")), 0);
    T_EQ(symlink("loop", in("loop")), 0);
    expect(in("link"), "is a link", "name the folder itself");
    expect(in("link/c"), NULL, NULL);
    /* The folders behind a link count, not its spelling. */
    expect(in("away/c"), "other users can write to", in("open "));
    expect(in("twice/c"), "other users can write to", in("open "));
    expect(in("loop/c"), "too many links", "name the folder");
    T_CHECK(access(in("open/sub/c"), F_OK) < 0);
}

/* A link in place of a file of the cache is not followed: its target stays unchanged. */
static void links_inside(void)
{
    struct vv_dataset *d;
    char file[600], line[32] = "";
    FILE *f;

    fresh();
    d = ds_open(in("c"), 64 * DS_KIB, NULL);
    T_OK(ds_put(d, "/a", 1, 3000));
    T_OK(ds_put(d, "/b", 1, 5000));
    vv_dataset_close(d);
    f = fopen(in("precious"), "w");
    T_CHECK(f && fputs("precious", f) >= 0 && fclose(f) == 0);
    /* A content file: dropped as damaged. */
    snprintf(file, sizeof(file), "%s", ds_file_of(in("c"), 3000));
    T_EQ(rename(file, in("copy")), 0);
    T_EQ(symlink(in("copy"), file), 0);
    d = ds_open(in("c"), 64 * DS_KIB, NULL);
    T_ERR(ds_check(d, "/a"), -EBADMSG);
    T_OK(ds_check(d, "/b"));
    T_EQ(ds_stats(d).damaged, 1);
    vv_dataset_close(d);
    T_CHECK(access(file, F_OK) < 0 && access(in("copy"), F_OK) == 0);
    /* A FIFO, which would block an open. */
    snprintf(file, sizeof(file), "%s", ds_file_of(in("c"), 5000));
    T_EQ(unlink(file), 0);
    T_EQ(mkfifo(file, 0600), 0);
    d = ds_open(in("c"), 64 * DS_KIB, NULL);
    T_ERR(ds_check(d, "/b"), -EBADMSG);
    vv_dataset_close(d);
    /* The lock, the manifest, and the new manifest that is being written. */
    T_EQ(unlink(in("c/lock")), 0);
    T_EQ(symlink(in("precious"), in("c/lock")), 0);
    expect(in("c"), "lock is a link", "remove it");
    T_EQ(unlink(in("c/lock")), 0);
    T_EQ(unlink(in("c/manifest")), 0);
    T_EQ(symlink(in("precious"), in("c/manifest")), 0);
    T_EQ(symlink(in("precious"), in("c/manifest.tmp")), 0);
    d = ds_open(in("c"), 64 * DS_KIB, NULL);
    T_OK(ds_put(d, "/c", 1, 3000));
    vv_dataset_close(d);
    f = fopen(in("precious"), "r");
    T_CHECK(f && fgets(line, sizeof(line), f));
    T_STREQ(line, "precious");
    fclose(f);
    d = ds_open(in("c"), 64 * DS_KIB, NULL);
    T_OK(ds_check(d, "/c"));
    vv_dataset_close(d);
}

static void of_others(void)
{
    struct vv_dataset *d;

    if (geteuid() != 0) {
        t_note("not root: files of another user cannot be made here");
        return;
    }
    fresh();
    T_EQ(mkdir(in("c"), 0700), 0);
    T_EQ(chown(in("c"), OTHER, OTHER), 0);
    expect(in("c"), "belongs to user 65534, expected 0", "remove it");
    T_EQ(mkdir(in("p"), 0755), 0);
    T_EQ(chown(in("p"), OTHER, OTHER), 0);
    expect(in("p/c"), "belongs to user 65534", "choose a folder elsewhere");
    /* In a folder like /tmp any user can leave a folder or a link. */
    T_EQ(mkdir(in("t"), 0700), 0);
    T_EQ(chmod(in("t"), 01777), 0);
    T_EQ(mkdir(in("t/left"), 0700), 0);
    T_EQ(chown(in("t/left"), OTHER, OTHER), 0);
    expect(in("t/left"), "belongs to user 65534", "remove it");
    expect(in("t/left/c"), "belongs to user 65534", in("t/left"));
    T_EQ(mkdir(in("own"), 0700), 0);
    T_EQ(symlink(in("own"), in("t/link")), 0);
    T_EQ(lchown(in("t/link"), OTHER, OTHER), 0);
    expect(in("t/link/c"), "belongs to user 65534", in("t/link"));
    /* Files in a folder that others could write to earlier. */
    d = ds_open(in("f"), 64 * DS_KIB, NULL);
    T_OK(ds_put(d, "/a", 1, 3000));
    T_OK(ds_put(d, "/b", 1, 5000));
    vv_dataset_close(d);
    T_EQ(chown(ds_file_of(in("f"), 3000), OTHER, OTHER), 0);
    T_EQ(chmod(ds_file_of(in("f"), 5000), 0666), 0);
    d = ds_open(in("f"), 64 * DS_KIB, NULL);
    T_ERR(ds_check(d, "/a"), -EBADMSG);
    T_ERR(ds_check(d, "/b"), -EBADMSG);
    T_EQ(ds_stats(d).damaged, 2);
    T_OK(ds_put(d, "/a", 1, 3000));
    vv_dataset_close(d);
    T_EQ(chown(in("f/manifest"), OTHER, OTHER), 0);
    d = ds_open(in("f"), 64 * DS_KIB, NULL);
    T_EQ(ds_stats(d).files, 0);
    vv_dataset_close(d);
    T_EQ(chown(in("f/lock"), OTHER, OTHER), 0);
    expect(in("f"), "lock belongs to user 65534, expected 0", "remove it");
}

int main(void)
{
    T_RUN(folder_mode);
    T_RUN(parent_mode);
    T_RUN(links);
    T_RUN(links_inside);
    T_RUN(of_others);
    return t_done();
}
