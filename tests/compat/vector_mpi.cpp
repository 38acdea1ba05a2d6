// SPDX-License-Identifier: Apache-2.0
// Vectors reduced among processes, from C++ and C; differing arguments are an error on all of them.
#include <cstdio>
#include <limits>

#include <varve/mpi.hpp>

static int rank, size;

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            std::fprintf(stderr, "[%d] line %d: %s\n", rank, __LINE__, #cond); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                      \
        }                                                                      \
    } while (0)

template <class T> static void sum(const varve::store &s, MPI_Comm comm)
{
    varve::vector<T> v(s, 3000);
    v.set_comm(comm);
    for (std::size_t i = 0; i < v.size(); i++)
        v[i] = T(static_cast<int>((i + static_cast<std::size_t>(rank)) % 7));
    v.all_reduce(MPI_SUM);
    for (std::size_t i = 0; i < v.size(); i++) {
        int want = 0;
        for (int r = 0; r < size; r++)
            want += static_cast<int>((i + static_cast<std::size_t>(r)) % 7);
        CHECK(v[i] == T(want));
    }
}

static void to_a_root(const varve::store &s)
{
    varve::vector<long> v(s, 100, rank + 1);
    v.set_comm(MPI_COMM_WORLD);
    v.reduce(MPI_MAX, size - 1);
    CHECK(v[50] == (rank == size - 1 ? size : rank + 1));
    v.write(1); // a vector like any other
    v.read(1);
    v.all_reduce(MPI_MIN);
    CHECK(v[99] == (size > 1 ? 1 : size));
    varve::vector<long> empty(s);
    empty.set_comm(MPI_COMM_WORLD);
    empty.all_reduce(MPI_SUM);
    CHECK(empty.empty());
}

template <class Fn> static int code(Fn fn)
{
    try {
        fn();
    } catch (const varve::error &e) {
        return e.code();
    }
    return 0;
}

static void disagreements(const varve::store &s)
{
    varve::vector<int> v(s, rank == 0 ? 10 : 11, rank), none(s, 1), copy;
    CHECK(code([&] { none.all_reduce(MPI_SUM); }) == -EINVAL); // no communicator
    v.set_comm(MPI_COMM_WORLD);
    CHECK(code([&] { v.all_reduce(MPI_SUM); }) == -EMSGSIZE);
    v.resize(11, rank);
    CHECK(code([&] { v.reduce(MPI_SUM, size); }) == -EINVAL);
    CHECK(code([&] { v.reduce(MPI_SUM, -1); }) == -EINVAL);
    CHECK(code([&] { v.reduce(MPI_SUM, rank % 2); }) == -EINVAL); // different roots
    CHECK(varve_vector_all_reduce_mpi(v.get(), rank == 1 ? MPI_CHAR : MPI_INT, MPI_SUM) == -EINVAL);
    CHECK(varve_vector_all_reduce_mpi(nullptr, MPI_INT, MPI_SUM) == -EINVAL);
    CHECK(varve_vector_set_comm_mpi(nullptr, MPI_COMM_WORLD) == -EINVAL);
    CHECK(v[3] == rank); // nothing has happened to it
    copy = v;
    CHECK(code([&] { copy.all_reduce(MPI_SUM); }) == -EINVAL);
    v.all_reduce(MPI_SUM);
    CHECK(v[3] == size * (size - 1) / 2);
    v.set_comm(MPI_COMM_NULL);
    CHECK(code([&] { v.all_reduce(MPI_SUM); }) == -EINVAL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    {
        MPI_Comm half;
        varve::options opts;
        struct varve_ctx *raw = nullptr;
        opts.set("device", "none").set("host_cache", "4M").set("page", "4K");
        CHECK(varve_open_mpi(MPI_COMM_WORLD, opts.get(), &raw) == 0);
        varve::context ctx(raw);
        varve::store s(ctx, "reduced");
        sum<int>(s, MPI_COMM_WORLD);
        sum<unsigned char>(s, MPI_COMM_WORLD);
        sum<float>(s, MPI_COMM_WORLD);
        sum<double>(s, MPI_COMM_WORLD);
        sum<unsigned long long>(s, MPI_COMM_WORLD);
        sum<std::complex<double>>(s, MPI_COMM_WORLD);
        CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &half) == MPI_SUCCESS);
        sum<short>(s, half);
        MPI_Comm_free(&half);
        to_a_root(s);
        if (size > 1)
            disagreements(s);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        std::puts("ok");
    MPI_Finalize();
    return 0;
}
