# SPDX-License-Identifier: Apache-2.0
#
# Every .c file under tests/{unit,model,fault,crash,explore,gpu} that has a main is one test; the others, and tests/*.c,
# are helpers that all tests link. A test is known by its path without tests/ and .c, and labelled with each folder
# of that path. It is also labelled "threads" if it includes something that has threads; ThreadSanitizer runs only these.
# Exit status 77 means skipped. Shell tests live in tests/lint and tests/cli.

set(test_folders unit model fault crash explore gpu)
set(test_patterns)
foreach(folder ${test_folders})
    list(APPEND test_patterns ${CMAKE_SOURCE_DIR}/tests/${folder}/*.c)
endforeach()
file(GLOB_RECURSE test_files CONFIGURE_DEPENDS ${test_patterns})
file(GLOB helper_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*.c)
file(GLOB shell_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/lint/*.sh
    ${CMAKE_SOURCE_DIR}/tests/cli/*.sh ${CMAKE_SOURCE_DIR}/tests/compat/*.sh
    ${CMAKE_SOURCE_DIR}/tests/preload/*.sh ${CMAKE_SOURCE_DIR}/tests/dataset/*.sh)

set(test_environment "SOURCE_DIR=${CMAKE_SOURCE_DIR}" "BUILD_DIR=${CMAKE_BINARY_DIR}"
    "VARVE_BIN=${CMAKE_BINARY_DIR}/bin/varve" "CC=${CMAKE_C_COMPILER}" "VARVE_SANITIZE=${VARVE_SANITIZE}"
    # Threads that wait for each other yield the processors to other tests.
    "OMP_WAIT_POLICY=passive"
    "UBSAN_OPTIONS=print_stacktrace=1" "ASAN_OPTIONS=detect_stack_use_after_return=1"
    # Crash tests start threads in forked children.
    "TSAN_OPTIONS=die_after_fork=0:second_deadlock_stack=1")

set(program_files)
foreach(file ${test_files})
    file(STRINGS ${file} has_main REGEX "^int main\\(")
    if(has_main)
        list(APPEND program_files ${file})
    else()
        list(APPEND helper_files ${file})
    endif()
endforeach()

add_library(varve_testlib STATIC ${helper_files})
target_include_directories(varve_testlib PUBLIC ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR})
target_link_libraries(varve_testlib PUBLIC varve_lab varve_static m ${CMAKE_DL_LIBS})

# The stand-in for the CUDA driver, which tests load instead of libcuda.so.1: one like new drivers, one like old
# ones. It is not installed.
file(GLOB fake_cuda_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fake/cuda/*.c)
foreach(age new old)
    string(REPLACE "new" "" folder ${age})
    add_library(fake_cuda_${age} SHARED ${fake_cuda_files})
    set_target_properties(fake_cuda_${age} PROPERTIES OUTPUT_NAME cuda SOVERSION 1
        C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake/${folder})
    # Thread-local memory that is made at the first use is freed behind ThreadSanitizer's back.
    target_compile_options(fake_cuda_${age} PRIVATE -ftls-model=initial-exec)
    target_link_options(fake_cuda_${age} PRIVATE -Wl,-z,nodelete)
    target_link_libraries(fake_cuda_${age} PRIVATE varve_flags ${CMAKE_DL_LIBS})
endforeach()
target_compile_definitions(fake_cuda_old PRIVATE FAKE_CUDA_OLD=1)

# A stand-in for libcufile, under the name by which the library looks for it. Tests load it by its path first.
add_library(varve_fake_cufile MODULE ${CMAKE_SOURCE_DIR}/tests/fake/libcufile.c)
target_link_libraries(varve_fake_cufile PRIVATE varve_flags)
target_link_options(varve_fake_cufile PRIVATE -Wl,-soname,libcufile.so.0)
set_target_properties(varve_fake_cufile PROPERTIES OUTPUT_NAME cufile SUFFIX .so.0
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake/cufile)

# Programs that the shell tests of the preloaded library run: a daemon of one node, and programs that it is loaded
# into, which contain no code of ours and no sanitizer.
file(GLOB preload_programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/preload/*.c ${CMAKE_SOURCE_DIR}/tests/dataset/*.c)
foreach(file ${preload_programs})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests ${file})
    get_filename_component(folder ${name} DIRECTORY)
    get_filename_component(name ${file} NAME_WE)
    add_executable(t_${folder}_${name} ${file})
    set_target_properties(t_${folder}_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${folder})
    if(name STREQUAL "one_node")
        target_link_libraries(t_${folder}_${name} PRIVATE varve_static)
    else()
        target_compile_definitions(t_${folder}_${name} PRIVATE _GNU_SOURCE=)
        target_compile_options(t_${folder}_${name} PRIVATE -Wall -Wextra -pthread)
        target_link_options(t_${folder}_${name} PRIVATE -pthread)
    endif()
endforeach()

foreach(file ${program_files})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests ${file})
    string(REGEX REPLACE "\\.c$" "" name ${name})
    string(REPLACE "/" "_" target ${name})
    get_filename_component(folder ${name} DIRECTORY)
    get_filename_component(base ${name} NAME)
    string(REPLACE "/" ";" labels ${folder})
    file(STRINGS ${file} has_threads
        REGEX "#include.*(pthread|engine/runtime|device/|store/|net/|s3/|dataset/node|nodes\.h|varve/|trace/|base/(lock|copy|log)|veloc)")
    if(has_threads)
        list(APPEND labels threads)
    elseif(VARVE_SANITIZE MATCHES "thread")
        continue()
    endif()
    add_executable(t_${target} ${file})
    set_target_properties(t_${target} PROPERTIES OUTPUT_NAME ${base}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${folder})
    target_link_libraries(t_${target} PRIVATE varve_testlib)
    if(name MATCHES "^fault/(commit|partner|remote|vector)_memory$")
        target_link_options(t_${target} PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign)
    endif()
    if(name MATCHES "^(unit|gpu)/rtm")
        target_link_libraries(t_${target} PRIVATE rtm)
    endif()
    if(name MATCHES "^(unit|gpu)/kirchhoff")
        target_link_libraries(t_${target} PRIVATE kirchhoff)
    endif()
    if(file MATCHES "/tests/(unit/veloc/|model/library)")
        target_link_libraries(t_${target} PRIVATE varve_veloc_static)
    endif()
    if(file MATCHES "/tests/(unit/(device/|ckpt/|veloc/|lab/(shot_run|probe_baseline|baseline_uvm))|fault/)")
        add_dependencies(t_${target} fake_cuda_new fake_cuda_old)
    endif()
    add_test(NAME ${name} COMMAND t_${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" SKIP_RETURN_CODE 77
        ENVIRONMENT "${test_environment}")
    if(folder STREQUAL "gpu")
        # Here they load the stand-in for the driver; scripts/gpu-test runs them on a GPU.
        add_dependencies(t_${target} fake_cuda_new)
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/fake")
    endif()
endforeach()

# Tests that honour VARVE_TEST_DEVICE run a second time on the CUDA backend, the stand-in for its driver.
set(cuda_tests unit/device/conformance unit/ckpt/idle unit/ckpt/tiers unit/ckpt/regions unit/ckpt/life unit/ckpt/stress
    unit/ckpt/threads unit/ckpt/texts unit/ckpt/badinput unit/ckpt/gds fault/ckpt crash/kill)
foreach(name ${cuda_tests})
    string(REPLACE "/" "_" target ${name})
    if(NOT TARGET t_${target})
        continue()
    endif()
    get_filename_component(folder ${name} DIRECTORY)
    string(REPLACE "/" ";" labels ${folder})
    add_test(NAME "${name} [cuda]" COMMAND t_${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    add_dependencies(t_${target} fake_cuda_new)
    set_tests_properties("${name} [cuda]" PROPERTIES LABELS "${labels};threads;cuda" SKIP_RETURN_CODE 77
        ENVIRONMENT "${test_environment};VARVE_TEST_DEVICE=cuda;LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/fake")
endforeach()

# Tests that honour VARVE_TEST_REMOTE run a second time with copies in an object store, tests/s3_server.py.
if(HAVE_LIBCURL)
    foreach(name unit/ckpt/remote unit/ckpt/parts)
        string(REPLACE "/" "_" target ${name})
        add_test(NAME "${name} [s3]" COMMAND t_${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
        set_tests_properties("${name} [s3]" PROPERTIES LABELS "unit;ckpt;threads;s3" SKIP_RETURN_CODE 77
            ENVIRONMENT "${test_environment};VARVE_TEST_REMOTE=s3")
    endforeach()
endif()

# Some run once more with a file for each record at level cached.
foreach(name unit/ckpt/spill_layers unit/vector/vector)
    string(REPLACE "/" "_" target ${name})
    add_test(NAME "${name} [record]" COMMAND t_${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties("${name} [record]" PROPERTIES LABELS "unit;ckpt;threads" SKIP_RETURN_CODE 77
        ENVIRONMENT "${test_environment};VARVE_SPILL=record")
endforeach()

# cuda.h, to compare our declarations with; nothing else uses it.
get_filename_component(nvcc_folder "${NVCC_PROGRAM}" DIRECTORY)
find_path(CUDA_INCLUDE_DIR cuda.h HINTS ${nvcc_folder}/../include ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
    PATH_SUFFIXES include)
mark_as_advanced(CUDA_INCLUDE_DIR)
if(CUDA_INCLUDE_DIR AND TARGET t_unit_device_cuda_decls)
    target_include_directories(t_unit_device_cuda_decls SYSTEM PRIVATE ${CUDA_INCLUDE_DIR})
endif()

foreach(file ${shell_files})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests ${file})
    string(REGEX REPLACE "\\.sh$" "" name ${name})
    get_filename_component(folder ${name} DIRECTORY)
    add_test(NAME ${name} COMMAND bash ${file} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES LABELS ${folder} SKIP_RETURN_CODE 77
        ENVIRONMENT "${test_environment}")
endforeach()

# The package for Python, with the Python of the system's modules; each file of tests is a program. A library with
# a sanitizer in it cannot be loaded there.
find_program(VARVE_TEST_PYTHON python3 HINTS /usr/bin)
file(GLOB python_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/python/test_*.py)
if(VARVE_TEST_PYTHON AND NOT VARVE_SANITIZE)
    foreach(file ${python_files})
        get_filename_component(name ${file} NAME_WE)
        string(REPLACE "test_" "" name ${name})
        add_test(NAME python/${name} COMMAND ${VARVE_TEST_PYTHON} -X faulthandler ${file} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
        set_tests_properties(python/${name} PROPERTIES LABELS "python" SKIP_RETURN_CODE 77 ENVIRONMENT "${test_environment};\
VARVE_LIBRARY=$<TARGET_SONAME_FILE:varve_shared>;PYTHONPATH=${CMAKE_SOURCE_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
    endforeach()
endif()

# The longest begin first, so that none of them runs alone at the end. In this order tests that compute stand between
# tests that wait.
set(cost 1000)
foreach(name lint/without compat/heat compat/petsc lint/portable cli/cached_nodes lint/clang compat/partner crash/matrix cli/ooc
    unit/rtm/identical python/offload cli/report python/examples unit/kirchhoff/identical unit/ckpt/partner unit/ckpt/parity unit/ooc/blocks cli/rtm cli/examples
    explore/interleavings fault/os unit/ooc/tables cli/shot cli/bench_paper dataset/faults_tcp
    unit/gpufile/errors cli/top unit/gpufile/reading cli/demo unit/cli/probe_device fault/ckpt unit/dataset/node
    cli/probe unit/net/talk crash/power unit/ckpt/tiers unit/ckpt/heal unit/engine/runtime_grow "fault/ckpt [cuda]"
    "unit/ckpt/tiers [cuda]" crash/kill lint/headers cli/kirchhoff unit/ckpt/helper_process
    cli/engines crash/ranks dataset/split cli/cached_forget dataset/lost_tcp dataset/lost_ucx cli/cached lint/format unit/lab/shot_run model/library model/random)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${cost})
        math(EXPR cost "${cost} - 1")
    endif()
endforeach()
# Tests that compile with two jobs; the first two build the library once more, which `make test` leaves to `make test-all`.
foreach(name lint/without lint/portable lint/clang)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES PROCESSORS 2)
    endif()
endforeach()
set_tests_properties(lint/without lint/portable lint/packages PROPERTIES LABELS "lint;builds")
