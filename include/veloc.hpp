/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C++ interface of VELOC, on Varve. Programs written for VELOC are compiled with this header and linked with
 * -lveloc-client, unchanged. The header is a complete wrapper of veloc.h.
 *
 *     veloc::client_t *ckpt = veloc::get_client(MPI_COMM_WORLD, "veloc.cfg");
 *     ckpt->mem_protect(0, field, count, sizeof(double));
 *     ckpt->mem_protect(1, veloc::cereal::serializer(mesh), veloc::cereal::deserializer(mesh));
 *     int v = ckpt->restart_test("state", 0);
 *     if (v > 0 && !ckpt->restart("state", v)) ...
 *     ckpt->checkpoint("state", step);
 *     delete ckpt;
 *
 * The result of a function says if it succeeded; the reason of a failure is printed to the standard error stream. One
 * thread at a time may make calls. docs/veloc.md and veloc(7) describe each call, under the name of the function in
 * veloc.h. A process has one client at a time, which owns the regions and observers. veloc/cereal.hpp,
 * veloc/boost.hpp and veloc/bitsery.hpp make serializers with those libraries.
 */
#ifndef VELOC_HPP
#define VELOC_HPP

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include <veloc.h>

namespace veloc {

class client_t {
  protected:
    using serializer_t = std::function<void(std::ostream &)>;
    using deserializer_t = std::function<bool(std::istream &)>;
    using observer_t = std::function<void(const std::string &name, int version)>;
    static const char *default_mem_group()
    {
        return "default";
    }

  public:
    client_t() = default;
    client_t(const client_t &) = delete;
    client_t &operator=(const client_t &) = delete;
    /* Ends the client as VELOC_Finalize(0) does: collective, and before MPI_Finalize. */
    virtual ~client_t() = 0;

    /* ---- content of checkpoints ---- */

    /* Declares `count` elements of `base_size` bytes, in host or device memory, as region `id` of all checkpoints, or
     * of those called `name`: a name that has regions of its own uses only these. An id in use gets the new
     * declaration, and the result is false. */
    virtual bool mem_protect(int id, void *ptr, std::size_t count, std::size_t base_size,
                             const std::string &name = default_mem_group()) = 0;
    /* The same for a region that `s` writes when a checkpoint is made, and `d` reads when one is restored. */
    virtual bool mem_protect(int id, const serializer_t &s, const deserializer_t &d,
                             const std::string &name = default_mem_group()) = 0;
    /* False: there is no such region. */
    virtual bool mem_unprotect(int id, const std::string &name = default_mem_group()) = 0;
    virtual void mem_clear(const std::string &name = default_mem_group()) = 0;
    /* Registers an observer. VELOC_OBSERVE_CKPT_END: checkpoint_end and checkpoint call it when a checkpoint has
     * succeeded, on the same thread. Each type has one observer; false: it replaced another one. */
    virtual bool register_observer(int type, const observer_t &obs) = 0;

    /* The path under which the application itself writes or reads its file; empty: VELOC_Route_file failed. */
    virtual std::string route_file(const std::string &original) = 0;
    virtual bool cleanup(const std::string &name) = 0;

    /* ---- checkpoints ---- */

    virtual bool checkpoint(const std::string &name, int version) = 0;
    virtual bool checkpoint_begin(const std::string &name, int version) = 0;
    /* mode: VELOC_CKPT_ALL, or _SOME or _REST of `ids`. */
    virtual bool checkpoint_mem(int mode, const std::set<int> &ids) = 0;
    virtual bool checkpoint_end(bool success) = 0;
    virtual bool checkpoint_wait() = 0;
    virtual bool checkpoint_finished() = 0;

    /* ---- restart ---- */

