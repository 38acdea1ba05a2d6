/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors for C++11: varve::vector<T> is used like std::vector<T>, and writes and reads records. This
 * header is a complete wrapper of varve/vector.h, which documents the calls. Programs link libvarve.
 *
 *     varve::context ctx(varve::options().set("host_cache", "4G").set("local", "scratch"));
 *     varve::store field(ctx, "field", varve::order::lifo, varve::consume::once);
 *     varve::vector<double> v(field, n);
 *     for (t = 0; t < steps; t++) { step(v); v.write(t); }
 *     for (t = steps; t-- > 0;) { v.read(t); image(v); }
 *
 * T is trivially copyable: records contain its bytes.
 *
 * Lifetimes. context and store are handles that may be copied. A vector keeps its store, and a store its
 * context, so they may be destroyed in any order. Destroying the last of them closes the context. A
 * destructor cannot report an error of closing: call close() to get it. A vector that was moved from is
 * empty and may be used again; one that was made without a store is empty, and may be assigned to.
 *
 * Exceptions. Calls that fail throw varve::error, with the negative errno of the C function and the
 * library's text; at() throws std::out_of_range. A call that throws has changed nothing, with two
 * exceptions: read(), see varve_vector_read, and assigning a range whose iterators throw or can be traversed
 * only once: the vector then has some elements of the range. Destructors throw nothing.
 *
 * Iterators are pointers. They, and references to elements, are invalid after the vector grows beyond its
 * capacity, and after read(), write_move() and shrink_to_fit().
 */
#ifndef VARVE_VECTOR_HPP
#define VARVE_VECTOR_HPP

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <varve/ckpt.h>
#include <varve/varve.h>
#include <varve/vector.h>

namespace varve {

/* The error of a library call. */
class error : public std::runtime_error {
  public:
    error(int err, const std::string &text) : std::runtime_error(text), err_(err)
    {
    }
    /* A negative errno. */
    int code() const noexcept
    {
        return err_;
    }

  private:
    int err_;
};

enum class order { hints = VARVE_ORDER_HINTS, fifo = VARVE_ORDER_FIFO, lifo = VARVE_ORDER_LIFO };
enum class consume { keep = VARVE_CONSUME_KEEP, once = VARVE_CONSUME_ONCE };
enum class level {
    cached = VARVE_LEVEL_CACHED,
    local = VARVE_LEVEL_LOCAL,
    remote = VARVE_LEVEL_REMOTE,
    complete = VARVE_LEVEL_COMPLETE
};

namespace detail {

inline void check(int rc, struct varve_ctx *ctx)
{
    if (rc == 0)
        return;
    struct varve_error e;
    std::memset(&e, 0, sizeof(e));
    e.error_size = sizeof(e);
    bool has_text = varve_last_error(ctx, &e) == 0 && e.err == rc && e.text[0];
    throw error(rc, has_text ? e.text : varve_strerror(rc));
}

/* An open context; closed with the last handle. */
struct context_state {
    struct varve_ctx *ctx;
    explicit context_state(struct varve_ctx *c) : ctx(c)
    {
    }
    context_state(const context_state &) = delete;
    context_state &operator=(const context_state &) = delete;
    ~context_state()
    {
        (void)varve_close(ctx);
    }
};

/* An open history. If its context was closed, `h` is invalid. */
struct store_state {
    std::shared_ptr<context_state> context;
    struct varve_history *h;
    store_state(const std::shared_ptr<context_state> &c, struct varve_history *history)
        : context(c), h(history)
    {
    }
    store_state(const store_state &) = delete;
    store_state &operator=(const store_state &) = delete;
    ~store_state()
    {
        if (context->ctx)
            (void)varve_history_close(h);
    }
};

/* Defined in varve/mpi.hpp. */
template <class T, class Op> struct mpi_calls;

} // namespace detail

/* Options of a context: the defaults, including the environment, changed by set() and load(). */
class options {
  public:
    options()
    {
        detail::check(varve_opts_init(&opts_, sizeof(opts_)), nullptr);
    }
    /* Sets an option by its configuration key: set("host_cache", "4G"). */
    options &set(const std::string &key, const std::string &value)
    {
        detail::check(varve_opts_set(&opts_, key.c_str(), value.c_str()), nullptr);
        return *this;
    }
    /* Reads an INI file. */
    options &load(const std::string &path)
    {
        detail::check(varve_opts_load(&opts_, path.c_str()), nullptr);
        return *this;
    }
    struct varve_opts *get() noexcept
    {
        return &opts_;
    }
    const struct varve_opts *get() const noexcept
    {
        return &opts_;
    }

