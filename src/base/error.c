/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Texts of error numbers with a special meaning in this library. Others have the system's text. */
static const struct {
    int err;
    const char *text;
} texts[] = {
    {0, "success"},
    {EINVAL, "invalid argument or option"},
    {ENOENT, "no such version, history or file"},
    {ENOTDIR, "a folder is missing, or was removed or replaced while in use"},
    {EBADF, "the file of a version is missing: another program has removed it"},
    {EEXIST, "the version exists already"},
    {ENOMEM, "out of memory"},
    {ENOSPC, "no space left in any tier that could take the data"},
    {EFBIG, "the data can never fit the tiers as they are configured"},
    {EBUSY, "in use by another process, handle or call"},
    {EBADMSG, "the data is damaged: its checksum does not match, and no good copy is left"},
    {EIO, "input or output error"},
    {ETIMEDOUT, "the call timed out"},
    {EAGAIN, "not possible at once; try again later"},
    {ECANCELED, "cancelled"},
    {ENODEV, "no device, or the device is lost"},
    {EFAULT, "a pointer does not point to usable memory"},
    {ENOTSUP, "not supported, or not built in"},
    {EPERM, "not permitted: the handle belongs to another process"},
    {EACCES, "permission denied"},
    {ENAMETOOLONG, "the name is too long"},
    {ERANGE, "the number is too large"},
    {ENODATA, "there is no data, or less than expected"},
    {ESRCH, "the version has no such region"},
    {EDEADLK, "no progress is possible"},
    {ESHUTDOWN, "the context is being closed"},
    {EROFS, "the file system is read-only"},
    {EDQUOT, "the disk quota is used up"},
    {EMFILE, "too many open files"},
    {ENOBUFS, "a region or buffer is too small for the data"},
    {EPROTO, "the file has an unknown format or version"},
    {EOVERFLOW, "the value is too large for its type"},
};

void vv_error_clear(struct vv_error *e)
{
    *e = (struct vv_error){.tier = -1, .region = -1, .version = VV_ERROR_NO_VERSION};
}

int vv_error_set(struct vv_error *e, int err, const char *op, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return err;
    vv_error_clear(e);
    e->err = err;
    snprintf(e->op, sizeof(e->op), "%s", op);
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    return err;
}

void vv_error_where(struct vv_error *e, enum vv_error_scope scope, int tier, uint64_t version,
                    int region)
{
    if (!e)
        return;
    e->scope = scope;
    e->tier = tier;
    e->version = version;
    e->region = region;
}

void vv_error_foreign(struct vv_error *e, const char *domain, int code)
{
    if (!e)
        return;
    snprintf(e->domain, sizeof(e->domain), "%s", domain);
    e->code = code;
}

const char *vv_strerror(int err)
{
    const char *text;

    /* -err of the smallest int is not an int. */
    if (err < 0)
        err = err == INT32_MIN ? INT32_MAX : -err;
    for (size_t i = 0; i < VV_ARRAY_SIZE(texts); i++)
        if (texts[i].err == err)
            return texts[i].text;
    text = strerrordesc_np(err);
    return text ? text : "unknown error";
}
