/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C++ program written for VELOC's classes: regions by pointer and by serializer, names with regions of their own,
 * choices among regions, observers, files, several lives.
 *     client CONFIG all            everything, by itself
 *     client CONFIG leave          writes, and ends without deleting the client
 *     client CONFIG find           finds what the former has written
 * With -DWITH_MPI, by all processes of a job: client CONFIG leave|find.
 */
#ifdef WITH_MPI
#include <mpi.h>
#endif
#include <veloc.hpp>

#ifdef WITH_CEREAL
#include <veloc/cereal.hpp>

#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#endif
#ifdef WITH_BOOST
#include <veloc/boost.hpp>

#include <boost/serialization/set.hpp>
#endif

#include <cstdio>
#include <cstring>
#include <fstream>
#include <list>
#include <vector>

static int rank = 0;

static void check_at(bool ok, const char *what, int line)
{
    if (ok)
        return;
    std::fprintf(stderr, "client.cpp:%d: rank %d: %s\n", line, rank, what);
    std::_Exit(1);
}
#define CHECK(cond) check_at(cond, #cond, __LINE__)

/* A list with a serializer of its own, whose length changes. */
static std::list<std::string> words;

static void write_words(std::ostream &out)
{
    std::streampos begin = out.tellp();
    out << "words " << words.size() << '\n';
    for (const auto &w : words)
        out << w << '\n';
    CHECK(out.tellp() > begin);
}

static bool read_words(std::istream &in)
{
    std::string word;
    std::size_t n;
    if (!(in >> word >> n) || word != "words")
        return false;
    words.clear();
    for (; n > 0 && in >> word; n--)
        words.push_back(word);
    return n == 0 && in.get() == '\n' && in.peek() == std::istream::traits_type::eof();
}

static std::list<std::string> many(int n)
{
    std::list<std::string> list;
    for (int i = 0; i < n; i++)
        list.push_back("word" + std::to_string(i));
    return list;
}

static void regions(veloc::client_t *c)
{
    int k = 7, ended = 0, last = -1;
    double field[1000];
    for (int i = 0; i < 1000; i++)
        field[i] = i;
    CHECK(c->register_observer(VELOC_OBSERVE_CKPT_END, [&](const std::string &name, int version) {
        CHECK(name == "state");
        ended++;
        last = version;
    }));
    CHECK(c->mem_protect(0, &k, 1, sizeof(k)));
    CHECK(!c->mem_protect(0, &k, 1, sizeof(k))); /* declared again */
    CHECK(c->mem_protect(1, field, 1000, sizeof(double)));
    CHECK(c->mem_protect(2, write_words, read_words));
    CHECK(c->restart_test("state", 0) == -1);
    for (int v = 1; v <= 3; v++) {
        k = v;
        field[10] = v;
        words = many(v * 400);
        CHECK(c->checkpoint("state", v));
        CHECK(ended == v && last == v);
    }
    CHECK(c->checkpoint_wait() && c->checkpoint_finished());
    for (int v = 3; v >= 1; v--) {
        k = 0;
        field[10] = 0;
        words.clear();
        CHECK(c->restart("state", v));
        CHECK(k == v && field[10] == v && field[999] == 999 && words == many(v * 400));
    }
    CHECK(c->restart_test("state", 0) == 3 && c->restart_test("state", 2) == 2);
    CHECK(!c->restart("state", 9));

    /* Selected regions, and regions that a checkpoint does not have. */
    CHECK(c->checkpoint_begin("state", 4));
    CHECK(!c->checkpoint_mem(VELOC_CKPT_SOME, {77}));
    k = 44;
    words = many(4);
    CHECK(c->checkpoint_mem(VELOC_CKPT_REST, {1}));
    CHECK(c->checkpoint_end(true) && last == 4);
    k = 0;
    words.clear();
    field[10] = -4;
    CHECK(c->restart_begin("state", 4));
    CHECK(c->recover_size(0) == sizeof(int) && c->recover_size(1) == 0 && c->recover_size(2) > 20);
    CHECK(c->recover_mem(VELOC_RECOVER_SOME, {2}) && k == 0 && words == many(4));
    words.clear();
    CHECK(c->recover_mem(VELOC_RECOVER_REST, {2}) && k == 44 && words.empty());
    CHECK(c->recover_mem(VELOC_RECOVER_ALL, {}) && words == many(4) && field[10] == -4);
    CHECK(c->restart_end(true));

    /* Reverted; a checkpoint that cannot be written does not exist, one that cannot be read is an error. */
    CHECK(c->checkpoint_begin("state", 5) && c->checkpoint_mem(VELOC_CKPT_ALL, {}));
    CHECK(c->checkpoint_end(false) && last == 4);
    CHECK(c->restart_test("state", 0) == 4);
    c->mem_protect(
        2, [](std::ostream &out) { out.setstate(std::ios::failbit); }, read_words);
    CHECK(!c->checkpoint("state", 6) && last == 4 && c->restart_test("state", 0) == 4);
    c->mem_protect(2, write_words, [](std::istream &) { return false; });
    CHECK(!c->restart("state", 4));
    CHECK(c->mem_unprotect(2) && !c->mem_unprotect(2));
    CHECK(!c->restart("state", 4)); /* a region of it is not protected */
    c->mem_protect(2, write_words, read_words);
    CHECK(c->restart("state", 4));

    /* A serializer may write no bytes. */
    bool called = false;
    c->mem_protect(
        3, [](std::ostream &) {},
        [&](std::istream &in) {
            called = true;
            return in.peek() == std::istream::traits_type::eof();
        });
    CHECK(c->checkpoint("state", 7) && c->restart("state", 7) && called);

    /* Other ranks. */
    CHECK(c->restart_test("state", 0, 3) == 7 && c->restart("state", 4, 3));
    CHECK(c->restart_test("state", 0, 1) == -1 && !c->restart("state", 4, 1));
    c->mem_clear();
    CHECK(!c->checkpoint("state", 8));
    CHECK(c->cleanup("state") && c->restart_test("state", 0) == -1);
}

