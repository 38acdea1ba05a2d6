# SPDX-License-Identifier: Apache-2.0
#
# The tool (cli/), the experiments (lab/), and the small programs of lab/bench. cli/README.md and lab/README.md say which part may
# use which: lab uses the three folders of cli/ that are a library, cli/ uses nothing of lab/.

file(GLOB varve_tool_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cli/*/*.c)
# Parts of the pages: embedded, so that the tool is one file and a page needs no other.
foreach(path cli/common/page.css cli/report/trace_page.js)
    get_filename_component(name ${path} NAME)
    string(REPLACE "." "_" array ${name})
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/generated/${array}.c
        COMMAND ${CMAKE_COMMAND} -DINPUT=${CMAKE_SOURCE_DIR}/${path}
        -DOUTPUT=${CMAKE_BINARY_DIR}/generated/${array}.c -DNAME=${array} -P ${CMAKE_SOURCE_DIR}/cmake/EmbedBytes.cmake
        DEPENDS ${CMAKE_SOURCE_DIR}/${path} ${CMAKE_SOURCE_DIR}/cmake/EmbedBytes.cmake
        COMMENT "Embedding ${name}" VERBATIM)
    list(APPEND varve_tool_sources ${CMAKE_BINARY_DIR}/generated/${array}.c)
endforeach()
add_library(varve_tool STATIC ${varve_tool_sources})
target_include_directories(varve_tool PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(varve_tool PUBLIC varve_static m)

file(GLOB varve_lab_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lab/*/*.c)
list(FILTER varve_lab_sources EXCLUDE REGEX "/lab/bench/")
include(VarveLabKernels)
add_library(varve_lab STATIC ${varve_lab_sources})
target_link_libraries(varve_lab PUBLIC varve_tool)

file(GLOB varve_cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cli/*.c)
add_executable(varve_cli ${varve_cli_sources})
set_target_properties(varve_cli PROPERTIES OUTPUT_NAME varve)
target_link_libraries(varve_cli PRIVATE varve_tool ${CMAKE_DL_LIBS})

# `varve bench` and others are in a program of their own: beside `varve` in a build tree, in libexec where it is installed.
file(GLOB varve_lab_program_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lab/*.c)
add_executable(varve_lab_program ${varve_lab_program_sources})
set_target_properties(varve_lab_program PROPERTIES OUTPUT_NAME varve-lab)
target_link_libraries(varve_lab_program PRIVATE varve_lab ${CMAKE_DL_LIBS})

# Builds with a sanitizer are not measured.
set(varve_bench_sources)
if(NOT VARVE_SANITIZE)
    file(GLOB varve_bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lab/bench/*.c)
endif()
foreach(source ${varve_bench_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE varve_lab)
endforeach()
