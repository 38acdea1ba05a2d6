/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration, once: INI keys, VARVE_* variables, command line flags, help texts,
 * docs/config.md and man/varve.conf.5 are all made from this list.
 *
 * X(key, type, field of struct vv_config, default, values, text)
 *
 * type    BYTES, INT, BOOL, TEXT (a string) or ENUM (one of `values`, in the order of the C enum)
 * values  of an ENUM: the words, separated by '|'; otherwise what a value looks like
 */
#ifndef VV_BASE_CONFIG_TABLE_H
#define VV_BASE_CONFIG_TABLE_H

/* clang-format off */
#define VV_CONFIG_TABLE(X)                                                                         \
    X(device, ENUM, device, "auto", "auto|cuda|host|none",                                         \
      "Where device memory is: auto takes a GPU if the program uses CUDA already when the "        \
      "context is opened, and otherwise none; cuda takes one in any case, or fails; host is the "  \
      "emulated device, and may be called emulated.")                                              \
    X(device_id, INT, device_id, "-1", "NUMBER",                                                   \
      "Which GPU, as CUDA counts them; -1: that of the current CUDA context, or else one that "    \
      "the program uses, or else the first.")                                                      \
    X(device_cache, BYTES, device_cache, "1G", "SIZE",                                             \
      "Memory on the device that holds checkpoints. Not used without a device.")                   \
    X(host_cache, BYTES, host_cache, "1G", "SIZE",                                                 \
      "Host memory that holds checkpoints. With a disk up to 16M of it, a quarter at most, are "    \
      "buffers for what passes to the disk and back; a cache below 16M has up to 4M of them "      \
      "beside it. Threads and tables take about 3M more, a remote folder about 9M. `varve top` "    \
      "shows what was taken.")                                                       \
    X(local, TEXT, local, "", "FOLDER",                                                            \
      "Folder on local disk. Without one there is no disk tier. It is created if missing, "        \
      "but not the folders above it.")                                                             \
    X(local_cache, BYTES, local_cache, "0", "SIZE",                                                \
      "Space on local disk that is never exceeded; 0 is no limit but the disk's own.")             \
    X(local_rate, BYTES, local_rate, "0", "SIZE",                                                  \
      "Bytes per second that all processes of this node together write to that disk at most, to "  \
      "leave the rest to others; 0: no limit.")                                                    \
    X(local_io, ENUM, local_io, "auto", "auto|direct|buffered",                                    \
      "direct goes past the page cache, buffered through it; auto is direct where the file "       \
      "system allows it.")                                                                         \
    X(local_sync, ENUM, local_sync, "commit", "commit|off",                                        \
      "Levels from local on: commit syncs every checkpoint on local disk, which survives a power " \
      "cut then; off leaves that to the kernel, and checkpoints there survive the end of the "     \
      "process.")                                                                                  \
    X(gds, BOOL, gds, "off", "on|off",                                                             \
      "GPUDirect Storage: what would only pass a full host cache goes straight between device "    \
      "and local disk, through libcufile. Needs direct I/O. `varve probe` writes on where it "     \
      "measured it to be faster. Not used without a device and a folder.")                         \
    X(remote, TEXT, remote, "", "FOLDER",                                                          \
      "Folder on shared storage, or s3://BUCKET/PREFIX in an object store: what levels remote and "\
      "complete bring checkpoints to. At level cached a folder is the layer behind the local one, "\
      "for what does not fit there. Not used at level local. A folder is created if missing, but "\
      "not those above it, nor a bucket.")                                                         \
    X(remote_rate, BYTES, remote_rate, "0", "SIZE",                                                \
      "Bytes per second that all processes of this node together write to the remote folder at "   \
      "most; 0: no limit.")                                                                        \
    X(spill, ENUM, spill, "shared", "shared|record",                                               \
      "Level cached: shared keeps all that is beyond memory in one file in each folder, record in "\
      "a file for each checkpoint, which some file systems are faster with. Neither survives the " \
      "process.")                                                                                  \
    X(level, ENUM, level, "cached", "cached|local|remote|complete",                                \
      "How far every checkpoint is brought: cached survives nothing, local the end of the "        \
      "process, remote the loss of the node, complete the loss of any rank half-way through.")     \
    X(policy, ENUM, policy, "next", "next|score|score-now|fifo|lru",                               \
      "What makes room when a cache is full. next is the best known; the others are there to be "  \
      "compared with.")                                                                            \
    X(page, BYTES, page, "0", "SIZE",                                                              \
      "Unit of memory and of transfers: a power of two, 4K to 64M; 0: 16K to 1M, by the sizes "    \
      "of the caches.")                                                                            \
    X(rank, INT, rank, "0", "NUMBER",                                                              \
      "Number of this process among those that share a folder; part of its file names.")           \
    X(ranks, INT, ranks, "1", "NUMBER",                                                            \
      "How many processes the job has: level complete is reached when all of them have their "     \
      "part in the remote folder. rank is below it then.")                                         \
    X(run, TEXT, run, "", "TEXT",                                                                  \
      "What tells this start of the job from all others, the same on all its ranks: a number of "  \
      "the batch system and how often it restarted the job, say. Empty: drawn, which is for one "  \
      "rank only.")                                                                                \
    X(partner, BOOL, partner, "off", "on|off",                                                     \
      "Keep a second copy of each checkpoint on the local disk of another node, at level "         \
      "local: losing one node then needs no shared storage. For the processes of an MPI job. "     \
      "Half of local_cache is for what a process keeps for others.")                               \
    X(partner_timeout_ms, INT, partner_timeout_ms, "60000", "NUMBER",                              \
      "How long a partner may leave a copy unanswered before it counts as failed, in "             \
      "milliseconds.")                                                                             \
    X(parity, TEXT, parity, "off", "off, xor or rs:K",                                             \
      "Keep parity of checkpoints on the local disks of a set of processes, at level local: what " \
      "any one (xor) or K (rs:K) of a set have lost comes back, for 1/(N-1) or K/(N-K) more "      \
      "space in sets of N. For the processes of an MPI job. rs needs a build with ISA-L.")         \
    X(parity_set, INT, parity_set, "8", "NUMBER",                                                  \
      "How many processes share parity. No two of a set have the same node; where that needs it, " \
      "sets are smaller, or larger.")                                                              \
    X(node, TEXT, node, "", "TEXT",                                                                \
      "What processes call alike that are lost together, and so are not partners, nor in one set " \
      "of parity: a node, a rack. Empty: the machine.")                                            \
    X(trace, BOOL, trace, "off", "on|off",                                                         \
      "Record events in memory, the last of each thread, for debuggers. What `varve trace` reads " \
      "is written with trace_file.")                                                               \
    X(trace_file, TEXT, trace_file, "", "FILE",                                                    \
      "Record events and write them to this file, which `varve trace` turns into timelines and "   \
      "reports. %p in the name is the number of the process, %r the rank. A trace that is there "  \
      "is replaced, any other file is not.")                                                       \
    X(stats, TEXT, stats, "auto", "auto, off or FOLDER",                                           \
      "Where the figures that `varve top` shows are published, in a small file of this user's: "   \
      "auto is /dev/shm, or else $XDG_RUNTIME_DIR; a folder has a slash in its name.")             \
    X(metrics, TEXT, metrics, "", "FILE",                                                          \
      "File that is rewritten every five seconds with the same figures for Prometheus, as the "    \
      "textfile collector of the node exporter reads them; %p in the name is the number of the "   \
      "process, %r its rank.")                                                                     \
    X(rate, TEXT, rate, "", "HOP=RATE,...",                                                        \
      "Slow hops down to so many bytes per second, for experiments: d2d, h2h, d2h, h2d, h2f, "     \
      "f2h, f2r, r2f.")                                                                            \
    X(helpers, INT, helpers, "-1", "NUMBER",                                                       \
      "Threads that help to copy within host memory, besides the one that calls: 0 is none, -1 "   \
      "as many as copies gain from, or as there are helper_cores.")                                \
    X(helper_cores, TEXT, helper_cores, "auto", "auto, none or LIST",                              \
      "Cores for the threads of the library: these processors, such as 30,31 or 28-31; none: "     \
      "they run wherever the thread that opens the context may (any is the same); auto: cores of " \
      "the job on this node that its launcher has bound no process to, as long as no other job "   \
      "uses them, or else cores that the application leaves free for certain (its threads are "    \
      "bound to others, or OMP_NUM_THREADS is less than there are cores), and otherwise none.")    \
    X(rank_cores, TEXT, rank_cores, "", "LIST",                                                    \
      "Processors that the processes of the job on this node are bound to, for helper_cores = "    \
      "auto. Empty: found out, from the launcher, where processes open together (MPI), and from "  \
      "what contexts publish.")                                                                    \
    X(helper_nice, INT, helper_nice, "0", "NUMBER",                                                \
      "Priority of the threads of the library, as of nice(1): 0 to 19, higher gives way; below "   \
      "0 where the process may.")                                                                  \
    X(helper_process, BOOL, helper_process, "off", "on|off",                                       \
      "One process on each node reads and writes files for all processes of the job there, on "    \
      "helper_cores or wherever the system has room; it is started when it is needed, and ends "   \
      "when no process needs it. Without it, or when it has died, threads of each process do that.") \
    X(helper_name, TEXT, helper_name, "", "TEXT",                                                  \
      "Processes that name it alike share one helper process. Empty: those of a batch job, or "    \
      "else all of the user's.")                                                                   \
    X(helper_program, TEXT, helper_program, "", "FILE",                                            \
      "The program `varve`, which is the helper process. Empty: the one beside the library, or "   \
      "else found by PATH.")                                                                       \
    X(close_timeout_ms, INT, close_timeout_ms, "-1", "NUMBER",                                     \
      "How long closing may wait for checkpoints that are still on their way, in milliseconds; "   \
      "negative: no limit.")
/* clang-format on */

#endif
