# SPDX-License-Identifier: Apache-2.0
#
# The kernels of `varve bench gpufile` (lab/gpufile/gf_kernels.cu): a fatbin that becomes part of the tool, where there is an nvcc
# that works. Without it, and under sanitizers, they run on the emulated device alone. Adds to varve_lab_sources.

if(NOT HAVE_NVCC OR VARVE_SANITIZE)
    return()
endif()

file(GLOB varve_gf_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/varve/*.h
    ${CMAKE_SOURCE_DIR}/include/varve/detail/*.h)
set(varve_gf_fatbin ${CMAKE_BINARY_DIR}/generated/gf_kernels.fatbin)
set(varve_gf_fatbin_c ${CMAKE_BINARY_DIR}/generated/gf_fatbin.c)
add_custom_command(OUTPUT ${varve_gf_fatbin}
    COMMAND ${NVCC_PROGRAM} ${varve_nvcc_flags} -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include
    -o ${varve_gf_fatbin} ${CMAKE_SOURCE_DIR}/lab/gpufile/gf_kernels.cu
    DEPENDS ${CMAKE_SOURCE_DIR}/lab/gpufile/gf_kernels.cu ${CMAKE_SOURCE_DIR}/lab/gpufile/gf_kernels.h
    ${CMAKE_SOURCE_DIR}/lab/gpufile/gf_launch.h ${CMAKE_SOURCE_DIR}/src/base/pattern.h ${varve_gf_headers}
    COMMENT "Compiling gf_kernels.cu" VERBATIM)
add_custom_command(OUTPUT ${varve_gf_fatbin_c}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${varve_gf_fatbin} -DOUTPUT=${varve_gf_fatbin_c} -DNAME=gf_fatbin
    -P ${CMAKE_SOURCE_DIR}/cmake/EmbedBytes.cmake
    DEPENDS ${varve_gf_fatbin} ${CMAKE_SOURCE_DIR}/cmake/EmbedBytes.cmake
    COMMENT "Embedding gf_kernels.fatbin" VERBATIM)
list(APPEND varve_lab_sources ${varve_gf_fatbin_c})
set_source_files_properties(${CMAKE_SOURCE_DIR}/lab/gpufile/gf_launch.c PROPERTIES COMPILE_DEFINITIONS GF_HAVE_KERNELS=1)
