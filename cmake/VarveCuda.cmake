# SPDX-License-Identifier: Apache-2.0
#
# Programs written in CUDA, as users of the library write them: lab/bench/*.cu, lab/ooc/ooc_gpu.cu, examples/*.cu and tests/gpu/*.cu. nvcc compiles and links
# them, with the static runtime, so that they run on machines with a driver only. Without nvcc they are not built.

if(NOT HAVE_NVCC OR VARVE_SANITIZE)
    return()
endif()

set(varve_cuda_libraries)
foreach(name INIH XXHASH LIBURING HWLOC ISAL)
    if(HAVE_${name})
        list(APPEND varve_cuda_libraries ${${name}_LIBRARY})
    endif()
endforeach()
# Examples that run anywhere are in C, and a .cu file beside them includes them, as tests include examples.
file(GLOB varve_device_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/varve/*.h
    ${CMAKE_SOURCE_DIR}/include/varve/detail/*.h ${CMAKE_SOURCE_DIR}/examples/*.c ${CMAKE_SOURCE_DIR}/examples/*.cu)

# varve_cuda_program(TARGET source folder [libraries])
function(varve_cuda_program target source folder)
    get_filename_component(name ${source} NAME_WE)
    set(program ${folder}/${name})
    add_custom_command(OUTPUT ${program}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
        COMMAND ${NVCC_PROGRAM} -std=c++17 -O3 -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src
        -I${CMAKE_SOURCE_DIR}/tests -I${CMAKE_SOURCE_DIR}
        -gencode "arch=compute_90,code=[sm_90,compute_90]" -Xcompiler -Wall,-Wno-unused-function,-pthread
        -o ${program} ${source} ${ARGN} $<TARGET_FILE:varve_static> ${varve_cuda_libraries} -lm -ldl -lpthread
        DEPENDS ${source} varve_static ${varve_device_headers} ${CMAKE_SOURCE_DIR}/src/base/pattern.h
        COMMENT "Compiling ${name}.cu" VERBATIM)
    add_custom_target(${target} ALL DEPENDS ${program})
endfunction()

# Debug builds are not measured.
set(varve_cuda_benches)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    file(GLOB varve_cuda_benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lab/bench/*.cu ${CMAKE_SOURCE_DIR}/lab/ooc/ooc_gpu.cu ${CMAKE_SOURCE_DIR}/examples/*.cu)
endif()
foreach(source ${varve_cuda_benches})
    get_filename_component(name ${source} NAME_WE)
    # The options, and all of `varve bench blocks` except the kernels; examples use neither.
    varve_cuda_program(bench_${name} ${source} ${CMAKE_BINARY_DIR}/bin $<TARGET_FILE:varve_lab> $<TARGET_FILE:varve_tool>)
    add_dependencies(bench_${name} varve_lab varve_tool)
endforeach()

# Each is a test, as those in C are; without a GPU they are skipped.
if(VARVE_BUILD_TESTS)
    file(GLOB varve_cuda_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/*.cu)
    foreach(source ${varve_cuda_tests})
        get_filename_component(name ${source} NAME_WE)
        varve_cuda_program(t_gpu_${name} ${source} ${CMAKE_BINARY_DIR}/tests/gpu
            $<TARGET_FILE:varve_testlib>)
        add_dependencies(t_gpu_${name} varve_testlib)
        add_test(NAME gpu/${name} COMMAND ${CMAKE_BINARY_DIR}/tests/gpu/${name} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
        set_tests_properties(gpu/${name} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
    endforeach()
endif()
