# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

install(TARGETS varve_shared EXPORT varveTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS varve_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET varve_cli)
    install(TARGETS varve_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# Sizes for `varve bench paper`.
install(FILES bench/data/rtm-sizes-30x8.csv DESTINATION ${CMAKE_INSTALL_DATADIR}/varve)
if(EXISTS ${CMAKE_SOURCE_DIR}/include/varve)
    install(DIRECTORY include/varve DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
endif()

file(GLOB man1 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.1)
file(GLOB man3 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.3)
file(GLOB man5 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.5)
file(GLOB man7 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.7)
install(FILES ${man1} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${man3} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
install(FILES ${man5} DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${man7} DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)

set(varve_private_libs "-linih -lxxhash")
if(HAVE_LIBURING)
    string(APPEND varve_private_libs " -luring")
endif()
if(HAVE_HWLOC)
    string(APPEND varve_private_libs " -lhwloc")
endif()
# The prefix is found from where the .pc file lies, so that an installed tree can be moved.
file(RELATIVE_PATH VARVE_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" VARVE_PC_PREFIX "${VARVE_PC_PREFIX}")
configure_file(cmake/varve.pc.in ${CMAKE_BINARY_DIR}/varve.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/varve.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(varve_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/varve)
install(EXPORT varveTargets NAMESPACE varve:: DESTINATION ${varve_cmake_dir})
configure_package_config_file(cmake/varveConfig.cmake.in ${CMAKE_BINARY_DIR}/varveConfig.cmake
    INSTALL_DESTINATION ${varve_cmake_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/varveConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/varveConfig.cmake ${CMAKE_BINARY_DIR}/varveConfigVersion.cmake
    DESTINATION ${varve_cmake_dir})
