# SPDX-License-Identifier: Apache-2.0
#
# Finds the libraries that Varve links. Required: inih and xxHash. Used when present: liburing, hwloc, ISA-L, MPI,
# UCX, PETSc, libcurl. The result is the interface library varve_deps. VarveKernels.cmake
# finds nvcc.

if(VARVE_PORTABLE)
    set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()

add_library(varve_deps INTERFACE)
target_link_libraries(varve_deps INTERFACE ${CMAKE_DL_LIBS})

# AUTO: used if found. ON: an error if it is not found. OFF: not searched.
foreach(name LIBURING HWLOC ISAL MPI UCX PETSC LIBCURL)
    set(VARVE_WITH_${name} AUTO CACHE STRING "use it: AUTO, ON or OFF")
    set_property(CACHE VARVE_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
endforeach()

# Folders besides CMake's own (CMAKE_PREFIX_PATH among them): those of pkg-config, and those
# of the compiler.
find_package(PkgConfig QUIET)

function(varve_find name header library with module package)
    string(TOUPPER ${name} upper)
    set(HAVE_${upper} 0 PARENT_SCOPE)
    if("${with}" STREQUAL "OFF")
        return()
    endif()
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(PC_${upper} QUIET ${module})
    endif()
    find_path(${upper}_INCLUDE_DIR ${header} HINTS ${PC_${upper}_INCLUDE_DIRS} ENV C_INCLUDE_PATH ENV CPATH)
    find_library(${upper}_LIBRARY ${library} HINTS ${PC_${upper}_LIBRARY_DIRS} ENV LIBRARY_PATH)
    mark_as_advanced(${upper}_INCLUDE_DIR ${upper}_LIBRARY)
    if(${upper}_INCLUDE_DIR AND ${upper}_LIBRARY)
        set(HAVE_${upper} 1 PARENT_SCOPE)
    elseif("${with}" STREQUAL "AUTO")
        message(STATUS "${name} was not found (Debian: ${package}); what needs it is off")
    else()
        message(FATAL_ERROR "${name} was not found. Debian has it as ${package}; if it lies in a folder of its own, "
            "name that folder in CMAKE_PREFIX_PATH, or its pkgconfig folder in PKG_CONFIG_PATH.")
    endif()
endfunction()

varve_find(inih ini.h inih ON inih libinih-dev)
varve_find(xxhash xxhash.h xxhash ON libxxhash libxxhash-dev)
varve_find(liburing liburing.h uring "${VARVE_WITH_LIBURING}" liburing liburing-dev)
varve_find(hwloc hwloc.h hwloc "${VARVE_WITH_HWLOC}" hwloc libhwloc-dev)
varve_find(isal isa-l.h isal "${VARVE_WITH_ISAL}" libisal libisal-dev)

# A static hwloc needs all libraries that its builder enabled, so it is used only if a program links with it.
if(VARVE_PORTABLE AND HAVE_HWLOC)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${HWLOC_INCLUDE_DIR})
    set(CMAKE_REQUIRED_LIBRARIES ${HWLOC_LIBRARY} m ${CMAKE_DL_LIBS} -pthread)
    check_c_source_compiles("#include <hwloc.h>
        int main(void) { hwloc_topology_t t; return hwloc_topology_init(&t) + hwloc_topology_load(t); }"
        VARVE_STATIC_HWLOC_LINKS)
    unset(CMAKE_REQUIRED_INCLUDES)
    unset(CMAKE_REQUIRED_LIBRARIES)
    if(NOT VARVE_STATIC_HWLOC_LINKS)
        message(STATUS "the static hwloc needs further libraries; the portable build goes without hwloc")
        set(HAVE_HWLOC 0)
    endif()
endif()

foreach(name INIH XXHASH LIBURING HWLOC ISAL)
    if(HAVE_${name})
        target_include_directories(varve_deps SYSTEM INTERFACE ${${name}_INCLUDE_DIR})
        target_link_libraries(varve_deps INTERFACE ${${name}_LIBRARY})
        target_compile_definitions(varve_deps INTERFACE HAVE_${name}=1)
    endif()
endforeach()
if(VARVE_PORTABLE)
    target_link_libraries(varve_deps INTERFACE m)
endif()

# For libvarve-mpi alone, which is never portable: an MPI belongs to the machine.
set(HAVE_MPI 0)
if(NOT VARVE_WITH_MPI STREQUAL "OFF")
    if(VARVE_PORTABLE)
        set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
    endif()
    set(MPI_CXX_SKIP_MPICXX ON)
    find_package(MPI QUIET COMPONENTS C)
    if(VARVE_PORTABLE)
        set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
    endif()
    if(MPI_C_FOUND)
        set(HAVE_MPI 1)
    elseif(VARVE_WITH_MPI STREQUAL "ON")
        message(FATAL_ERROR "VARVE_WITH_MPI is ON, but no MPI was found. Debian has libopenmpi-dev and libmpich-dev; "
            "MPI_C_COMPILER may name the mpicc to use.")
    else()
        message(STATUS "no MPI (Debian: libopenmpi-dev or libmpich-dev); libvarve-mpi and VELOC_Init are off")
    endif()
endif()

