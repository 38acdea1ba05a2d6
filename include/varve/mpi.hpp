/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve::vector<T> in an MPI job. Include this header to call set_comm, reduce and all_reduce of
 * varve/vector.hpp. Programs also link libvarve-mpi.
 *
 *     varve::vector<double> v(field, n);
 *     v.set_comm(MPI_COMM_WORLD);
 *     v.all_reduce(MPI_SUM);
 *
 * T is a number type that MPI has, or mpi_type<T> is specialised for it. An error of
 * varve_vector_reduce_mpi is thrown.
 */
#ifndef VARVE_MPI_HPP
#define VARVE_MPI_HPP

#include <complex>

#include <varve/mpi.h>
#include <varve/vector.hpp>

namespace varve {

/* The MPI datatype of T. */
template <class T> struct mpi_type;

#define VARVE_MPI_TYPE(t, datatype)  \
    template <> struct mpi_type<t> { \
        static MPI_Datatype get()    \
        {                            \
            return datatype;         \
        }                            \
    }
VARVE_MPI_TYPE(char, MPI_CHAR);
VARVE_MPI_TYPE(signed char, MPI_SIGNED_CHAR);
VARVE_MPI_TYPE(unsigned char, MPI_UNSIGNED_CHAR);
VARVE_MPI_TYPE(short, MPI_SHORT);
VARVE_MPI_TYPE(unsigned short, MPI_UNSIGNED_SHORT);
VARVE_MPI_TYPE(int, MPI_INT);
VARVE_MPI_TYPE(unsigned, MPI_UNSIGNED);
VARVE_MPI_TYPE(long, MPI_LONG);
VARVE_MPI_TYPE(unsigned long, MPI_UNSIGNED_LONG);
VARVE_MPI_TYPE(long long, MPI_LONG_LONG);
VARVE_MPI_TYPE(unsigned long long, MPI_UNSIGNED_LONG_LONG);
VARVE_MPI_TYPE(float, MPI_FLOAT);
VARVE_MPI_TYPE(double, MPI_DOUBLE);
VARVE_MPI_TYPE(long double, MPI_LONG_DOUBLE);
VARVE_MPI_TYPE(std::complex<float>, MPI_C_FLOAT_COMPLEX);
VARVE_MPI_TYPE(std::complex<double>, MPI_C_DOUBLE_COMPLEX);
#undef VARVE_MPI_TYPE

namespace detail {

template <class T, class Op> struct mpi_calls {
    static void set_comm(vector<T> &v, MPI_Comm comm)
    {
        v.get_store().check(varve_vector_set_comm_mpi(v.get(), comm));
    }
    static void reduce(vector<T> &v, MPI_Op op, int root)
    {
        v.get_store().check(varve_vector_reduce_mpi(v.get(), mpi_type<T>::get(), op, root));
    }
    static void all_reduce(vector<T> &v, MPI_Op op)
    {
        v.get_store().check(varve_vector_all_reduce_mpi(v.get(), mpi_type<T>::get(), op));
    }
};

} // namespace detail

} // namespace varve

#endif
