/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/model.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double quotient(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

double vv_model_speedup(double reference_s, double kernel_s, double copy_s, double io_s)
{
    double wall_s = larger(kernel_s + copy_s, io_s);

    return wall_s > 0 ? reference_s / wall_s : 1;
}

static double rate_of(const struct vv_model_layer *l, bool reads)
{
    return reads ? l->read_bytes_per_s : l->write_bytes_per_s;
}

/* t_io of a phase, and the layer below the line that takes longest to cross. */
static double io_time(const struct vv_model *m, bool reads, int *ret_binding)
{
    double left = (double)m->record_bytes * (double)m->records - (double)m->host_bytes, most = 0;

    *ret_binding = -1;
    for (unsigned k = 0; k < m->nlayers && left > 0; k++) {
        double rate = 0;
        for (unsigned j = k; j < m->nlayers; j++)
            rate += rate_of(&m->layer[j], reads);
        double s = quotient(left, rate);
        if (s > most) {
            most = s;
            *ret_binding = (int)k;
        }
        if (m->layer[k].capacity_bytes == 0)
            break;
        left -= (double)m->layer[k].capacity_bytes;
    }
    return most;
}

static struct vv_model_phase phase(const struct vv_model *m, bool reads)
{
    double bytes = (double)m->record_bytes * (double)m->records;
    struct vv_model_phase p = {.kernel_s = reads ? m->read_kernel_s : m->write_kernel_s,
                               .copy_s = quotient(bytes, m->copy_bytes_per_s)};

    p.io_s = io_time(m, reads, &p.binding);
    p.wall_s = larger(p.kernel_s + p.copy_s, p.io_s);
    p.blocked_s = p.wall_s - p.kernel_s;
    if (p.io_s <= p.kernel_s + p.copy_s)
        p.binding = -1;
    return p;
}

static bool fits(const struct vv_model *m)
{
    double left = (double)m->record_bytes * (double)m->records - (double)m->host_bytes;

    for (unsigned k = 0; k < m->nlayers; k++) {
        if (m->layer[k].write_bytes_per_s <= 0 || m->layer[k].read_bytes_per_s <= 0)
            continue;
        if (m->layer[k].capacity_bytes == 0)
            return true;
        left -= (double)m->layer[k].capacity_bytes;
    }
    return left <= 0;
}

struct vv_model_answer vv_model_ask(const struct vv_model *m)
{
    double bytes = (double)m->record_bytes * (double)m->records;
    struct vv_model_answer a = {.fits = fits(m)};

    if (!a.fits)
        return a;
    a.write = phase(m, false);
    a.reference_s = m->write_kernel_s + quotient(bytes, m->reference.write_bytes_per_s);
    if (m->reads) {
        a.read = phase(m, true);
        a.reference_s += m->read_kernel_s + quotient(bytes, m->reference.read_bytes_per_s);
    } else {
        a.read.binding = -1;
    }
    a.wall_s = a.write.wall_s + a.read.wall_s;
    a.blocked_s = a.write.blocked_s + a.read.blocked_s;
    a.speedup = a.wall_s > 0 ? a.reference_s / a.wall_s : 1;
    a.hides = a.write.binding < 0 && a.read.binding < 0;
    return a;
}
