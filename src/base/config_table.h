/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only list of configuration keys: INI keys, VARVE_* variables, command line flags, help texts,
 * docs/config.md and man/varve.conf.5 are made from it.
 *
 * X(key, type, field of struct vv_config, default, values, text)
 *
 * type    BYTES, INT, BOOL, TEXT (a string) or ENUM (one of `values`, in the order of the C enum)
 * values  of an ENUM: the words, separated by '|'; otherwise the form of a value
 */
#ifndef VV_BASE_CONFIG_TABLE_H
#define VV_BASE_CONFIG_TABLE_H

/* clang-format off */
#define VV_CONFIG_TABLE(X)                                                                         \
    X(device, ENUM, device, "auto", "auto|cuda|host|none",                                         \
      "Kind of device: auto takes a GPU if the program already uses CUDA when the context "        \
      "is opened, and otherwise none; cuda requires a GPU; host is the emulated device, "          \
      "also accepted as emulated; none uses host memory only.")                                    \
    X(device_id, INT, device_id, "-1", "NUMBER",                                                   \
      "Number of the GPU in CUDA; -1: the GPU of the current CUDA context, else one that "         \
      "the program uses, else the first.")                                                         \
    X(device_cache, BYTES, device_cache, "1G", "SIZE",                                             \
      "Device memory for checkpoints. Not used without a device.")                                 \
    X(host_cache, BYTES, host_cache, "1G", "SIZE",                                                 \
      "Host memory for checkpoints. With a disk, up to 16M of it, at most a quarter, are "         \
      "buffers for data on its way to and from the disk; a cache below 16M has up to 4M of "       \
      "buffers in addition. Threads and tables take about 3M more, a remote folder about "         \
      "9M. `varve top` shows the memory in use.")                                                  \
    X(local, TEXT, local, "", "FOLDER",                                                            \
      "Folder on local disk. Without it there is no disk tier. The folder is created if "          \
      "missing, but not the folders above it.")                                                    \
    X(local_cache, BYTES, local_cache, "0", "SIZE",                                                \
      "Limit of the space used on local disk; 0: no limit other than the disk's.")                 \
    X(local_rate, BYTES, local_rate, "0", "SIZE",                                                  \
      "Limit, in bytes per second, of what all processes of this node together write to "          \
      "the local disk, to leave bandwidth to others; 0: no limit.")                                \
    X(local_io, ENUM, local_io, "auto", "auto|direct|buffered",                                    \
      "direct bypasses the page cache, buffered uses it; auto is direct if the file system "       \
      "supports it.")                                                                              \
    X(local_sync, ENUM, local_sync, "commit", "commit|off",                                        \
      "Levels from local on: commit syncs every checkpoint on local disk, so that it "             \
      "survives a power cut; off does not sync, and checkpoints on local disk survive only "       \
      "the end of the process.")                                                                   \
    X(gds, BOOL, gds, "off", "on|off",                                                             \
      "GPUDirect Storage: data that would only pass through a full host cache moves "              \
      "directly between device and local disk, through libcufile. Requires direct I/O. "           \
      "`varve probe` writes on if it measured this to be faster. Not used without a device "       \
      "and a folder.")                                                                             \
    X(remote, TEXT, remote, "", "FOLDER",                                                          \
      "Folder on shared storage, or s3://BUCKET/PREFIX in an object store: the destination "       \
      "of checkpoints at levels remote and complete. At level cached, a folder is the "            \
      "layer behind the local one, for data that does not fit there. Not used at level "           \
      "local. A folder is created if missing, but neither the folders above it nor a "             \
      "bucket.")                                                                                   \
    X(remote_rate, BYTES, remote_rate, "0", "SIZE",                                                \
      "Limit, in bytes per second, of what all processes of this node together write to "          \
      "the remote folder; 0: no limit.")                                                           \
    X(spill, ENUM, spill, "shared", "shared|record",                                               \
      "Level cached: shared keeps all data beyond memory in one file in each folder, "             \
      "record in one file for each checkpoint, which is faster on some file systems. "             \
      "Neither survives the process.")                                                             \
    X(level, ENUM, level, "cached", "cached|local|remote|complete",                                \
      "Level that every checkpoint is to reach: cached survives nothing, local the end of "        \
      "the process, remote the loss of the node, complete the loss of any rank at any time.")      \
    X(policy, ENUM, policy, "next", "next|score|score-now|fifo|lru",                               \
      "Eviction policy of full caches. next is the best one; the others exist for "                \
      "comparison.")                                                                               \
    X(page, BYTES, page, "0", "SIZE",                                                              \
      "Unit of memory and of transfers: a power of two, 4K to 64M; 0: 16K to 1M, by the "          \
      "sizes of the caches.")                                                                      \
    X(rank, INT, rank, "0", "NUMBER",                                                              \
      "Number of this process among those that share a folder; part of its file names.")           \
    X(ranks, INT, ranks, "1", "NUMBER",                                                            \
      "Number of processes of the job. Level complete is reached when all of them have "           \
      "written their part to the remote folder; rank must be smaller.")                            \
    X(run, TEXT, run, "", "TEXT",                                                                  \
      "Text that identifies this start of the job, the same on all its ranks: for example "        \
      "the job number of the batch system and its count of restarts. Empty: drawn at "             \
      "random, for one rank only.")                                                                \
    X(partner, BOOL, partner, "off", "on|off",                                                     \
      "Keep a second copy of each checkpoint on the local disk of another node, at level "         \
      "local, so that recovery from the loss of one node needs no shared storage. For the "        \
      "processes of an MPI job. Half of local_cache is for the copies of other processes.")        \
    X(partner_timeout_ms, INT, partner_timeout_ms, "60000", "NUMBER",                              \
      "Time without an answer of the partner after which a copy counts as failed, in "             \
      "milliseconds.")                                                                             \
    X(parity, TEXT, parity, "off", "off, xor or rs:K",                                             \
      "Keep parity of checkpoints on the local disks of a set of processes, at level "             \
      "local. The checkpoints of any one process (xor) or any K processes (rs:K) of a set "        \
      "can be rebuilt, for 1/(N-1) or K/(N-K) more space in sets of N. For the processes "         \
      "of an MPI job. rs requires a build with ISA-L.")                                            \
    X(parity_set, INT, parity_set, "8", "NUMBER",                                                  \
      "Number of processes that share parity. No two processes of a set have the same "            \
      "node; sets are made smaller or larger if that requires it.")                                \
    X(node, TEXT, node, "", "TEXT",                                                                \
      "Failure domain of this process, for example a node or a rack. Two processes with "          \
      "the same name are never partners, and never in one set of parity. Empty: the name "         \
      "of the machine.")                                                                           \
    X(trace, BOOL, trace, "off", "on|off",                                                         \
      "Record the latest events of each thread in memory, for debuggers. `varve trace` "           \
      "reads the file of trace_file instead.")                                                     \
    X(trace_file, TEXT, trace_file, "", "FILE",                                                    \
      "Record events and write them to this file, which `varve trace` turns into timelines "       \
      "and reports. %p in the name is the process id, %r the rank. An existing trace is "          \
      "replaced, any other file is not.")                                                          \
    X(stats, TEXT, stats, "auto", "auto, off or FOLDER",                                           \
      "Place of the small file that publishes the figures for `varve top`: auto is "               \
      "/dev/shm, or else $XDG_RUNTIME_DIR; a folder has a slash in its name.")                     \
    X(metrics, TEXT, metrics, "", "FILE",                                                          \
      "File with the same figures for Prometheus, rewritten every five seconds in the "            \
      "format of the node exporter's textfile collector. %p in the name is the process id, "       \
      "%r the rank.")                                                                              \
    X(rate, TEXT, rate, "", "HOP=RATE,...",                                                        \
      "Limit hops to these bytes per second, for experiments: d2d, h2h, d2h, h2d, h2f, "           \
      "f2h, f2r, r2f.")                                                                            \
    X(helpers, INT, helpers, "-1", "NUMBER",                                                       \
      "Threads that help the calling thread to copy within host memory: 0 is none, -1 as "         \
      "many as copies gain from, or as there are helper_cores.")                                   \
    X(helper_cores, TEXT, helper_cores, "auto", "auto, none or LIST",                              \
      "Processors for the threads of the library. A list, such as 30,31 or 28-31; none (or "       \
      "any): wherever the thread that opens the context may run; auto: cores of the job on "       \
      "this node to which its launcher has bound no process, unless another job uses them; "       \
      "else cores that the application certainly leaves free (its threads are bound to "           \
      "others, or OMP_NUM_THREADS is less than the number of cores); else none.")                  \
    X(rank_cores, TEXT, rank_cores, "", "LIST",                                                    \
      "Processors that the processes of the job on this node are bound to, for "                   \
      "helper_cores = auto. Empty: detected from the launcher, from processes that open "          \
      "together (MPI), and from the figures that contexts publish.")                               \
    X(helper_nice, INT, helper_nice, "0", "NUMBER",                                                \
      "Priority of the threads of the library, as of nice(1): 0 to 19, higher yields more; "       \
      "below 0 if the process has permission.")                                                    \
    X(helper_process, BOOL, helper_process, "off", "on|off",                                       \
      "One process on each node reads and writes files for all processes of the job there, "       \
      "on helper_cores or wherever the system has room. It starts when it is needed, and "         \
      "ends when no process needs it. Without it, or after it has died, threads of each "          \
      "process do its work.")                                                                      \
    X(helper_name, TEXT, helper_name, "", "TEXT",                                                  \
      "Processes with the same name share one helper process. Empty: one for the processes "       \
      "of a batch job, or else for all processes of the user.")                                    \
    X(helper_program, TEXT, helper_program, "", "FILE",                                            \
      "Path of the program `varve`, which runs as the helper process. Empty: the program "         \
      "beside the library, or else the one in PATH.")                                              \
    X(close_timeout_ms, INT, close_timeout_ms, "-1", "NUMBER",                                     \
      "Longest time that closing waits for checkpoints that are being flushed, in "                \
      "milliseconds; negative: no limit.")
/* clang-format on */

#endif
