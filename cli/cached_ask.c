/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that ask a running daemon, and `varve cached preload`, which makes the list of files to ask for. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cached.h"
#include "cli/cli.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "dataset/order.h"

#define COMMAND  "varve cached"
#define LEFT_MAX 20    /* files that are left out, by name */
#define END_MS   90000 /* a daemon ends within a minute */

static int complain(const char *what, const char *text)
{
    fprintf(stderr, COMMAND ": %s: %s\n", what, text);
    return CLI_FAILED;
}

static int reach(const char *path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    memcpy(sun.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
        int rc = -errno;

        close(fd);
        return rc;
    }
    return fd;
}

static int print_answer(int fd)
{
    FILE *in = fdopen(fd, "r");
    char line[4096];
    bool ok = false;

    if (!in) {
        close(fd);
        return complain("answer", strerror(errno));
    }
    if (fgets(line, sizeof(line), in)) {
        ok = strcmp(line, "ok\n") == 0;
        if (!ok)
            fprintf(stderr, COMMAND ": %s",
                    strncmp(line, "error: ", 7) == 0
                        ? line + 7
                        : "the answer of the daemon cannot be read: is it of another version?\n");
        while (ok && fgets(line, sizeof(line), in))
            fputs(line, stdout);
    } else {
        fprintf(stderr, COMMAND ": the daemon ended before it answered; see its log\n");
    }
    fclose(in);
    return ok ? CLI_OK : CLI_FAILED;
}

/* A descriptor that becomes readable when the daemon has ended. -1: the kernel has none, or the daemon is in
 * another namespace of processes. */
static int process_of(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.pid <= 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, who.pid, 0);
}

/* Wait for the end: until then the folder, the socket and the port are taken, and the next daemon would be
 * refused. */
static int wait_for_end(int process)
{
    struct pollfd p = {.fd = process, .events = POLLIN};
    int rc;

    do
        rc = process >= 0 ? poll(&p, 1, END_MS) : 1;
    while (rc < 0 && errno == EINTR);
    if (rc == 1)
        return CLI_OK;
    return complain("stop", "the daemon has not ended; a second SIGTERM ends it at once");
}

int cached_ask(struct vv_cached *c, const char *line, int (*more)(FILE *f, void *arg), void *arg)
{
    char path[256], err[512] = "";
    bool ends = strcmp(line, "stop") == 0 || strncmp(line, "drain", 5) == 0;
    int fd, process, rc = vv_cached_socket(c, err, sizeof(err));
    FILE *out;

    if (rc == 0)
        rc = vv_cached_control(c, path, sizeof(path));
    if (rc < 0)
        return complain("socket", err[0] ? err : strerror(-rc));
    fd = reach(path);
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        return complain(path, "no daemon runs here; start one with 'varve cached --roots FOLDER "
                              "--cache FOLDER', or name its socket (--socket)");
    if (fd < 0)
        return complain(path, strerror(-fd));
    rc = dup(fd);
    out = rc >= 0 ? fdopen(rc, "w") : NULL;
    if (!out) {
        close(fd);
        return complain(path, strerror(errno));
    }
    fprintf(out, "%s\n", line);
    rc = more ? more(out, arg) : 0;
    fclose(out);
    shutdown(fd, SHUT_WR);
    if (rc < 0) {
        close(fd);
        return CLI_FAILED;
    }
    process = ends ? process_of(fd) : -1;
    rc = print_answer(fd);
    if (rc == CLI_OK && ends)
        rc = wait_for_end(process);
    if (process >= 0)
        close(process);
    return rc;
}

/* ---- preload ---- */

struct item {
    char *path;    /* absolute */
    int64_t bytes; /* -1: unknown */
};

struct preload {
    struct item *items;
    size_t nr, room;
    uint64_t left; /* left out by this command; the daemon prints those that it leaves out */
    bool order, here;
    bool seeded;
    uint64_t seed, epoch, epochs;
};

/* Counts a file that is left out. Prints the reason for the first few of them. */
static void leave_out(struct preload *p, const char *path, const char *why)
{
    if (p->left++ < LEFT_MAX)
        printf("%s: %s\n", path, why);
}

static int add(struct preload *p, const char *path, int64_t bytes)
{
    char *copy;

    if (p->nr == p->room) {
        size_t room = p->room ? 2 * p->room : 1024;
        struct item *more = realloc(p->items, room * sizeof(*more));

        if (!more)
            return -ENOMEM;
        p->items = more;
        p->room = room;
    }
    if (path[0] == '/') {
        copy = strdup(path);
    } else {
        char *here = getcwd(NULL, 0);

        if (!here || asprintf(&copy, "%s/%s", here, path) < 0)
            copy = NULL;
        free(here);
    }
    if (!copy)
        return -ENOMEM;
    p->items[p->nr++] = (struct item){copy, bytes};
    return 0;
}

static struct preload *walking;

static int walk_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_F && S_ISREG(st->st_mode))
        return add(walking, path, st->st_size);
    if (type == FTW_DNR || type == FTW_NS)
        leave_out(walking, path, type == FTW_DNR ? "a folder that cannot be read" : "no access");
    else if (type == FTW_SL)
        leave_out(walking, path, "a symbolic link");
    else if (type != FTW_D && type != FTW_DP)
        leave_out(walking, path, "not a regular file");
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->path, ((const struct item *)b)->path);
}

