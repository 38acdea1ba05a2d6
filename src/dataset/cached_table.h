/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one list of the daemon's settings. Keys of its file, VARVE_CACHED_* variables, flags, help texts,
 * docs/cached-config.md and man/varve-cached.conf.5 are all made from it. The columns are those of
 * base/config_table.h.
 */
#ifndef VV_DATASET_CACHED_TABLE_H
#define VV_DATASET_CACHED_TABLE_H

/* clang-format off */
#define VV_CACHED_TABLE(X)                                                                         \
    X(roots, TEXT, roots, "", "ROOT:...",                                                          \
      "Folders of the shared file system to serve, separated by colons. Nothing outside of them "  \
      "is served, wherever links lead. An object store: s3://BUCKET/PREFIX=/FOLDER; programs "     \
      "find the objects below that folder, which need not exist.")                                 \
    X(cache, TEXT, cache, "", "FOLDER",                                                            \
      "Folder on local disk for the files. It is created if missing. The next start uses what it " \
      "holds. It has to be yours alone, and outside of the roots.")                                \
    X(capacity, BYTES, capacity, "0", "SIZE",                                                      \
      "Most space that the files may take in that folder, at most the size of its disk; 0: four "  \
      "fifths of the free space, including what the folder holds.")                                \
    X(max_file, BYTES, max_file, "0", "SIZE",                                                      \
      "Larger files are left to the shared file system; 0: only those that are larger than the "   \
      "capacity. Files above 5% of the capacity take no room from other files.")                   \
    X(direct_above, BYTES, direct_above, "64M", "SIZE",                                            \
      "An open of a larger file that is not cached yet does not wait: the program reads the shared "\
      "file system, and the file is fetched behind it for later opens; 0: every open waits. Opens " \
      "of files of an object store always wait.")                                                  \
    X(high, INT, high, "95", "PERCENT",                                                            \
      "Above this share of the capacity, files are evicted until `low` is reached.")               \
    X(low, INT, low, "90", "PERCENT",                                                              \
      "See `high`. Files that are needed last, or were used longest ago, are evicted first.")      \
    X(revalidate, INT, revalidate, "5", "SECONDS",                                                 \
      "A file is checked on the shared file system again when the last check is older; 0: files "  \
      "never change.")                                                                             \
    X(scrub, INT, scrub, "3600", "SECONDS",                                                        \
      "All files of the cache are read and verified once in this time; 0: never.")                 \
    X(verity, ENUM, verity, "auto", "off|auto|on",                                                 \
      "Seal files of the cache with fs-verity, so that the kernel checks every read; auto: where " \
      "kernel and file system can; on: the daemon does not start where they cannot.")              \
    X(node, TEXT, node, "", "NAME",                                                                \
      "Name of this node, unique in the job; empty: the name of the machine. A node that comes "   \
      "back must have the same name.")                                                             \
    X(listen, TEXT, listen, "", "HOST:PORT",                                                       \
      "Address where other nodes reach this one; port 0: any. Empty: 0.0.0.0:0 with `meet`; "      \
      "without `meet` there are no other nodes.")                                                  \
    X(advertise, TEXT, advertise, "", "HOST",                                                      \
      "Name or address, with or without a port, that other nodes connect to; empty: that of "      \
      "`listen`, or the name of the machine if that is 0.0.0.0.")                                  \
    X(peers, TEXT, peers, "", "FILE",                                                              \
      "The other nodes, one on each line: name and host:port. This node may be among them.")       \
    X(meet, TEXT, meet, "", "FOLDER",                                                              \
      "Folder on shared storage where the nodes of a job find each other, instead of `peers`. It " \
      "is created if missing.")                                                                    \
    X(token, TEXT, token, "", "FILE",                                                              \
      "File with the secret of the job's nodes, at least 16 bytes; empty: one that is "            \
      "drawn and kept in `meet`.")                                                                 \
    X(transport, ENUM, transport, "auto", "auto|tcp|ucx",                                          \
      "How nodes talk to each other.")                                                             \
    X(mode, ENUM, mode, "recache", "redirect|recache",                                             \
      "What happens to files of a node that is gone: redirect leaves them to the shared file "     \
      "system; with recache other nodes fetch and keep them.")                                     \
    X(replicas, INT, replicas, "1", "NUMBER",                                                      \
      "Copies of each file, on different nodes.")                                                  \
    X(scheme, ENUM, scheme, "hrw-bounded", "ring|hrw|hrw-bounded",                                 \
      "How the node that keeps a file is chosen; see varve-ring(1).")                              \
    X(vnodes, INT, vnodes, "100", "NUMBER",                                                        \
      "Virtual nodes of a node, for ring.")                                                        \
    X(limit, INT, limit, "105", "PERCENT",                                                         \
      "Most that a node may hold under hrw-bounded, in percent of its share.")                     \
    X(expected, BYTES, expected, "0", "SIZE",                                                      \
      "Bytes that the job will read, if known: then fewer files are kept away from their "         \
      "homes.")                                                                                    \
    X(memory, BYTES, memory, "256M", "SIZE",                                                       \
      "Memory for files of other nodes that may be opened again on this node; half of it for those "\
      "that `preload --here` brings before they are opened.")                                      \
    X(memory_file, BYTES, memory_file, "64M", "SIZE",                                              \
      "Larger files of other nodes are received on local disk, smaller ones in memory.")           \
    X(patience, INT, patience, "4000", "MILLISECONDS",                                             \
      "How long a program waits for nodes that do not answer before it has to read the shared "    \
      "file system.")                                                                              \
    X(period, INT, period, "300", "MILLISECONDS",                                                  \
      "How often nodes check each other.")                                                         \
    X(workers, INT, workers, "32", "NUMBER",                                                       \
      "Number of files that are fetched from the shared file system at once on request.")          \
    X(ahead, INT, ahead, "4", "NUMBER",                                                            \
      "Number of files that are fetched at once before any request.")                              \
    X(lazy, BOOL, lazy, "off", "on|off",                                                           \
      "Fetch files of a node that is gone when they are requested, not at once.")                  \
    X(socket, TEXT, socket, "", "FILE",                                                            \
      "Socket for programs of this node; empty: varve-cached.sock in $XDG_RUNTIME_DIR, "           \
      "or else cached.sock in /tmp/varve-UID.")                                                    \
    X(metrics, TEXT, metrics, "", "FILE",                                                          \
      "File that is rewritten every five seconds for Prometheus; %p in its name stands for the "   \
      "process id.")                                                                               \
    X(log, TEXT, log, "", "FILE",                                                                  \
      "File for messages; empty: standard error. SIGHUP opens it again.")                          \
    X(log_level, ENUM, log_level, "info", "debug|info|warning",                                    \
      "Least severe messages to write.")
/* clang-format on */

#endif
