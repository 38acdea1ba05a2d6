/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that libvarve-preload.so replaces, and those that it leaves alone although one might expect otherwise, with
 * the reason. The library's map, the man page and the documentation are checked against these lists.
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
    X(readlink)             \
    X(readlinkat)           \
    X(getxattr)             \
    X(lgetxattr)            \
    X(listxattr)            \
    X(llistxattr)           \
    /* by descriptor */     \
    X(fstat)                \
    X(fstat64)              \
    X(__fxstat)             \
    X(__fxstat64)           \
    X(flistxattr)           \
    /* folders */           \
    X(opendir)              \
    X(fdopendir)            \
    X(readdir)              \
    X(readdir64)            \
    X(readdir_r)            \
    X(readdir64_r)          \
    X(rewinddir)            \
    X(telldir)              \
    X(seekdir)              \
    X(dirfd)                \
    X(closedir)             \
    /* changing by path */  \
    X(rename)               \
    X(renameat)             \
    X(renameat2)            \
    X(link)                 \
    X(linkat)               \
    X(symlink)              \
    X(symlinkat)            \
    X(unlink)               \
    X(unlinkat)             \
    X(remove)               \
    X(rmdir)                \
    X(truncate)             \
    X(truncate64)           \
    X(chmod)                \
    X(fchmodat)             \
    X(chown)                \
    X(lchown)               \
    X(fchownat)             \
    X(utime)                \
    X(utimes)               \
    X(lutimes)              \
    X(utimensat)            \
    X(mkdir)                \
    X(mkdirat)              \
    /* writing */           \
    X(close)                \
    X(fclose)               \
    X(_exit)                \
    X(_Exit)                \
    X(dup)                  \
    X(dup2)                 \
    X(dup3)                 \
    X(fcntl)                \
    X(fcntl64)              \
    X(ftruncate)            \
    X(ftruncate64)          \
    X(sendfile)             \
    X(sendfile64)           \
    X(copy_file_range)      \
    X(mmap)                 \
    X(mmap64)               \
    X(preadv2)              \
    X(preadv64v2)           \
    /* identity */          \
    X(setuid)               \
    X(seteuid)              \
    X(setreuid)             \
    X(setresuid)            \
    X(setfsuid)             \
    X(setgid)               \
    X(setegid)              \
    X(setregid)             \
    X(setresgid)            \
    X(setfsgid)             \
    X(setgroups)            \
    X(initgroups)           \
    /* other views */       \
    X(chroot)               \
    X(unshare)              \
    X(setns)

/* X(calls, reason why they are left alone) */
#define VV_PRELOAD_LEFT_OUT(X)                                                                     \
    X("read, pread, readv, lseek, splice, io_uring, posix_fadvise",                                \
      "The descriptor is a real one: the kernel does all this.")                                   \
    X("write, pwrite, writev, fallocate, io_uring and splice to a file",                           \
      "A file is reported when it is opened for writing and when it is closed. Between the two "   \
      "other processes may get what it was, for up to revalidate; this one reads the file "        \
      "itself.")                                                                                   \
    X("a store to a mapping, after its descriptor was closed",                                     \
      "Only the kernel sees it. Other processes get it when the owner looks at the file again.")   \
    X("close_range, closefrom, exec, a signal that ends the process",                              \
      "The end of writing is not reported. No program is given the file for two seconds from "     \
      "when it "                                                                                   \
      "was opened; after that it is as with write.")                                               \
    X("mknod, mkstemp, tmpfile",                                                                   \
      "They make new files, and the cache never records that a file is absent.")                   \
    X("setxattr, removexattr", "Attributes are not cached. The time of change is seen when the "   \
                               "owner looks at the file again.")                                   \
    X("scandir, nftw, fts, glob, getdents64, chdir, realpath",                                     \
      "The file system lists its folders. Below a root of an object store there is no file "       \
      "system: use opendir and readdir there, and whole paths.")                                   \
    X("fchmod, fchown, futimens, fsetxattr on a cached file",                                      \
      "It is open for reading, so that they would change the copy and nothing else. Open the "     \
      "file itself for writing to change it.")                                                     \
    X("lseek with SEEK_HOLE and SEEK_DATA on a cached file",                                       \
      "A copy has no holes, and says so: room for all of its bytes is reserved before the "        \
      "first arrives. The bytes are the same.")                                                    \
    X("flock, fcntl locks on a cached file",                                                       \
      "They lock this node's copy: good among the processes of a node, not among nodes. Programs " \
      "that lock files they only read, as HDF5 does, work.")                                       \
    X("fstatfs, fstatvfs, fgetxattr, readlink of /proc/self/fd/N, name_to_handle_at",              \
      "They describe the copy. Call by path for the original.")                                    \
    X("statfs, statvfs, inotify_add_watch", "They go by path, to the shared file system.")         \
    X("syscall, openat2, open_by_handle_at, io_uring's own open",                                  \
      "There is no function to replace. The program reads the shared file system.")                \
    X("dlopen, execve", "The dynamic linker and the kernel open files for themselves. Programs "   \
                        "and libraries are read from where they are.")                             \
    X("programs without libc: static ones, Go",                                                    \
      "Nothing is preloaded into them. They read the shared file system.")                         \
    X("programs with set-user-ID or capabilities", "The dynamic linker does not preload into "     \
                                                   "them.")

#endif
