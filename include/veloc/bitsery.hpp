/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of veloc.hpp that Bitsery writes and reads:
 *     client->mem_protect(0, veloc::bitsery::serializer(x), veloc::bitsery::deserializer(x));
 * `x` must not move while it is protected. */
#ifndef VELOC_BITSERY_HPP
#define VELOC_BITSERY_HPP

#include <cstdint>
#include <functional>
#include <istream>
#include <ostream>

#include <bitsery/bitsery.h>

#include <bitsery/adapter/stream.h>

namespace veloc {
namespace bitsery {

using namespace ::bitsery;

template <typename T> std::function<void(std::ostream &)> serializer(T &data)
{
    T *const what = &data;
    return [what](std::ostream &out) {
        ::bitsery::Serializer<::bitsery::OutputBufferedStreamAdapter> to{out};
        to.object(*what);
        to.adapter().flush();
    };
}

/* The result is false if the bytes are not those of a `T`. */
template <typename T> std::function<bool(std::istream &)> deserializer(T &data)
{
    T *const what = &data;
    return [what](std::istream &in) {
        return ::bitsery::quickDeserialization<::bitsery::InputStreamAdapter>(in, *what).first ==
               ::bitsery::ReaderError::NoError;
    };
}

} // namespace bitsery
} // namespace veloc

#endif