# For libvarve-petsc alone. Its private headers are needed, which are installed with the others.
set(HAVE_PETSC 0)
if(NOT VARVE_WITH_PETSC STREQUAL "OFF")
    if(PKG_CONFIG_FOUND AND HAVE_MPI AND NOT VARVE_PORTABLE)
        pkg_check_modules(PETSC QUIET IMPORTED_TARGET PETSc>=3.18)
    endif()
    if(TARGET PkgConfig::PETSC)
        set(HAVE_PETSC 1)
    elseif(VARVE_WITH_PETSC STREQUAL "ON")
        message(FATAL_ERROR "VARVE_WITH_PETSC is ON, but pkg-config finds no PETSc of 3.18 or later, or there is no MPI. "
            "Debian has petsc-dev; otherwise name PETSc's pkgconfig folder in PKG_CONFIG_PATH.")
    else()
        message(STATUS "no PETSc (Debian: petsc-dev); libvarve-petsc is off")
    endif()
endif()

# Only its headers: the library is opened at run time.
set(HAVE_UCX 0)
if(NOT VARVE_WITH_UCX STREQUAL "OFF")
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(PC_UCX QUIET ucx)
    endif()
    find_path(UCX_INCLUDE_DIR ucp/api/ucp.h HINTS ${PC_UCX_INCLUDE_DIRS} ENV C_INCLUDE_PATH ENV CPATH)
    mark_as_advanced(UCX_INCLUDE_DIR)
    if(UCX_INCLUDE_DIR)
        set(HAVE_UCX 1)
        target_include_directories(varve_deps SYSTEM INTERFACE ${UCX_INCLUDE_DIR})
        target_compile_definitions(varve_deps INTERFACE HAVE_UCX=1)
    elseif(VARVE_WITH_UCX STREQUAL "ON")
        message(FATAL_ERROR "VARVE_WITH_UCX is ON, but ucp/api/ucp.h was not found. Debian has it in libucx-dev.")
    else()
        message(STATUS "no UCX headers (Debian: libucx-dev); nodes talk over TCP alone")
    endif()
endif()

# Likewise.
set(HAVE_LIBCURL 0)
if(NOT VARVE_WITH_LIBCURL STREQUAL "OFF")
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(PC_LIBCURL QUIET libcurl>=7.68)
    endif()
    find_path(LIBCURL_INCLUDE_DIR curl/curl.h HINTS ${PC_LIBCURL_INCLUDE_DIRS} ENV C_INCLUDE_PATH ENV CPATH)
    mark_as_advanced(LIBCURL_INCLUDE_DIR)
    if(LIBCURL_INCLUDE_DIR)
        set(HAVE_LIBCURL 1)
        target_include_directories(varve_deps SYSTEM INTERFACE ${LIBCURL_INCLUDE_DIR})
        target_compile_definitions(varve_deps INTERFACE HAVE_LIBCURL=1)
    elseif(VARVE_WITH_LIBCURL STREQUAL "ON")
        message(FATAL_ERROR "VARVE_WITH_LIBCURL is ON, but curl/curl.h was not found. Debian has it in libcurl4-openssl-dev.")
    else()
        message(STATUS "no libcurl headers (Debian: libcurl4-openssl-dev); copies in object stores (s3://) are off")
    endif()
endif()

# The Fortran module. Its C part needs the descriptors of the same compiler, so that a compiler of another family than
# that of C is left to the user, who gets the sources.
set(HAVE_FORTRAN 0)
set(VARVE_WITH_FORTRAN AUTO CACHE STRING "build the Fortran module: AUTO, ON or OFF")
set_property(CACHE VARVE_WITH_FORTRAN PROPERTY STRINGS AUTO ON OFF)
if(NOT VARVE_WITH_FORTRAN STREQUAL "OFF")
    include(CheckLanguage)
    include(CheckIncludeFile)
    # The cache says that there was none; one may have been installed since.
    if(NOT CMAKE_Fortran_COMPILER)
        unset(CMAKE_Fortran_COMPILER CACHE)
    endif()
    check_language(Fortran)
    if(CMAKE_Fortran_COMPILER)
        enable_language(Fortran)
        if(NOT VARVE_FORTRAN_BINDING)
            unset(VARVE_FORTRAN_BINDING CACHE)
        endif()
        check_include_file(ISO_Fortran_binding.h VARVE_FORTRAN_BINDING)
    endif()
    if(CMAKE_Fortran_COMPILER AND VARVE_FORTRAN_BINDING AND CMAKE_Fortran_COMPILER_ID STREQUAL CMAKE_C_COMPILER_ID)
        set(HAVE_FORTRAN 1)
    elseif(VARVE_WITH_FORTRAN STREQUAL "ON")
        message(FATAL_ERROR "VARVE_WITH_FORTRAN is ON, but there is no Fortran compiler of the family of the C compiler, "
            "or no ISO_Fortran_binding.h. Debian has gfortran.")
    else()
        message(STATUS "no Fortran compiler that suits the C compiler (Debian: gfortran); the Fortran module is off")
    endif()
endif()

# libvarve-fortran-mpi needs both. Its module passes communicators as C's int: an MPI made for Fortran integers of 64 bits has
# another MPI_Fint and cannot be used.
set(HAVE_FORTRAN_MPI 0)
if(HAVE_FORTRAN AND HAVE_MPI)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${MPI_C_INCLUDE_DIRS})
    check_c_source_compiles("#include <mpi.h>
        _Static_assert(sizeof(MPI_Fint) == sizeof(int), \"\");
        int main(void) { return 0; }" VARVE_MPI_FINT_IS_INT)
    unset(CMAKE_REQUIRED_INCLUDES)
    if(VARVE_MPI_FINT_IS_INT)
        set(HAVE_FORTRAN_MPI 1)
    endif()
endif()
