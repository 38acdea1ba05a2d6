# SPDX-License-Identifier: Apache-2.0
#
# libvarve-preload.so goes into programs of others: it needs libc and nothing else, and is never built with a
# sanitizer, which those programs would have to be as well. Hooks have the names of libc's functions, so libc's
# headers must not add checks to these functions or rename them.

file(GLOB varve_preload_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/preload/*.c)
add_library(varve_preload SHARED ${varve_preload_sources})
set_target_properties(varve_preload PROPERTIES OUTPUT_NAME varve-preload C_VISIBILITY_PRESET hidden
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/preload/libvarve-preload.map)
target_include_directories(varve_preload PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_definitions(varve_preload PRIVATE _GNU_SOURCE=)
target_compile_options(varve_preload PRIVATE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla
    -fno-strict-aliasing -U_FORTIFY_SOURCE $<$<BOOL:${VARVE_WERROR}>:-Werror>)
target_link_options(varve_preload PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/preload/libvarve-preload.map
    -Wl,--as-needed -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,now)
target_link_libraries(varve_preload PRIVATE ${CMAKE_DL_LIBS})
