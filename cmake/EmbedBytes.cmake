# SPDX-License-Identifier: Apache-2.0
#
# cmake -DINPUT=file -DOUTPUT=file.c -DNAME=array -P EmbedBytes.cmake
# Writes a C file that defines the bytes of a file as an array, and NAME_bytes, how many there are.

file(READ ${INPUT} hex HEX)
file(SIZE ${INPUT} bytes)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUTPUT} "/* SPDX-License-Identifier: Apache-2.0 */
/* Generated from the source of the kernels. */
#include <stddef.h>

extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_bytes;

_Alignas(16) const unsigned char ${NAME}[] = {
${hex}};

const size_t ${NAME}_bytes = ${bytes};
")
