# SPDX-License-Identifier: Apache-2.0

from spack.package import *


class Varve(CMakePackage, CudaPackage):
    """Varve keeps the history of an application's data in GPU memory, host memory, local disk
    and shared storage, and brings each version back up before the application asks for it.
    It serves adjoint and simulation codes, programs written for VELOC, and training jobs."""

    # There is no public address yet: put the one of your clone here.
    homepage = "https://varve.example.org"
    git = "https://varve.example.org/varve.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Build libvarve-mpi and VELOC_Init")
    variant("fortran", default=True, description="Build the Fortran modules")
    variant("uring", default=True, description="Use io_uring for disk I/O")
    variant("hwloc", default=True, description="Find cores and memory nodes with hwloc")
    variant("isal", default=True, description="Allow erasure codes other than xor, with ISA-L")
    variant("ucx", default=False, description="Allow UCX between nodes of the dataset cache")
    variant("s3", default=True, description="Keep copies in object stores")
    variant("petsc", default=False, when="+mpi", description="Build the trajectory type varve of PETSc")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("inih")
    depends_on("xxhash")
    depends_on("liburing", when="+uring")
    depends_on("hwloc", when="+hwloc")
    depends_on("isa-l", when="+isal")
    depends_on("ucx", when="+ucx")
    depends_on("curl@7.68:", when="+s3")
    depends_on("mpi", when="+mpi")
    depends_on("petsc@3.18:+mpi", when="+petsc")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("VARVE_BUILD_TESTS", False),
            self.define_from_variant("VARVE_WITH_NVCC", "cuda"),
            self.define_from_variant("VARVE_WITH_MPI", "mpi"),
            self.define_from_variant("VARVE_WITH_FORTRAN", "fortran"),
            self.define_from_variant("VARVE_WITH_LIBURING", "uring"),
            self.define_from_variant("VARVE_WITH_HWLOC", "hwloc"),
            self.define_from_variant("VARVE_WITH_ISAL", "isal"),
            self.define_from_variant("VARVE_WITH_UCX", "ucx"),
            self.define_from_variant("VARVE_WITH_PETSC", "petsc"),
            self.define_from_variant("VARVE_WITH_LIBCURL", "s3"),
        ]