    /* The newest version, or -1. target_rank: -1 or that of this process; for versions of other ranks see
     * varve_part_open in varve/ckpt.h. */
    virtual int restart_test(const std::string &name, int version, int target_rank = -1) = 0;
    virtual bool restart(const std::string &name, int version, int target_rank = -1) = 0;
    virtual bool restart_begin(const std::string &name, int version, int target_rank = -1) = 0;
    /* Bytes of a region in the checkpoint; 0: it has no such region. */
    virtual std::size_t recover_size(int id) = 0;
    /* mode: VELOC_RECOVER_ALL, or _SOME or _REST of `ids`. */
    virtual bool recover_mem(int mode, const std::set<int> &ids) = 0;
    virtual bool restart_end(bool success) = 0;
};

inline client_t::~client_t() = default;

/* Everything below this line is internal. */
namespace detail {

/* A stream into a growing buffer. Its position can be read and, within the written part, set. */
class out_buffer : public std::streambuf {
  public:
    std::string bytes;

  protected:
    int_type overflow(int_type c) override
    {
        if (traits_type::eq_int_type(c, traits_type::eof()))
            return traits_type::not_eof(c);
        const char one = traits_type::to_char_type(c);
        return xsputn(&one, 1) == 1 ? c : traits_type::eof();
    }
    std::streamsize xsputn(const char *from, std::streamsize n) override
    {
        const std::size_t count = static_cast<std::size_t>(n);
        bytes.replace(at, (std::min)(count, bytes.size() - at), from, count);
        at += count;
        return n;
    }
    pos_type seekoff(off_type off, std::ios_base::seekdir dir, std::ios_base::openmode) override
    {
        const std::size_t base = dir == std::ios_base::beg   ? 0
                                 : dir == std::ios_base::cur ? at
                                                             : bytes.size();
        const off_type to = static_cast<off_type>(base) + off;
        if (to < 0 || to > static_cast<off_type>(bytes.size()))
            return pos_type(off_type(-1));
        at = static_cast<std::size_t>(to);
        return pos_type(to);
    }
    pos_type seekpos(pos_type pos, std::ios_base::openmode mode) override
    {
        return seekoff(off_type(pos), std::ios_base::beg, mode);
    }

  private:
    std::size_t at = 0;
};

/* A stream that reads from a buffer. */
class in_buffer : public std::streambuf {
  public:
    explicit in_buffer(std::string &bytes)
    {
        char *begin = bytes.empty() ? nullptr : &bytes[0];
        setg(begin, begin, begin + bytes.size());
    }

  protected:
    pos_type seekoff(off_type off, std::ios_base::seekdir dir, std::ios_base::openmode) override
    {
        char *base = dir == std::ios_base::beg   ? eback()
                     : dir == std::ios_base::cur ? gptr()
                                                 : egptr();
        const off_type to = (base - eback()) + off;
        if (to < 0 || to > egptr() - eback())
            return pos_type(off_type(-1));
        setg(eback(), eback() + to, egptr());
        return pos_type(to);
    }
    pos_type seekpos(pos_type pos, std::ios_base::openmode mode) override
    {
        return seekoff(off_type(pos), std::ios_base::beg, mode);
    }
};

/* Finalizes at the end of a program that did not delete its client, so that its checkpoints still reach their
 * destination. MPI may be finalized by then and is not used. */
struct life {
    bool open = false, hooked = false;
    static life &get()
    {
        static life the;
        return the;
    }
    static void end()
    {
        if (get().open)
            (void)VELOC_Finalize(0);
        get().open = false;
    }
    void begin()
    {
        open = true;
        if (!hooked)
            hooked = std::atexit(end) == 0;
    }
};

class client final : public client_t {
    struct region_t {
        void *ptr = nullptr;
        std::size_t count = 0, base_size = 0;
        serializer_t s;
        deserializer_t d;
        bool raw() const
        {
            return !s;
        }
    };
    using regions_t = std::map<int, region_t>;

    /* Declares regions to veloc.h under a checkpoint's name, for one call. */
    class declared {
        std::string name;
        std::map<int, std::string> serialized;

      public:
        explicit declared(const std::string &checkpoint) : name(checkpoint)
        {
        }
        declared(const declared &) = delete;
        declared &operator=(const declared &) = delete;
        ~declared()
        {
            (void)VELOC_Region_clear(name.c_str());
        }
        bool add(int id, const region_t &r)
        {
            return VELOC_Region_protect(id, r.ptr, r.count, r.base_size, name.c_str()) ==
                   VELOC_SUCCESS;
        }
        /* A region with its serialized bytes, or with room for that number of bytes. */
        bool add(int id, std::string &&bytes)
        {
            std::string &held = serialized[id] = std::move(bytes);
            return VELOC_Region_protect(id, held.empty() ? nullptr : &held[0], held.size(), 1,
                                        name.c_str()) == VELOC_SUCCESS;
        }
        std::map<int, std::string> &buffers()
        {
            return serialized;
        }
    };

