// SPDX-License-Identifier: Apache-2.0
// varve::vector as a container: construction, copies, moves, growth, iteration, records, exceptions, and destruction
// of handles in any order. Run as: vector FOLDER
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <numeric>
#include <sstream>

#include <varve/vector.hpp>

#define CHECK(cond)                                                 \
    do {                                                            \
        if (!(cond)) {                                              \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #cond); \
            std::exit(1);                                           \
        }                                                           \
    } while (0)

// The statement throws varve::error with this code.
#define THROWS(err, statement)                                                        \
    do {                                                                              \
        int got = 0;                                                                  \
        std::string text;                                                             \
        try {                                                                         \
            statement;                                                                \
        } catch (const varve::error &e) {                                             \
            got = e.code();                                                           \
            text = e.what();                                                          \
        }                                                                             \
        if (got != (err) || text.empty()) {                                           \
            std::fprintf(stderr, "line %d: %d, not %d\n", __LINE__, got, (int)(err)); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

struct particle {
    double x[3];
    int id = 7; // no trivial constructor, and yet only bytes
};

// Only bytes, and hard to make.
struct moody {
    static bool angry;
    int x;
    moody() : x(3)
    {
        if (angry)
            throw std::runtime_error("angry");
    }
};
bool moody::angry = false;

typedef varve::vector<int> ints;

static ints count(const varve::store &s, int n, int from = 0)
{
    ints v(s, static_cast<std::size_t>(n));
    std::iota(v.begin(), v.end(), from);
    return v;
}

static void construction(const varve::store &s)
{
    ints none, empty(s), zeros(s, 1000), sevens(s, 10, 7), listed(s, {3, 1, 2});
    std::list<int> l = {5, 6, 7, 8};
    ints from_list(s, l.begin(), l.end());
    std::istringstream words("1 22 333");
    ints from_input(s, std::istream_iterator<int>(words), std::istream_iterator<int>());
    CHECK(none.empty() && empty.empty() && none.data() == nullptr && none.begin() == none.end());
    CHECK(zeros.size() == 1000 && std::count(zeros.begin(), zeros.end(), 0) == 1000);
    CHECK(std::count(sevens.begin(), sevens.end(), 7) == 10);
    CHECK(listed.front() == 3 && listed.back() == 2 && listed[1] == 1);
    CHECK(from_list.size() == 4 && from_list[3] == 8);
    CHECK(from_input.size() == 3 && from_input.back() == 333);
    CHECK(reinterpret_cast<std::uintptr_t>(zeros.data()) % 64 == 0);
    varve::vector<particle> p(s, 5);
    p.resize(9);
    for (const particle &q : p)
        CHECK(q.id == 7);
    varve::vector<std::array<char, 3>> odd(s, 5000);
    CHECK(odd.capacity() >= 5000);
}

static void copies_and_moves(const varve::store &s)
{
    ints a = count(s, 5000), b = a, c;
    CHECK(a == b && a.data() != b.data());
    b[17] = -1;
    CHECK(a != b && a[17] == 17);
    c = b; // takes its store too, having none
    CHECK(c == b && c.get_store() == s);
    ints &same = c;
    c = same;
    CHECK(c == b);
    const int *data = a.data();
    ints d = std::move(a);
    CHECK(d.data() == data && a.empty() && a.data() == nullptr);
    a.push_back(4); // moved from, and used again
    CHECK(a.size() == 1 && a[0] == 4);
    a = std::move(d);
    CHECK(a.data() == data && d.empty());
    swap(a, c);
    CHECK(c.data() == data && a[17] == -1);
    a = {9, 8};
    CHECK(a.size() == 2 && a[1] == 8 && a.capacity() >= 5000);
    b.assign({9, 8, 1});
    CHECK(a < b && b > a && a <= b && b >= a && !(b < a) && a <= a && a >= a && !(a < a));
    b[0] = 8;
    CHECK(b < a && !(a <= b));
    a = ints(s);
    CHECK(a.empty());
    ints moved_empty = std::move(d), copied_empty = d;
    CHECK(moved_empty.empty() && copied_empty.empty());
}

static void growth(const varve::store &s)
{
    ints v(s);
    for (int i = 0; i < 20000; i++) {
        if (i % 2)
            v.push_back(i);
        else
            CHECK(&v.emplace_back(i) == &v.back());
    }
    for (std::size_t i = 0; i < v.size(); i++)
        CHECK(v[i] == static_cast<int>(i) && v.at(i) == v[i]);
    CHECK(std::accumulate(v.rbegin(), v.rend(), 0L) == 199990000L);
    CHECK(*v.crbegin() == 19999 && v.crend() - v.crbegin() == 20000 && v.max_size() > v.capacity());
    const ints &cv = v;
    CHECK(cv.end() - cv.begin() == 20000 && cv.at(7) == 7 && cv.front() == 0 && cv.back() == 19999);
    v.pop_back();
    CHECK(v.size() == 19999 && v.back() == 19998);
    v.resize(20010, v[3]);
    CHECK(v.back() == 3);
    v.assign(4, v[5]);
    CHECK(v.size() == 4 && v[3] == 5);
    v.shrink_to_fit();
    CHECK(v.capacity() < 20000 && v[0] == 5);
    v.reserve(9000);
    CHECK(v.size() == 4 && v.capacity() >= 9000);
    v.clear();
    CHECK(v.empty());
    v.shrink_to_fit();
    CHECK(v.capacity() == 0);
    std::sort(v.begin(), v.end()); // nothing, and no harm
}

static void records(varve::store s)
{
    ints v(s);
    const ints &same = v; // writing does not change it
    std::uint64_t newest = 7;
    CHECK(!s.latest(newest) && newest == 7);
    for (int t = 0; t < 50; t++) {
        v = count(s, 1000 + t, t);
        if (t % 2)
            same.write(static_cast<std::uint64_t>(t));
        else
            v.write_move(static_cast<std::uint64_t>(t));
        CHECK(v.empty() == (t % 2 == 0));
    }
    CHECK(s.latest(newest) && newest == 49);
    CHECK(s.ids().size() == 50 && s.contains(49) && !s.contains(50));
    s.prefetch();
    for (int t = 50; t-- > 0;) {
        v.read(static_cast<std::uint64_t>(t));
        CHECK(v == count(s, 1000 + t, t));
    }
    s.discard(3);
    CHECK(!s.contains(3));
    s.wait(4, varve::level::cached);
    s.flush();
}

static void exceptions(const varve::context &ctx, varve::store s)
{
    ints v = count(s, 100), none;
    try {
        v.at(100) = 1;
        CHECK(false);
    } catch (const std::out_of_range &) {
    }
    varve::vector<moody> m(s, 5);
    moody::angry = true;
    try {
        m.resize(9000);
        CHECK(false);
    } catch (const std::runtime_error &) {
    }
    moody::angry = false;
    CHECK(m.size() == 5 && m[4].x == 3);
    THROWS(-ENOENT, v.read(1000));
    CHECK(v == count(s, 100));
    THROWS(-ENOENT, s.discard(1000));
    v.write(900);
    THROWS(-EEXIST, v.write(900));
    THROWS(-EEXIST, v.write_move(900));
    CHECK(v == count(s, 100));
    ints(s).write(901);
    v.read(901);
    CHECK(v.empty());
    v.read(900);
    THROWS(-ENOSPC, v.resize(1u << 30));
    THROWS(-ENOSPC, ints(s, 1u << 30));
    CHECK(v == count(s, 100));
    THROWS(-EINVAL, none.push_back(1));
    THROWS(-EINVAL, none.read(900));
    THROWS(-EINVAL, varve::vector<particle>(s).read(900));
    THROWS(-EINVAL, varve::vector<short>(s).read(900)); // 400 bytes would be 200 of them
    THROWS(-EINVAL, varve::vector<double>(s).read(900));
    THROWS(-EINVAL, varve::store(ctx, "a/b"));
    THROWS(-EBUSY, varve::store(ctx, "forward"));
    THROWS(-EINVAL, varve::options().set("no_such_key", "1"));
    THROWS(-EINVAL, varve::store().flush());
    THROWS(-EBUSY, s.close());
    CHECK(v == count(s, 100));
    varve::store declared(ctx, "declared", varve::order::fifo);
    THROWS(-EINVAL, declared.hint(1));
}

// In every order of destruction, no freed handle is used.
static void lives(const varve::options &opts)
{
    ints left;
    {
        varve::context ctx(opts);
        varve::store s(ctx, "short");
        left = count(s, 10);
    }
    left.push_back(10);
    CHECK(left.size() == 11 && left[10] == 10);
    left = ints(); // the last one closes the context

    varve::context ctx(opts);
    varve::store s(ctx, "closed");
    ints v = count(s, 10), empty(s), copy;
    THROWS(-EBUSY, ctx.close());
    v.write_move(1);
    ctx.close();
    THROWS(-EINVAL, v.read(1));
    THROWS(-EINVAL, s.flush());
    THROWS(-EINVAL, empty.push_back(1));
    v.clear();
    v.shrink_to_fit();
    copy = v;
    ints another(v);
    CHECK(another.empty() && v.empty() && copy.empty());
    try {
        ctx.close(); // nothing is open: no harm
    } catch (const varve::error &) {
    }

    varve::context second(opts);
    varve::store t(second, "closed"), handle = t;
    ints w(t, 5);
    w = ints();
    t.close();
    THROWS(-EINVAL, handle.ids());

    varve::context third = std::move(second);
    CHECK(!second.get() && third.get());
    THROWS(-EINVAL, varve::store(second, "none"));
    second.close(); // of nothing
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    varve::options opts;
    opts.set("device", "none")
        .set("host_cache", "4M")
        .set("local", argv[1])
        .set("local_cache", "32M");
    opts.set("page", "4K");
    varve::context ctx(opts);
    varve::store s(ctx, "forward"),
        reverse(ctx, "reverse", varve::order::lifo, varve::consume::keep);
    construction(s);
    copies_and_moves(s);
    growth(s);
    records(reverse);
    exceptions(ctx, s);
    lives(opts);
    std::puts("ok");
    return 0;
}