static int add_list(struct preload *p, const char *name)
{
    FILE *f = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int rc = f ? 0 : -errno;

    while (rc == 0 && (n = getline(&line, &room, f)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        rc = line[0] ? add(p, line, -1) : 0;
    }
    free(line);
    if (f && f != stdin)
        fclose(f);
    if (rc < 0)
        complain(name, strerror(-rc));
    return rc;
}

static int add_path(struct preload *p, const char *path)
{
    size_t from = p->nr;
    struct stat st;
    int rc;

    if (strcmp(path, "-") == 0)
        return add_list(p, path);
    if (stat(path, &st) < 0)
        rc = -errno;
    else if (S_ISDIR(st.st_mode)) {
        walking = p;
        rc = nftw(path, walk_one, 64, FTW_PHYS);
        if (p->nr > from)
            qsort(p->items + from, p->nr - from, sizeof(*p->items), by_name);
        rc = rc == -1 ? -errno : rc;
    } else
        rc = add(p, path, S_ISREG(st.st_mode) ? st.st_size : -1);
    if (rc < 0)
        complain(path, strerror(-rc));
    return rc;
}

/* Checks that files which were only named exist. The files of an order are not checked: an order is given while
 * the job reads. */
static void look_at_named(struct preload *p)
{
    size_t nr = 0;

    for (size_t i = 0; i < p->nr; i++) {
        struct item *item = &p->items[i];
        struct stat st;

        if (item->bytes < 0 && stat(item->path, &st) < 0)
            leave_out(p, item->path, strerror(errno));
        else if (item->bytes < 0 && !S_ISREG(st.st_mode))
            leave_out(p, item->path, "not a regular file");
        else {
            item->bytes = item->bytes < 0 ? st.st_size : item->bytes;
            p->items[nr++] = *item;
            continue;
        }
        free(item->path);
    }
    p->nr = nr;
}

static void send_item(FILE *f, const struct item *item)
{
    if (item->bytes >= 0)
        fprintf(f, "%" PRId64 " ", item->bytes);
    fprintf(f, "%s\n", item->path);
}

static int send_paths(FILE *f, void *arg)
{
    const struct preload *p = arg;
    uint64_t *order = calloc(p->nr ? p->nr : 1, sizeof(*order));
    int rc = order ? 0 : -ENOMEM;

    for (uint64_t e = 0; rc == 0 && p->seeded && e < p->epochs; e++) {
        rc = vv_order_torch(p->seed + p->epoch + e, p->nr, order);
        for (size_t i = 0; i < p->nr && rc == 0; i++)
            send_item(f, &p->items[order[i]]);
    }
    for (size_t i = 0; rc == 0 && !p->seeded && i < p->nr; i++)
        send_item(f, &p->items[i]);
    free(order);
    if (rc < 0)
        complain("preload", strerror(-rc));
    return rc;
}

static int set_list(const char *value, void *arg)
{
    return add_list(arg, value) < 0 ? CLI_FAILED : 0;
}

#define AT(field) offsetof(struct preload, field)

static const struct opt options[] = {
    {OPT_SET, .name = "list", .arg = "FILE", .set = set_list,
     .help = "files from a list, one in each line"},
    {OPT_FLAG, .name = "order", .at = AT(order),
     .help = "they will be read in the order given, from now on: the first are\n"
             "brought first, and what is read last makes room first"},
    {OPT_FLAG, .name = "here", .at = AT(here),
     .help = "the same for programs of this node alone: files of other nodes are\n"
             "brought here, some ahead of what is read"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(seed),
     .given = OPT_GIVEN(struct preload, seeded),
     .help = "they will be read in the order that PyTorch's DistributedSampler\n"
             "draws with this seed"},
    {OPT_U64, .name = "epoch", .arg = "N", .at = AT(epoch), .help = "from this epoch on (0)"},
    {OPT_U64, .name = "epochs", .arg = "N", .at = AT(epochs), .least = 1,
     .help = "so many epochs (1)"},
};

static const struct opts command = {
    .command = COMMAND " preload",
    .usage = "[OPTION]... PATH...",
    .about =
        "Has the nodes of the job bring files before they are read. PATH is a file, a folder,\n"
        "which stands for all of its files in the order of their names, or - for a list of files "
        "on\n"
        "standard input.",
    .tail = "Settings of the daemon are taken, too, --socket FILE above all: '" COMMAND
            " --help' lists them.",
    .operands = true,
    OPT_LIST(options),
};

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct preload *p)
{
    int first, status = opts_parse(&command, argc, argv, p, &first);

    if (status >= 0)
        return status;
    p->order = p->order || p->seeded || p->here;
    for (int i = first; i < argc; i++)
        if (add_path(p, argv[i]) < 0)
            return CLI_FAILED;
    if (!p->order)
        look_at_named(p);
    if (p->left > LEFT_MAX)
        printf("and %" PRIu64 " more that are not brought\n", p->left - LEFT_MAX);
    if (p->nr == 0 && p->left > 0)
        return complain("preload", "none of these files can be cached");
    if (p->nr == 0) {
        fprintf(stderr, COMMAND
                " preload: no files are given: name files, folders or a list; see --help\n");
        return CLI_USAGE;
    }
    return -1;
}

int cached_preload(struct vv_cached *c, int argc, char **argv)
{
    struct preload p = {.epochs = 1};
    int status = parse(argc, argv, &p);

    if (status < 0)
        status = cached_ask(c,
                            p.here    ? "bring here"
                            : p.order ? "bring order"
                                      : "bring",
                            send_paths, &p);
    for (size_t i = 0; i < p.nr; i++)
        free(p.items[i].path);
    free(p.items);
    return status;
}
