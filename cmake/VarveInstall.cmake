# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

# Components of the CMake package: one file of targets for each component that was built.
set(varve_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/varve)
foreach(pair varve:varve_shared veloc-client:varve_veloc mpi:varve_mpi fortran:varve_fortran fortran-mpi:varve_fortran_mpi)
    string(REGEX REPLACE ":.*" "" component ${pair})
    string(REGEX REPLACE ".*:" "" target ${pair})
    if(TARGET ${target})
        install(TARGETS ${target} EXPORT varve-${component}-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
        install(EXPORT varve-${component}-targets NAMESPACE varve:: DESTINATION ${varve_cmake_dir})
    endif()
endforeach()
install(TARGETS varve_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET varve_petsc)
    install(TARGETS varve_petsc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES include/veloc.h include/veloc.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/veloc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET varve_fortran)
    install(FILES ${CMAKE_BINARY_DIR}/fortran/varve.mod DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/varve)
endif()
if(TARGET varve_fortran_mpi)
    install(FILES ${CMAKE_BINARY_DIR}/fortran/varve_mpi.mod DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/varve)
endif()
# For compilers that cannot use these module files.
install(FILES src/fortran/varve.f90 src/fortran/array.c src/fortran/varve_mpi.f90 DESTINATION ${CMAKE_INSTALL_DATADIR}/varve/fortran)
install(TARGETS varve_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS varve_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS varve_lab_program RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/varve)
# Kernels for `varve bench blocks`.
if(TARGET bench_ooc_gpu)
    install(PROGRAMS ${CMAKE_BINARY_DIR}/bin/ooc_gpu DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/varve)
endif()
install(FILES packaging/completion/varve.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME varve)
install(FILES packaging/completion/_varve DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
# Sizes for `varve bench paper`.
install(FILES lab/data/rtm-sizes-30x8.csv DESTINATION ${CMAKE_INSTALL_DATADIR}/varve)
# The package for Python, in the folder where the system's Python looks below this prefix. It finds the library from there.
if(NOT VARVE_PYTHON_DIR)
    find_program(VARVE_PYTHON python3 HINTS /usr/bin)
    set(found lib/python3/dist-packages)
    if(VARVE_PYTHON)
        execute_process(COMMAND ${VARVE_PYTHON} -c "import site, sys; print(';'.join(p[len(sys.argv[1]) + 1:] for p in site.getsitepackages() if p.startswith(sys.argv[1] + '/lib/')))"
            ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE places OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        if(places)
            list(GET places 0 found)
        endif()
    endif()
    set(VARVE_PYTHON_DIR ${found} CACHE STRING "where the package for Python is installed, below the prefix" FORCE)
endif()
install(DIRECTORY python/varve DESTINATION ${VARVE_PYTHON_DIR} FILES_MATCHING PATTERN "*.py" PATTERN py.typed
        PATTERN __pycache__ EXCLUDE)
# Examples for the dataset cache: users copy and change them.
install(FILES examples/epochs.py examples/fwi_numpy.py examples/fwi_torch.py examples/resume.py examples/transformer.py
        examples/kubernetes.yaml docs/examples/varve-cached.service
        DESTINATION ${CMAKE_INSTALL_DATADIR}/varve/examples)
install(PROGRAMS docs/examples/slurm-prolog.sh docs/examples/slurm-epilog.sh
        DESTINATION ${CMAKE_INSTALL_DATADIR}/varve/examples)
set(varve_not_installed)
if(NOT TARGET varve_mpi)
    set(varve_not_installed PATTERN mpi.h EXCLUDE PATTERN mpi.hpp EXCLUDE)
endif()
if(EXISTS ${CMAKE_SOURCE_DIR}/include/varve)
    install(DIRECTORY include/varve DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" ${varve_not_installed})
endif()

# Man pages: scripts/man combines man/ with the headers and the tables of settings.
file(GLOB varve_man_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.[157] ${CMAKE_SOURCE_DIR}/include/varve/*.h)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man.stamp
    COMMAND ${CMAKE_SOURCE_DIR}/scripts/man $<TARGET_FILE:varve-docgen> ${CMAKE_BINARY_DIR}/man
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/man.stamp
    DEPENDS varve-docgen ${varve_man_sources} ${CMAKE_SOURCE_DIR}/docs/veloc.md ${CMAKE_SOURCE_DIR}/scripts/man
    ${CMAKE_SOURCE_DIR}/scripts/mangen ${CMAKE_SOURCE_DIR}/scripts/velocman
    COMMENT "Writing man pages" VERBATIM)
add_custom_target(varve_man ALL DEPENDS ${CMAKE_BINARY_DIR}/man.stamp)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})

set(varve_private_libs "-linih -lxxhash")
if(HAVE_LIBURING)
    string(APPEND varve_private_libs " -luring")
endif()
if(HAVE_HWLOC)
    string(APPEND varve_private_libs " -lhwloc")
endif()
if(HAVE_ISAL)
    string(APPEND varve_private_libs " -lisal")
endif()
# The prefix follows from the folder of the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH VARVE_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" VARVE_PC_PREFIX "${VARVE_PC_PREFIX}")
configure_file(cmake/varve.pc.in ${CMAKE_BINARY_DIR}/varve.pc @ONLY)
foreach(name varve-mpi varve-fortran varve-fortran-mpi veloc-client)
    configure_file(cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
endforeach()
if(TARGET varve_mpi)
    install(FILES ${CMAKE_BINARY_DIR}/varve-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
foreach(name fortran fortran-mpi)
    string(REPLACE "-" "_" target varve_${name})
    if(TARGET ${target})
        install(FILES ${CMAKE_BINARY_DIR}/varve-${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    endif()
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/varve.pc ${CMAKE_BINARY_DIR}/veloc-client.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(cmake/varveConfig.cmake.in ${CMAKE_BINARY_DIR}/varveConfig.cmake
    INSTALL_DESTINATION ${varve_cmake_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/varveConfigVersion.cmake
    COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/varveConfig.cmake ${CMAKE_BINARY_DIR}/varveConfigVersion.cmake
    DESTINATION ${varve_cmake_dir})
