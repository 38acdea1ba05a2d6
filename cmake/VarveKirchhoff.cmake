# SPDX-License-Identifier: Apache-2.0
#
# examples/kirchhoff: varve-kirchhoff. Pictures, models, messages and the reading of options are those of examples/rtm. OpenMP and nvcc are used
# when present.

file(GLOB kirchhoff_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/kirchhoff/*.c)
list(FILTER kirchhoff_sources EXCLUDE REGEX "/(main|no_cuda)\\.c$")
add_library(kirchhoff STATIC ${kirchhoff_sources})
target_include_directories(kirchhoff PUBLIC ${CMAKE_SOURCE_DIR}/examples/kirchhoff)
target_link_libraries(kirchhoff PUBLIC rtm)
# CPU, emulated device and GPU round alike only if none contracts a product and a sum.
target_compile_options(kirchhoff PRIVATE -ffp-contract=off)
set_source_files_properties(${CMAKE_SOURCE_DIR}/examples/kirchhoff/cpu.c PROPERTIES
    COMPILE_OPTIONS "${rtm_loop_options}")
if(OpenMP_C_FOUND)
    target_compile_options(kirchhoff PRIVATE ${OpenMP_C_FLAGS})
endif()

if(HAVE_NVCC AND CUDART_STATIC_LIBRARY)
    set(kirchhoff_cuda_object ${CMAKE_BINARY_DIR}/generated/kirchhoff_cuda.o)
    file(GLOB kirchhoff_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/kirchhoff/*.h
        ${CMAKE_SOURCE_DIR}/include/varve/*.h ${CMAKE_SOURCE_DIR}/include/varve/detail/*.h)
    add_custom_command(OUTPUT ${kirchhoff_cuda_object}
        COMMAND ${NVCC_PROGRAM} -std=c++17 -O3 --fmad=false -I${CMAKE_SOURCE_DIR}/examples/kirchhoff
        -I${CMAKE_SOURCE_DIR}/include -gencode arch=compute_80,code=sm_80
        -gencode "arch=compute_90,code=[sm_90,compute_90]" -Xfatbin -compress-all
        -Xcompiler -Wall,-fno-exceptions,-fno-threadsafe-statics
        -c -o ${kirchhoff_cuda_object} ${CMAKE_SOURCE_DIR}/examples/kirchhoff/cuda.cu
        DEPENDS ${CMAKE_SOURCE_DIR}/examples/kirchhoff/cuda.cu ${kirchhoff_headers}
        COMMENT "Compiling kernels of varve-kirchhoff" VERBATIM)
    set_source_files_properties(${kirchhoff_cuda_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(kirchhoff PRIVATE ${kirchhoff_cuda_object})
else()
    target_sources(kirchhoff PRIVATE ${CMAKE_SOURCE_DIR}/examples/kirchhoff/no_cuda.c)
endif()

add_executable(varve-kirchhoff ${CMAKE_SOURCE_DIR}/examples/kirchhoff/main.c)
target_link_libraries(varve-kirchhoff PRIVATE kirchhoff)
