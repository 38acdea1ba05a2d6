# SPDX-License-Identifier: Apache-2.0
#
# cmake -DINPUT=file -DOUTPUT=file.c -DNAME=array -P EmbedBytes.cmake
# Writes a C file that defines the bytes of a file as an array, NAME_bytes, their number, and NAME_sha256, the 32
# bytes of their hash.

file(READ ${INPUT} hex HEX)
file(SIZE ${INPUT} bytes)
file(SHA256 ${INPUT} hash)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hash "${hash}")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUTPUT} "/* SPDX-License-Identifier: Apache-2.0 */
/* Generated: the bytes of a file. */
#include <stddef.h>

extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_bytes;
extern const unsigned char ${NAME}_sha256[32];

_Alignas(16) const unsigned char ${NAME}[] = {
${hex}};

const size_t ${NAME}_bytes = ${bytes};
const unsigned char ${NAME}_sha256[32] = {
${hash}};
")
