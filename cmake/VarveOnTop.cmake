# SPDX-License-Identifier: Apache-2.0
#
# Libraries on top of libvarve.so, which use its public API alone: libvarve-mpi.so, where there is an MPI;
# libveloc-client.so, VELOC's interface; libvarve-petsc.so, where there is PETSc; libvarve-fortran.so, where there is a Fortran compiler; and
# libvarve-fortran-mpi.so, where there are both. libveloc-client.so is not linked with MPI: it loads libvarve-mpi.so
# when it is given a communicator. Each but libvarve-petsc.so is a component of the CMake package, and its target carries what a program needs; the MPI
# is that of the program's language, which varveConfig.cmake finds.

function(varve_on_top target name map)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} C_VISIBILITY_PRESET hidden LINKER_LANGUAGE C
        INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${map})
    target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--as-needed -Wl,-z,nodelete)
    if(NOT VARVE_SANITIZE)
        target_link_options(${target} PRIVATE -Wl,-z,defs)
    endif()
    target_link_libraries(${target} PUBLIC varve_shared PRIVATE $<BUILD_INTERFACE:varve_flags> ${CMAKE_DL_LIBS})
endfunction()

if(HAVE_MPI)
    file(GLOB varve_mpi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/mpi/*.c)
    # Sets of processors as text: only files of the base without dependencies.
    add_library(varve_mpi SHARED ${varve_mpi_sources} ${CMAKE_SOURCE_DIR}/src/base/cpus.c)
    varve_on_top(varve_mpi varve-mpi ${CMAKE_SOURCE_DIR}/src/mpi/libvarve-mpi.map)
    set_target_properties(varve_mpi PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
        EXPORT_NAME mpi)
    target_link_libraries(varve_mpi PRIVATE $<BUILD_INTERFACE:MPI::MPI_C>)
endif()

# Programs linked with VELOC's own library find this one under the same name, so it has no number.
file(GLOB varve_veloc_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/veloc/*.c)
if(NOT HAVE_MPI)
    list(FILTER varve_veloc_sources EXCLUDE REGEX "/init_mpi\\.c$")
endif()
add_library(varve_veloc SHARED ${varve_veloc_sources})
varve_on_top(varve_veloc veloc-client ${CMAKE_SOURCE_DIR}/src/veloc/libveloc-client.map)
set_target_properties(varve_veloc PROPERTIES EXPORT_NAME veloc-client)
target_include_directories(varve_veloc SYSTEM PRIVATE ${INIH_INCLUDE_DIR})
target_link_libraries(varve_veloc PRIVATE $<BUILD_INTERFACE:${INIH_LIBRARY}> m)
if(HAVE_MPI)
    # Types only.
    target_include_directories(varve_veloc SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
    add_dependencies(varve_veloc varve_mpi)
endif()

# For tests under sanitizers, which need the objects.
add_library(varve_veloc_static STATIC EXCLUDE_FROM_ALL ${varve_veloc_sources})
target_link_libraries(varve_veloc_static PUBLIC varve_static m)
if(HAVE_MPI)
    target_include_directories(varve_veloc_static SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
endif()

# varve_fortran_library TARGET NAME EXPORT SOURCE ...
function(varve_fortran_library target name export)
    add_library(${target} SHARED ${ARGN})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME ${export} LINKER_LANGUAGE Fortran INSTALL_RPATH "$ORIGIN"
        Fortran_MODULE_DIRECTORY ${CMAKE_BINARY_DIR}/fortran)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:Fortran>:-Wall -Wextra -std=f2018>
        $<$<AND:$<COMPILE_LANGUAGE:Fortran>,$<BOOL:${VARVE_WERROR}>>:-Werror> $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra>)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/fortran>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/varve>)
    target_link_libraries(${target} PUBLIC varve_shared)
    if(VARVE_SANITIZE)
        target_link_options(${target} PRIVATE -fsanitize=${VARVE_SANITIZE})
    endif()
endfunction()

# A plug-in that PETSc opens by its path: no number, and no program links with it.
if(HAVE_PETSC)
    add_library(varve_petsc MODULE ${CMAKE_SOURCE_DIR}/src/petsc/trajectory.c)
    varve_on_top(varve_petsc varve-petsc ${CMAKE_SOURCE_DIR}/src/petsc/libvarve-petsc.map)
    set_target_properties(varve_petsc PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
    target_link_libraries(varve_petsc PRIVATE $<BUILD_INTERFACE:PkgConfig::PETSC> $<BUILD_INTERFACE:MPI::MPI_C>)
endif()

if(HAVE_FORTRAN)
    varve_fortran_library(varve_fortran varve-fortran fortran ${CMAKE_SOURCE_DIR}/src/fortran/varve.f90
        ${CMAKE_SOURCE_DIR}/src/fortran/array.c)
endif()
if(HAVE_FORTRAN_MPI)
    # Calls libvarve-mpi, and needs no module or library of the MPI's own Fortran.
    varve_fortran_library(varve_fortran_mpi varve-fortran-mpi fortran-mpi ${CMAKE_SOURCE_DIR}/src/fortran/varve_mpi.f90)
    target_link_libraries(varve_fortran_mpi PUBLIC varve_fortran varve_mpi)
endif()