    std::map<std::string, regions_t> groups;
    std::map<int, observer_t> observers;
    std::string name; /* of the checkpoint or restart that has begun */
    int version = 0, rank = 0;
    bool group = false;

    static void say(const std::string &what)
    {
        std::cerr << "veloc: " << what << std::endl;
    }

    static bool chosen(int mode, const std::set<int> &ids, int id)
    {
        return mode == VELOC_CKPT_ALL || (ids.count(id) != 0) == (mode == VELOC_CKPT_SOME);
    }
    const regions_t &regions_of(const std::string &checkpoint)
    {
        const regions_t &own = groups[checkpoint];
        return own.empty() ? groups[default_mem_group()] : own;
    }
    bool declare_all(declared &now, int mode, const std::set<int> &ids,
                     const std::string &checkpoint)
    {
        for (const auto &e : regions_of(checkpoint)) {
            if (!chosen(mode, ids, e.first))
                continue;
            bool ok;
            if (e.second.raw()) {
                ok = now.add(e.first, e.second);
            } else {
                out_buffer buffer;
                std::ostream out(&buffer);
                e.second.s(out);
                if (!out) {
                    say("region " + std::to_string(e.first) + " could not be serialized");
                    return false;
                }
                ok = now.add(e.first, std::move(buffer.bytes));
            }
            if (!ok)
                return false;
        }
        return true;
    }
    bool ended(const std::string &checkpoint, int v)
    {
        auto it = observers.find(VELOC_OBSERVE_CKPT_END);
        if (it != observers.end() && it->second)
            it->second(checkpoint, v);
        return true;
    }
    bool own_rank(int target) const
    {
        if (target < 0 || (!group && target == rank))
            return true;
        say("target_rank " + std::to_string(target) +
            ": a client reads what its own rank wrote; varve_part_open (varve/ckpt.h) reads other "
            "ranks");
        return false;
    }
    bool deserialize(declared &now)
    {
        for (auto &e : now.buffers()) {
            in_buffer buffer(e.second);
            std::istream in(&buffer);
            auto it = regions_of(name).find(e.first);
            if (it == regions_of(name).end() || !it->second.d || !it->second.d(in)) {
                say("region " + std::to_string(e.first) + " could not be deserialized");
                return false;
            }
        }
        return true;
    }

  public:
    client(int number, bool in_group) : rank(number), group(in_group)
    {
        life::get().begin();
    }
    ~client() override
    {
        life::end();
    }

    bool mem_protect(int id, void *ptr, std::size_t count, std::size_t base_size,
                     const std::string &of) override
    {
        region_t r;
        r.ptr = ptr;
        r.count = count;
        r.base_size = base_size;
        return protect(id, std::move(r), of);
    }
    bool mem_protect(int id, const serializer_t &s, const deserializer_t &d,
                     const std::string &of) override
    {
        region_t r;
        r.s = s ? s : [](std::ostream &out) { out.setstate(std::ios_base::failbit); };
        r.d = d;
        return protect(id, std::move(r), of);
    }
    bool mem_unprotect(int id, const std::string &of) override
    {
        return groups[of].erase(id) > 0;
    }
    void mem_clear(const std::string &of) override
    {
        groups[of].clear();
    }
    bool register_observer(int type, const observer_t &obs) override
    {
        const bool fresh = observers.count(type) == 0;
        observers[type] = obs;
        return fresh;
    }

    std::string route_file(const std::string &original) override
    {
        char routed[VELOC_MAX_NAME];
        return VELOC_Route_file(original.c_str(), routed) == VELOC_SUCCESS ? std::string(routed)
                                                                           : std::string();
    }
    bool cleanup(const std::string &of) override
    {
        return VELOC_Cleanup(of.c_str()) == VELOC_SUCCESS;
    }

