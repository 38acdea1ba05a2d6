# SPDX-License-Identifier: Apache-2.0
#
# examples/rtm: varve-rtm, and varve-rtm-mpi where there is MPI. Found and used when present: OpenMP (threads), nvcc
# (kernels for a GPU, with the static runtime library that comes with it), zfp (compression), MPI.

foreach(name ZFP MPI)
    set(VARVE_WITH_${name} AUTO CACHE STRING "use it: AUTO, ON or OFF")
    set_property(CACHE VARVE_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
endforeach()

file(GLOB rtm_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/rtm/*.c)
list(FILTER rtm_sources EXCLUDE REGEX "/(main|no_cuda|mpi)\\.c$")
add_library(rtm STATIC ${rtm_sources})
target_include_directories(rtm PUBLIC ${CMAKE_SOURCE_DIR}/examples/rtm)
target_link_libraries(rtm PUBLIC varve_static m)
# CPU and GPU round alike only if neither contracts a product and a sum.
target_compile_options(rtm PRIVATE -ffp-contract=off)
if(NOT VARVE_SANITIZE)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/examples/rtm/prop_cpu.c PROPERTIES COMPILE_OPTIONS "-O3")
endif()

# ThreadSanitizer does not know how OpenMP's threads wait for each other.
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

target_sources(rtm PRIVATE ${CMAKE_SOURCE_DIR}/examples/rtm/no_cuda.c)

add_executable(varve-rtm ${CMAKE_SOURCE_DIR}/examples/rtm/main.c)
target_link_libraries(varve-rtm PRIVATE rtm)
