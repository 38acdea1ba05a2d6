# SPDX-License-Identifier: Apache-2.0
#
# examples/rtm: varve-rtm, and varve-rtm-mpi where there is MPI. Found and used when present: OpenMP (threads), nvcc
# (kernels for a GPU, with the static runtime library that comes with it), zfp (compression), MPI.

set(VARVE_WITH_ZFP AUTO CACHE STRING "use it: AUTO, ON or OFF")
set_property(CACHE VARVE_WITH_ZFP PROPERTY STRINGS AUTO ON OFF)

file(GLOB rtm_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/rtm/*.c)
list(FILTER rtm_sources EXCLUDE REGEX "/(main|no_cuda|mpi)\\.c$")
add_library(rtm STATIC ${rtm_sources})
target_include_directories(rtm PUBLIC ${CMAKE_SOURCE_DIR}/examples/rtm)
target_link_libraries(rtm PUBLIC varve_static m)
# CPU and GPU round alike only if neither contracts a product and a sum.
target_compile_options(rtm PRIVATE -ffp-contract=off)
# Under ThreadSanitizer the loops have no threads (see below), and instrumenting them would cost most.
set(rtm_loop_options -O3)
if(VARVE_SANITIZE MATCHES "thread")
    list(APPEND rtm_loop_options -fno-sanitize=thread)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/examples/rtm/prop_cpu.c PROPERTIES
    COMPILE_OPTIONS "${rtm_loop_options}")

# ThreadSanitizer does not see how OpenMP's threads wait for each other.
if(NOT VARVE_SANITIZE MATCHES "thread")
    find_package(OpenMP QUIET COMPONENTS C)
endif()
if(OpenMP_C_FOUND)
    target_compile_options(rtm PRIVATE ${OpenMP_C_FLAGS})
    target_link_libraries(rtm PUBLIC ${OpenMP_C_LIBRARIES})
endif()

varve_find(zfp zfp.h zfp "${VARVE_WITH_ZFP}" zfp libzfp-dev)
if(HAVE_ZFP)
    target_include_directories(rtm SYSTEM PRIVATE ${ZFP_INCLUDE_DIR})
    target_compile_definitions(rtm PRIVATE RTM_HAVE_ZFP=1)
    target_link_libraries(rtm PUBLIC ${ZFP_LIBRARY})
endif()

# The kernels, and the part of the CUDA runtime that calls them: linked statically, it loads the driver when it is
# first used, so that the program runs without one.
set(rtm_cuda_sources ${CMAKE_SOURCE_DIR}/examples/rtm/prop_cuda.cu ${CMAKE_SOURCE_DIR}/examples/rtm/rtm.h
    ${CMAKE_SOURCE_DIR}/examples/rtm/numerics.h)
if(HAVE_NVCC)
    get_filename_component(rtm_nvcc_folder ${NVCC_PROGRAM} REALPATH)
    get_filename_component(rtm_nvcc_folder ${rtm_nvcc_folder} DIRECTORY)
    find_library(CUDART_STATIC_LIBRARY NAMES libcudart_static.a HINTS ${rtm_nvcc_folder}/.. ENV CUDA_HOME ENV CUDA_PATH
        PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
    mark_as_advanced(CUDART_STATIC_LIBRARY)
endif()
if(HAVE_NVCC AND CUDART_STATIC_LIBRARY)
    set(rtm_cuda_object ${CMAKE_BINARY_DIR}/generated/rtm_prop_cuda.o)
    add_custom_command(OUTPUT ${rtm_cuda_object}
        COMMAND ${NVCC_PROGRAM} -std=c++17 -O3 --fmad=false -ftz=true -I${CMAKE_SOURCE_DIR}/examples/rtm
        -I${CMAKE_SOURCE_DIR}/include -gencode arch=compute_80,code=sm_80
        -gencode "arch=compute_90,code=[sm_90,compute_90]" -Xfatbin -compress-all -Xcompiler -fno-exceptions,-fno-threadsafe-statics
        -c -o ${rtm_cuda_object} ${CMAKE_SOURCE_DIR}/examples/rtm/prop_cuda.cu
        DEPENDS ${rtm_cuda_sources} COMMENT "Compiling kernels of varve-rtm" VERBATIM)
    set_source_files_properties(${rtm_cuda_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(rtm PRIVATE ${rtm_cuda_object})
    target_link_libraries(rtm PUBLIC ${CUDART_STATIC_LIBRARY} ${CMAKE_DL_LIBS} rt)
else()
    target_sources(rtm PRIVATE ${CMAKE_SOURCE_DIR}/examples/rtm/no_cuda.c)
endif()

add_executable(varve-rtm ${CMAKE_SOURCE_DIR}/examples/rtm/main.c)
target_link_libraries(varve-rtm PRIVATE rtm)

# A program of its own, because starting MPI takes time, and its libraries have to be there. They leak, so that
# sanitizers would complain.
if(HAVE_MPI AND NOT VARVE_PORTABLE AND NOT VARVE_SANITIZE)
    add_executable(varve-rtm-mpi ${CMAKE_SOURCE_DIR}/examples/rtm/mpi.c)
    target_link_libraries(varve-rtm-mpi PRIVATE rtm MPI::MPI_C)
endif()

# For the tests: the same kernels on the CPU, with a stand-in for the CUDA runtime. Its object comes first, so that the
# library's own is left out.
find_program(GXX_PROGRAM g++)
mark_as_advanced(GXX_PROGRAM)
if(VARVE_BUILD_TESTS AND GXX_PROGRAM)
    set(rtm_fake_object ${CMAKE_BINARY_DIR}/generated/rtm_prop_fake.o)
    set(rtm_fake_flags -x c++ -std=c++17 -g -O2 -ffp-contract=off -fno-exceptions -Wall -Wno-unknown-pragmas
        -I${CMAKE_SOURCE_DIR}/tests/fake/cudart -I${CMAKE_SOURCE_DIR}/examples/rtm -I${CMAKE_SOURCE_DIR}/include)
    if(VARVE_SANITIZE)
        list(APPEND rtm_fake_flags -fsanitize=${VARVE_SANITIZE} -fno-sanitize-recover=all)
    endif()
    add_custom_command(OUTPUT ${rtm_fake_object}
        COMMAND ${GXX_PROGRAM} ${rtm_fake_flags} -c -o ${rtm_fake_object}
        ${CMAKE_SOURCE_DIR}/examples/rtm/prop_cuda.cu
        DEPENDS ${rtm_cuda_sources} ${CMAKE_SOURCE_DIR}/tests/fake/cudart/cuda_runtime.h
        COMMENT "Compiling kernels of varve-rtm for the CPU" VERBATIM)
    set_source_files_properties(${rtm_fake_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_executable(varve-rtm-fake ${CMAKE_SOURCE_DIR}/examples/rtm/main.c ${rtm_fake_object})
    set_target_properties(varve-rtm-fake PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake)
    target_link_libraries(varve-rtm-fake PRIVATE rtm)
endif()