  private:
    struct varve_opts opts_;
};

class context {
  public:
    context()
    {
        open(nullptr);
    }
    explicit context(const options &opts)
    {
        open(opts.get());
    }
    /* Takes ownership of a context that was opened elsewhere (varve_open_mpi), and closes it. */
    explicit context(struct varve_ctx *ctx) : s_(std::make_shared<detail::context_state>(ctx))
    {
    }

    /* Closes the context for every handle, and throws the error of closing. It stays open, -EBUSY, while
     * a vector has memory. */
    void close()
    {
        int rc = varve_close(get());
        if (!s_)
            return; /* moved from */
        if (rc != -EBUSY && rc != -EPERM)
            s_->ctx = nullptr;
        detail::check(rc, nullptr);
    }
    struct varve_ctx *get() const noexcept
    {
        return s_ ? s_->ctx : nullptr;
    }

  private:
    friend class store;
    void open(const struct varve_opts *opts)
    {
        struct varve_ctx *ctx = nullptr;
        detail::check(varve_open(opts, &ctx), nullptr);
        try {
            s_ = std::make_shared<detail::context_state>(ctx);
        } catch (...) {
            (void)varve_close(ctx);
            throw;
        }
    }
    std::shared_ptr<detail::context_state> s_;
};

/* A history of records: varve/ckpt.h documents its calls. */
class store {
  public:
    store() noexcept
    {
    } /* none */
    store(const context &ctx, const std::string &name, order o = order::hints,
          consume c = consume::keep)
    {
        struct varve_history_opts opts;
        detail::check(varve_history_opts_init(&opts, sizeof(opts)), nullptr);
        opts.order = static_cast<int>(o);
        opts.consume = static_cast<int>(c);
        open(ctx, name, opts);
    }
    store(const context &ctx, const std::string &name, const struct varve_history_opts &opts)
    {
        open(ctx, name, opts);
    }

    void hint(std::uint64_t id)
    {
        check(varve_hint(get(), id));
    }
    void hint_clear()
    {
        check(varve_hint_clear(get()));
    }
    void prefetch()
    {
        check(varve_prefetch_start(get()));
    }
    void discard(std::uint64_t id)
    {
        check(varve_discard(get(), id));
    }
    /* wait: until a record has reached a level. flush: until all records have reached the context's. */
    void wait(std::uint64_t id, level l, int timeout_ms = -1)
    {
        check(varve_wait(get(), id, static_cast<enum varve_level>(l), timeout_ms));
    }
    void flush(int timeout_ms = -1)
    {
        check(varve_flush(get(), timeout_ms));
    }
    /* The records that can be read, in the order of writing. */
    std::vector<std::uint64_t> ids() const
    {
        std::vector<std::uint64_t> list;
        std::size_t n = 0;
        for (check(varve_versions(get(), nullptr, 0, &n)); n > list.size();) {
            list.resize(n);
            check(varve_versions(get(), list.data(), list.size(), &n));
        }
        list.resize(n);
        return list;
    }
    bool contains(std::uint64_t id) const
    {
        std::size_t n = 0;
        int rc = varve_regions(get(), id, nullptr, 0, &n);
        if (rc == -ENOENT)
            return false;
        check(rc);
        return true;
    }
    /* The newest record that has reached the context's level; false: there is none. */
    bool latest(std::uint64_t &id) const
    {
        int rc = varve_latest(get(), &id);
        if (rc == -ENOENT)
            return false;
        check(rc);
        return true;
    }
    /* Closes the store for every handle, and throws the error of closing. It stays open, -EBUSY, while a
     * vector of it has memory. */
    void close()
    {
        struct varve_history *h = get();
        int rc = varve_history_close(h);
        if (rc != -EBUSY && rc != -EPERM)
            s_->h = nullptr;
        check(rc);
    }

