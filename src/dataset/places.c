/* SPDX-License-Identifier: Apache-2.0 */
/* An order of use. A file that is wanted several times has a list of places. */
#include "dataset/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"

/* The places at which a file is wanted, the next one first. At most one place is kept that the order has passed without
 * a request for the file: the reader may be a little behind. */
struct file {
    struct vvi_path path;
    uint64_t *place;
    size_t at, nr, room;
};

static void free_file(struct vvi_path *e)
{
    free(((struct file *)e)->place);
    free(e);
}

void vvi_places_fini(struct vvi_places *p)
{
    vvi_paths_fini(&p->paths, free_file);
}

uint64_t vvi_places_next(const struct vvi_places *p, const char *path, uint64_t otherwise)
{
    const struct file *f = vvi_paths_find(&p->paths, path);

    for (size_t i = f ? f->at : 0; f && i < f->nr; i++)
        if (f->place[i] >= p->now)
            return f->place[i];
    return otherwise;
}

static void skip_passed(const struct vvi_places *p, struct file *f)
{
    while (f->nr - f->at > 1 && f->place[f->at + 1] < p->now)
        f->at++;
}

int vvi_places_add(struct vvi_places *p, const char *path, uint64_t place)
{
    struct file *f = vvi_paths_find(&p->paths, path);

    if (!f) {
        f = calloc(1, sizeof(*f));
        if (!f || vvi_paths_add(&p->paths, path, &f->path) < 0) {
            free(f);
            return -ENOMEM;
        }
    }
    skip_passed(p, f);
    if (f->nr == f->room && f->at > 0) {
        memmove(f->place, f->place + f->at, (f->nr - f->at) * sizeof(*f->place));
        f->nr -= f->at;
        f->at = 0;
    }
    if (f->nr == f->room) {
        size_t room = VV_MAX(2 * f->room, (size_t)4);
        uint64_t *more = realloc(f->place, room * sizeof(*more));

        if (!more)
            return -ENOMEM;
        f->place = more;
        f->room = room;
    }
    f->place[f->nr++] = place;
    return 0;
}

/* A use takes the first place, even if it has passed. But if the next place has passed as well, the use takes that one:
 * then the file was read once without a request. */
bool vvi_places_use(struct vvi_places *p, const char *path, uint64_t *ret_next)
{
    struct file *f = p->paths.table.n ? vvi_paths_find(&p->paths, path) : NULL;

    if (!f || f->at == f->nr)
        return false;
    skip_passed(p, f);
    p->now = VV_MAX(p->now, f->place[f->at]);
    f->at++;
    *ret_next = f->at < f->nr ? f->place[f->at] : VV_DATASET_UNKNOWN;
    if (f->at == f->nr) {
        vvi_paths_remove(&p->paths, &f->path);
        free_file(&f->path);
    }
    return true;
}
