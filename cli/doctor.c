/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`: the libraries of the build, the properties of the machine, the features that are off because
 * something is missing, and how to get them. It changes nothing: it only makes a file without a name in the
 * folder, to try O_DIRECT.
 *
 * Each finding is one row of a list that is printed as text or as JSON, so that the two cannot differ.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/config.h"
#include "base/topo.h"
#include "build_info.h"
#include "ckpt/ckpt_options.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "dataset/cached_settings.h"
#include "device/cuda/cuda.h"
#include "net/net.h"
#include "s3/s3.h"
#include "stats/stats_page.h"
#include "store/aio/gds.h"

enum status { FOUND, MISSING, WARNING, INFO };

static const char *const status_names[] = {"found", "missing", "warning", "info"};

struct finding {
    const char *name;
    enum status status;
    char detail[256];
    const char *effect;         /* the feature that is off, or NULL */
    const char *debian, *spack; /* how to get it, or NULL */
};

#define FINDINGS_MAX 128

struct doctor {
    bool json;
    struct finding list[FINDINGS_MAX];
    size_t count;
    const char *folder;
};

static VV_PRINTF(4, 5) struct finding *add(struct doctor *d, const char *name, enum status status,
                                           const char *fmt, ...)
{
    /* If there are more findings than rows, the last row is overwritten. */
    struct finding *f = &d->list[d->count < FINDINGS_MAX ? d->count++ : FINDINGS_MAX - 1];
    va_list ap;

    *f = (struct finding){.name = name, .status = status};
    va_start(ap, fmt);
    vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
    va_end(ap);
    return f;
}

static void remedy(struct finding *f, const char *effect, const char *debian, const char *spack)
{
    f->effect = effect;
    f->debian = debian;
    f->spack = spack;
}

static void look_at_build(struct doctor *d)
{
    add(d, "varve", INFO, "version %s, %s build by %s%s%s%s", VV_VERSION, VV_BUILD_TYPE,
        VV_BUILD_COMPILER, VV_BUILD_SANITIZE[0] ? ", sanitizers " : "", VV_BUILD_SANITIZE,
        strcmp(VV_BUILD_PORTABLE, "ON") == 0 ? ", portable" : "");
    add(d, "inih", FOUND, "built in");
    add(d, "xxHash", FOUND, "built in");
    if (VV_BUILD_LIBURING)
        add(d, "liburing", FOUND, "built in");
    else
        remedy(add(d, "liburing", MISSING, "not found when this was built"),
               "disk I/O uses a pool of threads instead of io_uring", "liburing-dev", "liburing");
    if (VV_BUILD_HWLOC)
        add(d, "hwloc", FOUND, "built in");
    else if (strcmp(VV_BUILD_PORTABLE, "ON") == 0)
        add(d, "hwloc", MISSING, "left out of this portable build")->effect =
            "copy threads are counted by hardware threads instead of cores";
    else
        remedy(add(d, "hwloc", MISSING, "not found when this was built"),
               "copy threads are counted by hardware threads instead of cores", "libhwloc-dev",
               "hwloc");
    if (VV_BUILD_ISAL)
        add(d, "ISA-L", FOUND, "built in");
    else
        remedy(add(d, "ISA-L", MISSING, "not found when this was built"),
               "of the erasure codes only xor works", "libisal-dev", "isa-l");
}

static void look_at_lab(struct doctor *d)
{
    char path[4096];

    if (cli_find_lab(path, sizeof(path)))
        add(d, "varve-lab", FOUND, "%.240s", path);
    else
        add(d, "varve-lab", MISSING, "not beside varve, nor in " VV_LIBEXEC_FROM_BIN " from there")
            ->effect = "'varve model', 'bench', 'sim' and 'ring' do not run";
}

/* The libraries on top of libvarve.so. A build has each of them if it found what that library needs: an MPI, a Fortran
 * compiler, or PETSc. */
static void look_at_libraries(struct doctor *d)
{
    if (VV_BUILD_MPI)
        add(d, "MPI", FOUND, "libvarve-mpi.so was built: varve/mpi.h, VELOC_Init");
    else
        remedy(add(d, "MPI", MISSING, "not found when this was built"),
               "no libvarve-mpi.so, and of VELOC's interface VELOC_Init_single alone",
               "libopenmpi-dev", "openmpi");
    if (VV_BUILD_FORTRAN)
        add(d, "Fortran", FOUND,
            VV_BUILD_FORTRAN_MPI
                ? "libvarve-fortran.so and libvarve-fortran-mpi.so were built: the modules varve "
                  "and varve_mpi"
                : "libvarve-fortran.so was built: the module varve");
    else
        remedy(add(d, "Fortran", MISSING,
                   "no compiler that suits the C compiler's when this was built"),
               "no module file; share/varve/fortran has its sources", "gfortran",
               "gcc languages=fortran");
    if (VV_BUILD_PETSC)
        add(d, "PETSc", FOUND, "libvarve-petsc.so was built: -ts_trajectory_type varve");
    else
        remedy(add(d, "PETSc", MISSING, "not found when this was built"),
               "no libvarve-petsc.so, which keeps PETSc's adjoint trajectories", "petsc-dev",
               "petsc");
}

/* The build needs its headers, and the machine its library. */
static void look_at_ucx(struct doctor *d)
{
    const char *effect = "nodes of the dataset cache talk over TCP alone";
    char err[192];

    if (!VV_BUILD_UCX)
        remedy(add(d, "UCX", MISSING, "its headers were not found when this was built"), effect,
               "libucx-dev", "ucx");
    else if (vv_net_transport_check(VV_NET_UCX, err, sizeof(err)) != 0)
        remedy(add(d, "UCX", MISSING, "%s", err), effect, "libucx0", "ucx");
    else
        add(d, "UCX", FOUND, "libucp.so.0 can be used between nodes of the dataset cache");
}

/* the same */
static void look_at_libcurl(struct doctor *d)
{
    const char *effect = "no copies in object stores (remote = s3://...)";
    char text[192];

    if (vv_s3_available(text, sizeof(text)))
        add(d, "libcurl", FOUND, "%s: copies can go to object stores (S3)", text);
    else if (VV_BUILD_LIBCURL)
        remedy(add(d, "libcurl", MISSING, "%s", text), effect, "libcurl4", "curl");
    else
        remedy(add(d, "libcurl", MISSING, "its headers were not found when this was built"), effect,
               "libcurl4-openssl-dev", "curl");
}

static void look_at_uring(struct doctor *d)
{
    struct io_uring_params params = {0};
    long fd = syscall(__NR_io_uring_setup, 1, &params);

    if (fd >= 0) {
        close((int)fd);
        add(d, "io_uring", FOUND, "the kernel allows it");
        return;
    }
    add(d, "io_uring", MISSING, "the kernel refuses it: %s", strerror(errno))->effect =
        errno == ENOSYS
            ? "disk I/O uses a pool of threads; a kernel of 5.6 or newer has io_uring"
            : "disk I/O uses a pool of threads; see the sysctl kernel.io_uring_disabled "
              "and the container's seccomp profile";
}

static void look_at_gpus(struct doctor *d)
{
    enum { GPUS_MAX = 16 };
    struct vv_device_cuda_gpu gpu[GPUS_MAX];
    struct vv_device_cuda_report report;
    char err[224] = "", size[VV_BYTES_TEXT];
    int rc = vv_device_cuda_list(NULL, err, sizeof(err), gpu, GPUS_MAX, &report);

    if (rc) {
        /* A driver that is there and cannot be used is a warning; a missing driver is not. */
        const char *name;
        bool none = rc == -ENODEV && vv_device_cuda_open_code(&name) == 0;

        remedy(add(d, "libcuda.so.1", none ? MISSING : WARNING, "%s", err),
               "'device = cuda' fails, 'auto' is none; 'device = host' emulates one",
               none ? "libcuda1" : NULL, NULL);
        return;
    }
    add(d, "libcuda.so.1", FOUND, "the driver has CUDA %d.%d; %d GPU%s",
        report.driver_version / 1000, report.driver_version % 1000 / 10, report.count,
        report.count == 1 ? "" : "s");
    for (int i = 0; i < report.count && i < GPUS_MAX; i++)
        add(d, "GPU", INFO, "%d: %s, %s, PCI %s, compute capability %d.%d", i, gpu[i].name,
            vv_bytes_human(gpu[i].memory_bytes, size, sizeof(size)), gpu[i].pci_bus_id,
            gpu[i].capability_major, gpu[i].capability_minor);
    add(d, "device = auto", INFO,
        "a GPU in programs that use CUDA before they open a context, none in others");
}

static void look_at_kernels(struct doctor *d)
{
    if (VV_BUILD_NVCC)
        add(d, "GPU kernels", FOUND, "built in");
    else
        remedy(add(d, "GPU kernels", MISSING, "no nvcc when this was built"),
               "scattered copies within a GPU go one by one through the driver, and 'bench shot "
               "--device cuda' and 'bench paper' cannot check what they restore",
               "nvidia-cuda-toolkit", "cuda");
}

static void look_at_gds(struct doctor *d)
{
    char why[256] = "";

    if (vv_gds_find(NULL, why, sizeof(why)) == 0)
        add(d, VV_GDS_LIBRARY, FOUND,
            "GPUDirect Storage; 'varve probe' tells whether it is faster");
    else
        remedy(add(d, VV_GDS_LIBRARY, MISSING, "%s", why),
               "no GPUDirect Storage: 'gds = on' is refused", "libcufile0", NULL);
}

/* Writes a block past the page cache. Returns 0 or a negative errno. */
static int try_direct(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600), rc = 0;
    char path[4096];
    void *block;

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        /* This file system has no files without a name. */
        snprintf(path, sizeof(path), "%s/.varve-doctor.%ld", folder, (long)getpid());
        fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
        if (fd >= 0 || errno == EINVAL) {
            rc = fd < 0 ? -errno : 0;
            unlink(path); /* a refused O_DIRECT may leave the file behind */
            errno = -rc;
        }
    }
    if (fd < 0)
        return -errno;
    if (posix_memalign(&block, 4096, 4096) != 0) {
        close(fd);
        return -ENOMEM;
    }
    memset(block, 0, 4096);
    if (pwrite(fd, block, 4096, 0) != 4096)
        rc = errno ? -errno : -EIO;
    free(block);
    close(fd);
    return rc;
}

static void look_at_folder(struct doctor *d)
{
    int rc = try_direct(d->folder);

    if (rc == 0)
        add(d, "O_DIRECT", FOUND, "works in %.200s", d->folder);
    else if (rc == -EINVAL || rc == -EOPNOTSUPP)
        add(d, "O_DIRECT", MISSING, "the file system of %.200s refuses it", d->folder)->effect =
            "'local_io = auto' is buffered there, and 'direct' fails";
    else
        add(d, "O_DIRECT", WARNING, "cannot write in %.180s: %s", d->folder, strerror(-rc));
}

/* Makes a page of statistics, as a context would. */
static void look_at_stats(struct doctor *d)
{
    const char *setting = getenv("VARVE_STATS");
    const char *folder = setting && strchr(setting, '/') ? setting : NULL;
    struct vv_stats_header about = {0};
    struct vv_stats_writer *w = NULL;

    if (setting && strcmp(setting, "off") == 0) {
        add(d, "statistics", INFO, "VARVE_STATS=off: `varve top` will not see processes");
        return;
    }
    int rc = vv_stats_writer_open(folder, &about, &w);
    if (rc == 0) {
        const char *path = vv_stats_writer_path(w);
        add(d, "statistics", FOUND, "processes publish theirs in %.*s",
            (int)(strrchr(path, '/') - path), path);
    } else {
        add(d, "statistics", MISSING, "no page can be made in %s: %s",
            folder ? folder : "/dev/shm or $XDG_RUNTIME_DIR", strerror(-rc))
            ->effect = "`varve top` will not see processes; 'stats' can name another folder";
    }
    vv_stats_writer_close(w);
}

static void look_at_helper_cores(struct doctor *d)
{
    char text[256] = "", err[200];
    bool shared = true;
    int rc = vv_ckpt_helper_cores(text, sizeof(text), &shared);
    struct vv_config cfg;
    struct finding *f;

    /* Settings that cannot be read are a finding of their own. */
    if (rc && vv_config_load(&cfg, err, sizeof(err)) != 0)
        return;
    f = add(d, "helper cores", rc ? WARNING : INFO, "%s", text);

    if (rc == 0 && shared)
        f->effect = "copies, checksums, I/O and making memory ready take their time from it; "
                    "'helper_cores' can name cores for them, and 'varve top' shows what they take";
}

static void look_at_machine(struct doctor *d)
{
    long pages = sysconf(_SC_PHYS_PAGES), free_pages = sysconf(_SC_AVPHYS_PAGES);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];
    struct rlimit limit;
    struct vv_topo topo;

    vv_topo_get(&topo);
    add(d, "cores", INFO,
        "%u, with %u hardware threads usable by this process and %u memory node%s", topo.cores,
        topo.threads, topo.nodes, topo.nodes == 1 ? "" : "s");
    look_at_helper_cores(d);
    if (pages > 0 && free_pages >= 0)
        add(d, "memory", INFO, "%s, %s of it free",
            vv_bytes_human((uint64_t)pages * page, a, sizeof(a)),
            vv_bytes_human((uint64_t)free_pages * page, b, sizeof(b)));
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        add(d, "locked memory", FOUND, "no limit");
    else
        add(d, "locked memory", limit.rlim_cur < (64U << 20) ? WARNING : INFO, "limit %s",
            vv_bytes_human(limit.rlim_cur, a, sizeof(a)))
            ->effect =
            limit.rlim_cur < (64U << 20)
                ? "memory that io_uring or a device registers counts against it; raise it "
                  "with 'ulimit -l' or in limits.conf"
                : NULL;
}

/* The dataset cache has other settings. */
static bool is_of_cached(const char *text, size_t n)
{
    static const char *const more[] = {"VARVE_CACHED_CONFIG", "VARVE_PRELOAD",
                                       "VARVE_PRELOAD_PATIENCE", "VARVE_PRELOAD_ROOTS"};
    char name[VV_CONFIG_NAME];

    for (size_t i = 0; i < vv_cached_settings.count; i++) {
        vv_settings_env_name(&vv_cached_settings, &vv_cached_settings.keys[i], name, sizeof(name));
        if (strlen(name) == n && strncmp(name, text, n) == 0)
            return true;
    }
    for (size_t i = 0; i < VV_ARRAY_SIZE(more); i++)
        if (strlen(more[i]) == n && strncmp(more[i], text, n) == 0)
            return true;
    return false;
}

/* Lists each setting that is not the default, and its source. */
static void look_at_settings(struct doctor *d)
{
    const char *path = getenv(VV_CONFIG_FILE_ENV);
    struct vv_config cfg;
    char err[200] = "";

    if (vv_ckpt_check_environment(err, sizeof(err)) != 0)
        add(d, "configuration", WARNING, "%s", err)->effect = "opening a context fails";
    if (vv_config_load(&cfg, err, sizeof(err)) != 0)
        return;
    for (size_t i = 0; i < vv_config_key_count; i++) {
        const struct vv_config_key *key = &vv_config_keys[i];
        char value[VV_CONFIG_TEXT], standard[VV_CONFIG_TEXT], name[VV_CONFIG_NAME];
        const char *set = getenv(vv_config_env_name(key, name, sizeof(name)));
        struct vv_config defaults;

        vv_config_init(&defaults);
        if (vv_config_get(&cfg, key->name, value, sizeof(value)) != 0 ||
            vv_config_get(&defaults, key->name, standard, sizeof(standard)) != 0)
            continue;
        if (set && *set)
            add(d, "setting", INFO, "%s = %.150s, from %s", key->name, value, name);
        else if (strcmp(value, standard) != 0)
            add(d, "setting", INFO, "%s = %.100s, from %.100s", key->name, value, path);
    }
}

/* A variable that resembles a setting is most likely mistyped. */
static void look_at_environment(struct doctor *d)
{
    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");
        bool known = strncmp(*e, "VARVE_TEST_", 11) == 0 || strncmp(*e, "VARVE_BIN=", 10) == 0 ||
                     strncmp(*e, "VARVE_SANITIZE=", 15) == 0 ||
                     strncmp(*e, VV_CONFIG_FILE_ENV "=", sizeof(VV_CONFIG_FILE_ENV)) == 0;

        if (strncmp(*e, "VARVE_", 6) != 0)
            continue;
        for (size_t i = 0; i < vv_config_key_count && !known; i++) {
            char name[VV_CONFIG_NAME];

            vv_config_env_name(&vv_config_keys[i], name, sizeof(name));
            known = strlen(name) == n && strncmp(name, *e, n) == 0;
        }
        if (known || is_of_cached(*e, n))
            continue;
        if (strncmp(*e, "VARVE_CACHED_", 13) == 0)
            add(d, "configuration", WARNING, "%.*s is not a setting", (int)VV_MIN(n, 100), *e)
                ->effect = "the variable is ignored; varve-cached.conf(5) lists the settings";
        else
            add(d, "configuration", WARNING, "%.*s is not a setting", (int)VV_MIN(n, 100), *e)
                ->effect = "the variable is ignored; varve.conf(5) lists the settings";
    }
}

static void print_text(const struct doctor *d)
{
    bool rebuild = false;

    for (size_t i = 0; i < d->count; i++) {
        const struct finding *f = &d->list[i];

        rebuild |= f->status == MISSING && f->debian && f->spack;
        printf("%-8s %-14s %s\n", f->status == INFO ? "" : status_names[f->status], f->name,
               f->detail);
        if (f->effect)
            printf("%-23s so: %s\n", "", f->effect);
        if (f->debian)
            printf("%-23s to get it: apt install %s%s%s\n", "", f->debian,
                   f->spack ? " or spack install " : "", f->spack ? f->spack : "");
    }
    if (rebuild)
        printf("\nWhat was not found when this was built is used after it is installed and varve "
               "is built again.\n");
}

static void print_json(const struct doctor *d)
{
    struct json j = json_begin(stdout, JSON_SPACED);

    json_object(&j, NULL);
    json_text(&j, "version", VV_VERSION);
    json_array(&j, "findings");
    for (size_t i = 0; i < d->count; i++) {
        const struct finding *f = &d->list[i];

        json_gap(&j, "\n  ");
        json_object(&j, NULL);
        json_text(&j, "status", status_names[f->status]);
        json_text(&j, "name", f->name);
        json_text(&j, "detail", f->detail);
        json_text(&j, "effect", f->effect);
        json_text(&j, "debian", f->debian);
        json_text(&j, "spack", f->spack);
        json_close(&j);
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static const struct opt options[] = {
    {OPT_FLAG, .name = "json", .help = "print one JSON object",
     .at = offsetof(struct doctor, json)},
};

static const struct opts command = {
    .command = "varve doctor",
    .usage = "[--json] [FOLDER]",
    .about =
        "Prints what this build and this machine have, what is off because parts are missing,\n"
        "and how to get it. O_DIRECT is tried in FOLDER: by default the folder that VARVE_LOCAL\n"
        "names, or the current one.",
    .operands = true,
    OPT_LIST(options),
};

int cli_doctor(int argc, char **argv)
{
    static struct doctor d;
    const char *local = getenv("VARVE_LOCAL");
    int first, status = opts_parse(&command, argc, argv, &d, &first);

    if (status >= 0)
        return status;
    if (argc - first > 1) {
        fprintf(stderr, "varve doctor: several folders are given, expected one at most\n");
        return CLI_USAGE;
    }
    d.folder = first < argc ? argv[first] : local && *local ? local : ".";
    look_at_build(&d);
    look_at_lab(&d);
    look_at_uring(&d);
    look_at_gpus(&d);
    look_at_kernels(&d);
    look_at_gds(&d);
    look_at_libraries(&d);
    look_at_ucx(&d);
    look_at_libcurl(&d);
    look_at_folder(&d);
    look_at_stats(&d);
    look_at_machine(&d);
    look_at_settings(&d);
    look_at_environment(&d);
    if (d.json)
        print_json(&d);
    else
        print_text(&d);
    return CLI_OK;
}
