/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of veloc.hpp that Boost.Serialization writes and reads; programs link with -lboost_serialization:
 *     client->mem_protect(0, veloc::boost::serializer(x), veloc::boost::deserializer(x));
 * `x` must not move while it is protected. */
#ifndef VELOC_BOOST_HPP
#define VELOC_BOOST_HPP

#include <exception>
#include <functional>
#include <istream>
#include <ostream>

#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>

namespace veloc {
namespace boost {

using namespace ::boost;

template <typename T> std::function<void(std::ostream &)> serializer(T &data)
{
    /* Boost requires const: a tracked object must not change while it is written. */
    const T *const what = &data;
    return [what](std::ostream &out) {
        ::boost::archive::binary_oarchive archive(out);
        archive << *what;
    };
}

/* The result is false if the bytes are not those of a `T`. */
template <typename T> std::function<bool(std::istream &)> deserializer(T &data)
{
    T *const what = &data;
    return [what](std::istream &in) {
        try {
            ::boost::archive::binary_iarchive archive(in);
            archive >> *what;
        } catch (const std::exception &) {
            return false;
        }
        return true;
    };
}

} // namespace boost
} // namespace veloc

#endif
