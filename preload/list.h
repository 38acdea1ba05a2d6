/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that libvarve-preload.so takes the place of, and those that it leaves alone although one
 * might expect otherwise, with the reason. Both lists are all there is: the library's map, the man page and
 * the tests are checked against them.
 */
#ifndef VV_PRELOAD_LIST_H
#define VV_PRELOAD_LIST_H

/* X(name of the call) */
#define VV_PRELOAD_HOOKS(X) \
    /* opening */           \
    X(open)                 \
    X(open64)               \
    X(__open)               \
    X(__open64)             \
    X(__open_2)             \
    X(__open64_2)           \
    X(openat)               \
    X(openat64)             \
    X(__openat_2)           \
    X(__openat64_2)         \
    X(creat)                \
    X(creat64)              \
    X(fopen)                \
    X(fopen64)              \
    X(freopen)              \
    X(freopen64)            \
    /* asking by path */    \
    X(stat)                 \
    X(stat64)               \
    X(lstat)                \
    X(lstat64)              \
    X(fstatat)              \
    X(fstatat64)            \
    X(statx)                \
    X(__xstat)              \
    X(__xstat64)            \
    X(__lxstat)             \
    X(__lxstat64)           \
    X(__fxstatat)           \
    X(__fxstatat64)         \
    X(access)               \
    X(faccessat)            \
    X(euidaccess)           \
    X(eaccess)              \
    /* by descriptor */     \
    X(fstat)                \
    X(fstat64)              \
    X(__fxstat)             \
    X(__fxstat64)           \
    X(flistxattr)           \
    /* other views */       \
    X(chroot)               \
    X(unshare)              \
    X(setns)

/* X(calls, why they are left alone) */
#define VV_PRELOAD_LEFT_OUT(X)                                                                     \
    X("read, pread, readv, mmap, lseek, sendfile, splice, copy_file_range, io_uring, fcntl, dup, " \
      "close, posix_fadvise",                                                                      \
      "The descriptor is a real one: the kernel does all this.")                                   \
    X("opendir, readdir, scandir, nftw, fts, glob, getdents64",                                    \
      "What is in a folder is the file system's to tell.")                                         \
    X("rename, unlink, link, truncate, chmod, chown, utimensat and others that change a file by "  \
      "its path",                                                                                  \
      "They go to the shared file system. The owner sees the change when it looks at the file "    \
      "again.")                                                                                    \
    X("fchmod, fchown, futimens, fsetxattr on a cached file",                                      \
      "It is open for reading, so that they would change the copy and nothing else. Open the "     \
      "file itself for writing to change it.")                                                     \
    X("flock, fcntl locks on a cached file",                                                       \
      "They lock this node's copy: good among the processes of a node, not among nodes. Programs " \
      "that lock files they only read, as HDF5 does, work.")                                       \
    X("fstatfs, fstatvfs, fgetxattr, readlink of /proc/self/fd/N, name_to_handle_at",              \
      "They tell of the copy. Ask by path for the original.")                                      \
    X("statfs, statvfs, getxattr, listxattr, readlink, realpath, inotify_add_watch",               \
      "They go by path, to the shared file system.")                                               \
    X("syscall, openat2, open_by_handle_at, io_uring's own open",                                  \
      "No function to take the place of. The program reads the shared file system.")               \
    X("dlopen, execve",                                                                            \
      "The dynamic linker and the kernel open files for themselves. Programs and libraries are "   \
      "read from where they are.")                                                                 \
    X("programs without libc: static ones, Go",                                                    \
      "Nothing is preloaded into them. They read the shared file system.")                         \
    X("programs with set-user-ID or capabilities", "The dynamic linker does not preload into "     \
                                                   "them.")

#endif