/* Names with regions of their own. */
static void names(veloc::client_t *c)
{
    int common = 1, own = 2;
    CHECK(!c->register_observer(VELOC_OBSERVE_CKPT_END, [](const std::string &, int) {}));
    CHECK(c->mem_protect(0, &common, 1, sizeof(int)));
    CHECK(c->mem_protect(0, &own, 1, sizeof(int), "own"));
    CHECK(c->mem_protect(5, write_words, read_words, "own"));
    words = many(3);
    CHECK(c->checkpoint("own", 0) && c->checkpoint("other", 0));
    common = own = 0;
    words.clear();
    CHECK(c->restart("own", 0) && common == 0 && own == 2 && words == many(3));
    CHECK(c->restart("other", 0) && common == 1);
    c->mem_clear("own");
    CHECK(c->mem_unprotect(0) && !c->mem_unprotect(0, "own"));
#ifdef WITH_CEREAL
    std::map<std::string, std::vector<int>> tree = {{"a", {1, 2, 3}}, {"b", {}}};
    const auto grown = tree;
    CHECK(c->mem_protect(1, veloc::cereal::serializer(tree), veloc::cereal::deserializer(tree),
                         "lib"));
#endif
#ifdef WITH_BOOST
    std::set<int> set = {7, 9};
    CHECK(c->mem_protect(2, veloc::boost::serializer(set), veloc::boost::deserializer(set), "lib"));
#endif
    int last = 5;
    CHECK(c->mem_protect(3, &last, 1, sizeof(last), "lib"));
    CHECK(c->checkpoint("lib", 1));
    last = 0;
#ifdef WITH_CEREAL
    tree.clear();
#endif
#ifdef WITH_BOOST
    set = {1};
#endif
    CHECK(c->restart("lib", 1) && last == 5);
#ifdef WITH_CEREAL
    CHECK(tree == grown);
    /* Bytes that are not such an archive. */
    CHECK(c->mem_protect(9, write_words, veloc::cereal::deserializer(tree), "wrong"));
    words = many(1);
    CHECK(c->checkpoint("wrong", 1) && !c->restart("wrong", 1));
    std::puts("cereal");
#endif
#ifdef WITH_BOOST
    CHECK(set == (std::set<int>{7, 9}));
    std::puts("boost");
#endif
}

static void files(veloc::client_t *c)
{
    CHECK(c->checkpoint_begin("file", 1));
    std::string path = c->route_file("state.txt");
    CHECK(!path.empty());
    std::ofstream(path) << "written\n";
    CHECK(c->checkpoint_end(true));
    CHECK(c->restart_begin("file", 1));
    std::string word;
    CHECK(std::ifstream(c->route_file("state.txt")) >> word && word == "written");
    CHECK(c->restart_end(true));
}

static veloc::client_t *get(const char *cfg)
{
#ifdef WITH_MPI
    return veloc::get_client(MPI_COMM_WORLD, cfg);
#else
    return veloc::get_client(3u, cfg);
#endif
}

static void all(const char *cfg)
{
    veloc::client_t *c = get(cfg);
    bool thrown = false;
    try {
        (void)get(cfg);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown);
    regions(c);
    names(c);
    files(c);
    delete c;
    c = get(cfg);
    CHECK(c->restart_test("own", 0) == 0);
    delete c;
}

static void lives(const char *cfg, bool finds)
{
    static std::vector<int> mine(100000 + (unsigned)rank);
    words = many(100 * (rank + 1));
    mine[99999] = 5 + rank;
    veloc::client_t *c = get(cfg);
    c->mem_protect(0, mine.data(), mine.size(), sizeof(int));
    c->mem_protect(1, write_words, read_words);
    if (!finds) {
        for (int v = 1; v <= 5; v++)
            CHECK(c->checkpoint("left", v));
        return;
    }
    words.clear();
    mine[99999] = 0;
    CHECK(c->restart_test("left", 0) == 5);
#ifdef WITH_MPI
    CHECK(c->restart_test("left", 0, 0) == -1);
#endif
    CHECK(c->restart("left", 5));
    CHECK(mine[99999] == 5 + rank && words == many(100 * (rank + 1)));
    delete c;
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    if (std::strcmp(argv[2], "all") == 0)
        all(argv[1]);
    else
        lives(argv[1], std::strcmp(argv[2], "find") == 0);
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    std::puts("ok");
    return 0;
}
