# SPDX-License-Identifier: Apache-2.0
#
# Our kernels (src/device/cuda/kernels.cu): compiled to a fatbin and embedded as bytes, where there is an nvcc that
# works. CUDA is not a language of this project, so machines without it need nothing. Sets HAVE_NVCC, and
# varve_kernel_sources: more sources for varve_objects.
#
# Machine code for the generations in use, and PTX of the newest, from which drivers compile for later ones.

set(VARVE_WITH_NVCC AUTO CACHE STRING "build our kernels: AUTO, ON or OFF")
set_property(CACHE VARVE_WITH_NVCC PROPERTY STRINGS AUTO ON OFF)

set(HAVE_NVCC 0)
set(varve_kernel_sources)
if(VARVE_WITH_NVCC STREQUAL "OFF")
    return()
endif()

if(DEFINED ENV{CUDACXX} AND NOT NVCC_PROGRAM)
    find_program(NVCC_PROGRAM NAMES $ENV{CUDACXX})
endif()
find_program(NVCC_PROGRAM nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(NVCC_PROGRAM)

set(varve_nvcc_flags -std=c++17 -O3 -I${CMAKE_SOURCE_DIR}/src -gencode arch=compute_80,code=sm_80
    -gencode "arch=compute_90,code=[sm_90,compute_90]" -Xfatbin -compress-all -fatbin)

# An nvcc without a C++ compiler beside it, or too old for these generations, is found, but useless.
if(NVCC_PROGRAM AND NOT VARVE_NVCC_TRIED STREQUAL NVCC_PROGRAM)
    file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc_works.cu "extern \"C\" __global__ void k(int *p) { *p = 1; }\n")
    execute_process(COMMAND ${NVCC_PROGRAM} ${varve_nvcc_flags} -o ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc_works.fatbin
        ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc_works.cu
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    set(VARVE_NVCC_TRIED ${NVCC_PROGRAM} CACHE INTERNAL "")
    if(result EQUAL 0)
        set(VARVE_NVCC_WORKS 1 CACHE INTERNAL "")
    else()
        set(VARVE_NVCC_WORKS 0 CACHE INTERNAL "")
        message(STATUS "${NVCC_PROGRAM} does not work:\n${output}")
    endif()
endif()

if(NOT NVCC_PROGRAM OR NOT VARVE_NVCC_WORKS)
    if(VARVE_WITH_NVCC STREQUAL "ON")
        message(FATAL_ERROR "VARVE_WITH_NVCC is ON, but there is no nvcc that works. CUDACXX may name one.")
    endif()
    message(STATUS "no nvcc (Debian: nvidia-cuda-toolkit); kernels of our own are off")
    return()
endif()

set(HAVE_NVCC 1)
set(varve_fatbin ${CMAKE_BINARY_DIR}/generated/kernels.fatbin)
set(varve_fatbin_c ${CMAKE_BINARY_DIR}/generated/kernels_fatbin.c)
add_custom_command(OUTPUT ${varve_fatbin}
    COMMAND ${NVCC_PROGRAM} ${varve_nvcc_flags} -o ${varve_fatbin} ${CMAKE_SOURCE_DIR}/src/device/cuda/kernels.cu
    DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/kernels.cu ${CMAKE_SOURCE_DIR}/src/device/cuda/gather.h
    ${CMAKE_SOURCE_DIR}/src/base/pattern.h ${CMAKE_SOURCE_DIR}/src/base/xxh3.h
    ${CMAKE_SOURCE_DIR}/src/device/cuda/hash_kernel.cuh ${CMAKE_SOURCE_DIR}/src/device/cuda/hash_kernel.h
    COMMENT "Compiling kernels" VERBATIM)
add_custom_command(OUTPUT ${varve_fatbin_c}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${varve_fatbin} -DOUTPUT=${varve_fatbin_c} -DNAME=vvi_cuda_fatbin
    -P ${CMAKE_SOURCE_DIR}/cmake/EmbedBytes.cmake
    DEPENDS ${varve_fatbin} ${CMAKE_SOURCE_DIR}/cmake/EmbedBytes.cmake
    COMMENT "Embedding kernels" VERBATIM)
set(varve_kernel_sources ${varve_fatbin_c})
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/device/cuda/kernels.c PROPERTIES
    COMPILE_DEFINITIONS VV_HAVE_KERNELS=1)