    explicit operator bool() const noexcept
    {
        return static_cast<bool>(s_);
    }
    friend bool operator==(const store &a, const store &b) noexcept
    {
        return a.s_ == b.s_;
    }
    friend bool operator!=(const store &a, const store &b) noexcept
    {
        return a.s_ != b.s_;
    }
    struct varve_history *get() const
    {
        if (!s_ || !s_->context->ctx || !s_->h)
            throw error(-EINVAL, s_ ? "the store is closed"
                                    : "there is no store: give the vector one when it is made");
        return s_->h;
    }
    /* Throws if `rc`, the result of a C function, is an error. */
    void check(int rc) const
    {
        if (rc)
            detail::check(rc, s_ ? s_->context->ctx : nullptr);
    }

  private:
    void open(const context &ctx, const std::string &name, const struct varve_history_opts &opts)
    {
        struct varve_history *h = nullptr;
        detail::check(varve_history_open_with(ctx.get(), name.c_str(), &opts, &h), ctx.get());
        try {
            s_ = std::make_shared<detail::store_state>(ctx.s_, h);
        } catch (...) {
            (void)varve_history_close(h);
            throw;
        }
    }
    std::shared_ptr<detail::store_state> s_;
};

template <class T> class vector {
    static_assert(std::is_trivially_copyable<T>::value,
                  "T must be trivially copyable: what is written is its bytes");
    static_assert(alignof(T) <= 4096, "elements are aligned to 4096 bytes at most");

  public:
    typedef T value_type;
    typedef std::size_t size_type;
    typedef std::ptrdiff_t difference_type;
    typedef T &reference;
    typedef const T &const_reference;
    typedef T *pointer;
    typedef const T *const_pointer;
    typedef T *iterator;
    typedef const T *const_iterator;
    typedef std::reverse_iterator<iterator> reverse_iterator;
    typedef std::reverse_iterator<const_iterator> const_reverse_iterator;

    vector() noexcept : v_(nullptr)
    {
    }
    explicit vector(const store &s) : store_(s), v_(nullptr)
    {
    }
    vector(const store &s, size_type n) : store_(s), v_(nullptr)
    {
        filled([&] { resize(n); });
    }
    vector(const store &s, size_type n, const T &value) : store_(s), v_(nullptr)
    {
        filled([&] { resize(n, value); });
    }
    vector(const store &s, std::initializer_list<T> list) : store_(s), v_(nullptr)
    {
        filled([&] { assign(list); });
    }
    template <class It, class = typename std::iterator_traits<It>::iterator_category>
    vector(const store &s, It first, It last) : store_(s), v_(nullptr)
    {
        filled([&] { assign(first, last); });
    }
    vector(const vector &other) : store_(other.store_), v_(nullptr)
    {
        if (!other.empty())
            store_.check(varve_vector_copy(other.v_, &v_));
    }
    vector(vector &&other) noexcept : store_(other.store_), v_(other.v_)
    {
        other.v_ = nullptr;
    }
    ~vector()
    {
        varve_vector_free(v_);
    }

    /* Copies the elements of another vector; keeps this vector's store, if it has one. */
    vector &operator=(const vector &other)
    {
        if (this == &other)
            return *this;
        if (!store_)
            store_ = other.store_;
        assign(other.begin(), other.end());
        return *this;
    }
    /* Takes the elements and the store of the other vector. */
    vector &operator=(vector &&other) noexcept
    {
        if (this != &other) {
            varve_vector_free(v_);
            store_ = other.store_;
            v_ = other.v_;
            other.v_ = nullptr;
        }
        return *this;
    }
    vector &operator=(std::initializer_list<T> list)
    {
        assign(list);
        return *this;
    }
    void swap(vector &other) noexcept
    {
        std::swap(store_, other.store_);
        std::swap(v_, other.v_);
    }

    /* ---- elements ---- */

    size_type size() const noexcept
    {
        return v_ ? v_->size : 0;
    }
    size_type capacity() const noexcept
    {
        return v_ ? v_->capacity : 0;
    }
    bool empty() const noexcept
    {
        return size() == 0;
    }
    /* The limit of addresses; the host cache holds less. */
    size_type max_size() const noexcept
    {
        return static_cast<size_type>(PTRDIFF_MAX) / sizeof(T);
    }
    T *data() noexcept
    {
        return v_ ? static_cast<T *>(v_->data) : nullptr;
    }
    const T *data() const noexcept
    {
        return v_ ? static_cast<const T *>(v_->data) : nullptr;
    }
    T &operator[](size_type i) noexcept
    {
        return static_cast<T *>(v_->data)[i];
    }
    const T &operator[](size_type i) const noexcept
    {
        return static_cast<const T *>(v_->data)[i];
    }
    T &at(size_type i)
    {
        return data()[checked(i)];
    }
    const T &at(size_type i) const
    {
        return data()[checked(i)];
    }
    T &front() noexcept
    {
        return (*this)[0];
    }
    const T &front() const noexcept
    {
        return (*this)[0];
    }
    T &back() noexcept
    {
        return (*this)[size() - 1];
    }
    const T &back() const noexcept
    {
        return (*this)[size() - 1];
    }

    iterator begin() noexcept
    {
        return data();
    }
    const_iterator begin() const noexcept
    {
        return data();
    }
    const_iterator cbegin() const noexcept
    {
        return data();
    }
    iterator end() noexcept
    {
        return data() + size();
    }
    const_iterator end() const noexcept
    {
        return data() + size();
    }
    const_iterator cend() const noexcept
    {
        return data() + size();
    }
    reverse_iterator rbegin() noexcept
    {
        return reverse_iterator(end());
    }
    const_reverse_iterator rbegin() const noexcept
    {
        return const_reverse_iterator(end());
    }
    reverse_iterator rend() noexcept
    {
        return reverse_iterator(begin());
    }
    const_reverse_iterator rend() const noexcept
    {
        return const_reverse_iterator(begin());
    }
    const_reverse_iterator crbegin() const noexcept
    {
        return rbegin();
    }
    const_reverse_iterator crend() const noexcept
    {
        return rend();
    }

    /* ---- size ---- */

    void resize(size_type n)
    {
        if (std::is_trivially_default_constructible<T>::value) {
            grow(n);
            return;
        }
        size_type old = size();
        T none = T(); /* may throw: done before anything changes */
        grow(n);
        fill(old, none);
    }
    void resize(size_type n, const T &value)
    {
        T copy = value; /* it may be an element of this vector */
        size_type old = size();
        grow(n);
        fill(old, copy);
    }
    void reserve(size_type n)
    {
        if (n > capacity())
            store_.check(varve_vector_reserve(made(), n));
    }
    void shrink_to_fit()
    {
        if (capacity() > 0)
            store_.check(varve_vector_shrink(v_));
    }
    void clear() noexcept
    {
        if (!empty())
            (void)ignore(varve_vector_resize(v_, 0));
    }
    void push_back(const T &element)
    {
        store_.check(varve_vector_push_back(made(), &element));
    }
    template <class... Args> T &emplace_back(Args &&...args)
    {
        push_back(T(std::forward<Args>(args)...));
        return back();
    }
    void pop_back() noexcept
    {
        (void)ignore(varve_vector_resize(v_, v_->size - 1));
    }
    void assign(size_type n, const T &value)
    {
        T copy = value;
        reserve(n);
        clear();
        resize(n, copy);
    }
    /* The elements must not be the vector's own. */
    template <class It, class = typename std::iterator_traits<It>::iterator_category>
    void assign(It first, It last)
    {
        append(first, last, typename std::iterator_traits<It>::iterator_category());
    }
    void assign(std::initializer_list<T> list)
    {
        assign(list.begin(), list.end());
    }

    /* ---- records ---- */

    /* Same as varve_vector_write, _write_move and _read, with the same timeout_ms. */
    void write(std::uint64_t id, int timeout_ms = -1) const
    {
        store_.check(varve_vector_write_for(made(), id, timeout_ms));
    }
    void write_move(std::uint64_t id, int timeout_ms = -1)
    {
        store_.check(varve_vector_write_move_for(made(), id, timeout_ms));
    }
    void read(std::uint64_t id, int timeout_ms = -1)
    {
        store_.check(varve_vector_read_for(made(), id, timeout_ms));
    }

    /* ---- the processes of a job: include varve/mpi.hpp ---- */

    template <class Comm> void set_comm(Comm comm)
    {
        detail::mpi_calls<T, Comm>::set_comm(*this, comm);
    }
    template <class Op> void reduce(Op op, int root)
    {
        detail::mpi_calls<T, Op>::reduce(*this, op, root);
    }
    template <class Op> void all_reduce(Op op)
    {
        detail::mpi_calls<T, Op>::all_reduce(*this, op);
    }

    /* ---- the store and the vector of the C API ---- */

    const store &get_store() const noexcept
    {
        return store_;
    }
    /* The vector of the C API, made if there is none yet; the caller must not free it. */
    struct varve_vector *get()
    {
        return made();
    }

  private:
    struct varve_vector *made() const
    {
        struct varve_history *h = store_.get();
        if (!v_)
            store_.check(varve_vector_new(h, sizeof(T), 0, &v_));
        return v_;
    }
    void grow(size_type n)
    {
        if (n > 0 || !empty())
            store_.check(varve_vector_resize(made(), n));
    }
    void fill(size_type from, const T &value) noexcept
    {
        for (size_type i = from; i < size(); i++)
            (*this)[i] = value;
    }
    size_type checked(size_type i) const
    {
        if (i >= size())
            throw std::out_of_range("varve::vector: there is no element " + std::to_string(i));
        return i;
    }
    static int ignore(int rc) noexcept
    {
        return rc;
    }
    template <class It> void append(It first, It last, std::input_iterator_tag)
    {
        clear();
        for (; first != last; ++first)
            push_back(*first);
    }
    template <class It> void append(It first, It last, std::forward_iterator_tag)
    {
        size_type n = static_cast<size_type>(std::distance(first, last));
        reserve(n);
        grow(n);
        for (size_type i = 0; i < n; ++first)
            (*this)[i++] = *first;
    }
    /* After a constructor throws, no destructor runs: free the vector here. */
    template <class Fn> void filled(Fn fn)
    {
        try {
            fn();
        } catch (...) {
            varve_vector_free(v_);
            throw;
        }
    }

    store store_;
    mutable struct varve_vector *v_; /* NULL: not made yet */
};

template <class T> void swap(vector<T> &a, vector<T> &b) noexcept
{
    a.swap(b);
}

template <class T> bool operator==(const vector<T> &a, const vector<T> &b)
{
    if (a.size() != b.size())
        return false;
    for (std::size_t i = 0; i < a.size(); i++)
        if (!(a[i] == b[i]))
            return false;
    return true;
}

template <class T> bool operator!=(const vector<T> &a, const vector<T> &b)
{
    return !(a == b);
}

template <class T> bool operator<(const vector<T> &a, const vector<T> &b)
{
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

template <class T> bool operator>(const vector<T> &a, const vector<T> &b)
{
    return b < a;
}

template <class T> bool operator<=(const vector<T> &a, const vector<T> &b)
{
    return !(b < a);
}

template <class T> bool operator>=(const vector<T> &a, const vector<T> &b)
{
    return !(a < b);
}

} // namespace varve

#endif