    bool checkpoint(const std::string &of, int v) override
    {
        declared now(of);
        /* Without any region the checkpoint fails, but only after its collective beginning. */
        if (!declare_all(now, VELOC_CKPT_ALL, {}, of))
            (void)VELOC_Region_clear(of.c_str());
        return VELOC_Checkpoint(of.c_str(), v) == VELOC_SUCCESS && ended(of, v);
    }
    bool checkpoint_begin(const std::string &of, int v) override
    {
        if (VELOC_Checkpoint_begin(of.c_str(), v) != VELOC_SUCCESS)
            return false;
        name = of;
        version = v;
        return true;
    }
    bool checkpoint_mem(int mode, const std::set<int> &ids) override
    {
        declared now(name);
        return declare_all(now, mode, ids, name) && VELOC_Checkpoint_mem() == VELOC_SUCCESS;
    }
    bool checkpoint_end(bool success) override
    {
        return VELOC_Checkpoint_end(success) == VELOC_SUCCESS && (!success || ended(name, version));
    }
    bool checkpoint_wait() override
    {
        return VELOC_Checkpoint_wait() == VELOC_SUCCESS;
    }
    bool checkpoint_finished() override
    {
        return VELOC_Checkpoint_finished() == VELOC_SUCCESS;
    }

    int restart_test(const std::string &of, int v, int target) override
    {
        return own_rank(target) ? VELOC_Restart_test(of.c_str(), v) : VELOC_FAILURE;
    }
    bool restart(const std::string &of, int v, int target) override
    {
        if (!restart_begin(of, v, target))
            return false;
        const bool ok = recover_mem(VELOC_RECOVER_ALL, {});
        return restart_end(ok) && ok;
    }
    bool restart_begin(const std::string &of, int v, int target) override
    {
        if (!own_rank(target) || VELOC_Restart_begin(of.c_str(), v) != VELOC_SUCCESS)
            return false;
        name = of;
        version = v;
        return true;
    }
    std::size_t recover_size(int id) override
    {
        const long long bytes = VELOC_Recover_size64(id);
        return bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
    }
    bool recover_mem(int mode, const std::set<int> &ids) override
    {
        declared now(name);
        for (const auto &e : regions_of(name)) {
            if (!chosen(mode, ids, e.first))
                continue;
            const long long bytes = e.second.raw() ? 0 : VELOC_Recover_size64(e.first);
            if (bytes < 0)
                continue; /* not in this checkpoint */
            if (!(e.second.raw()
                      ? now.add(e.first, e.second)
                      : now.add(e.first, std::string(static_cast<std::size_t>(bytes), '\0'))))
                return false;
        }
        std::vector<int> list(ids.begin(), ids.end());
        return VELOC_Recover_selective(mode, list.data(), static_cast<int>(list.size())) ==
                   VELOC_SUCCESS &&
               deserialize(now);
    }
    bool restart_end(bool success) override
    {
        return VELOC_Restart_end(success) == VELOC_SUCCESS;
    }

  private:
    bool protect(int id, region_t &&r, const std::string &of)
    {
        regions_t &all = groups[of];
        const bool fresh = all.count(id) == 0;
        all[id] = std::move(r);
        return fresh;
    }
};

} // namespace detail

/* A client for this process by itself, under a number of its own. Throws std::runtime_error; the reason is printed to
 * the standard error stream. The caller deletes it; otherwise it is finalized at the end of the program. */
inline client_t *get_client(unsigned int id, const std::string &cfg_file)
{
    if (VELOC_Init_single(id, cfg_file.c_str()) != VELOC_SUCCESS)
        throw std::runtime_error("veloc: no client for " + cfg_file);
    return new detail::client(static_cast<int>(id), false);
}

#if defined(MPI_VERSION) && !defined(VELOC_NO_MPI)
/* The same, collective: the processes of `comm` checkpoint and restart as a group, each by its rank. Delete the client
 * before MPI_Finalize. */
inline client_t *get_client(MPI_Comm comm, const std::string &cfg_file)
{
    if (VELOC_Init(comm, cfg_file.c_str()) != VELOC_SUCCESS)
        throw std::runtime_error("veloc: no client for " + cfg_file);
    return new detail::client(-1, true);
}
#endif

} // namespace veloc

#endif
