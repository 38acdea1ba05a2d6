/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA-256 (RFC 2104, FIPS 180-4), to prove possession of a job's token. */
#ifndef VV_NET_MAC_H
#define VV_NET_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VVI_MAC_BYTES 32u

void vvi_net_sha256(const void *p, size_t n, uint8_t ret_hash[VVI_MAC_BYTES]);
/* At most 512 bytes of message. */
void vvi_net_mac(const void *key, size_t key_bytes, const void *msg, size_t msg_bytes,
                 uint8_t ret_mac[VVI_MAC_BYTES]);
/* Compares in constant time. */
bool vvi_net_mac_equal(const uint8_t a[VVI_MAC_BYTES], const uint8_t b[VVI_MAC_BYTES]);

#endif
