/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of veloc.hpp that cereal writes and reads:
 *     client->mem_protect(0, veloc::cereal::serializer(x), veloc::cereal::deserializer(x));
 * `x` must not move while it is protected. */
#ifndef VELOC_CEREAL_HPP
#define VELOC_CEREAL_HPP

#include <exception>
#include <functional>
#include <istream>
#include <ostream>

#include <cereal/archives/binary.hpp>

namespace veloc {
namespace cereal {

using namespace ::cereal;

template <typename T> std::function<void(std::ostream &)> serializer(T &data)
{
    T *const what = &data;
    return [what](std::ostream &out) {
        ::cereal::BinaryOutputArchive archive(out);
        archive(*what);
    };
}

/* The result is false if the bytes are not those of a `T`. */
template <typename T> std::function<bool(std::istream &)> deserializer(T &data)
{
    T *const what = &data;
    return [what](std::istream &in) {
        try {
            ::cereal::BinaryInputArchive archive(in);
            archive(*what);
        } catch (const std::exception &) {
            return false;
        }
        return true;
    };
}

} // namespace cereal
} // namespace veloc

#endif
