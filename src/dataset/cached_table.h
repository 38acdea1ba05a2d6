/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of the daemon, once: keys of its file, VARVE_CACHED_* variables, flags, help texts,
 * docs/cached-config.md and man/varve-cached.conf.5 are all made from this list. The columns are those of
 * base/config_table.h.
 */
#ifndef VV_DATASET_CACHED_TABLE_H
#define VV_DATASET_CACHED_TABLE_H

/* clang-format off */
#define VV_CACHED_TABLE(X)                                                                         \
    X(roots, TEXT, roots, "", "ROOT:...",                                                          \
      "Folders of the shared file system that are served, with colons in between. Nothing "        \
      "outside of them is, wherever links lead. Of an object store: s3://BUCKET/PREFIX=/FOLDER; "  \
      "programs find the objects below that folder, which need not be there.")                     \
    X(cache, TEXT, cache, "", "FOLDER",                                                            \
      "Folder on local disk for the files. It is created if missing. What it holds is taken up "   \
      "again by the next start. It has to be yours alone, and outside of the roots.")              \
    X(capacity, BYTES, capacity, "0", "SIZE",                                                      \
      "Space in that folder that is never exceeded, at most the size of its disk; 0: four fifths "  \
      "of what the disk has free, what the folder holds included.")                                \
    X(max_file, BYTES, max_file, "0", "SIZE",                                                      \
      "Larger files are left to the shared file system; 0: only those that are larger than the "   \
      "capacity. Files above 5% of the capacity take no room from other files.")                   \
    X(direct_above, BYTES, direct_above, "64M", "SIZE",                                            \
      "An open of a larger file that is not cached yet does not wait: the program reads the shared "\
      "file system, and the file is fetched behind it for later opens; 0: every open waits. What "  \
      "is in an object store is waited for.")                                                      \
    X(high, INT, high, "95", "PERCENT",                                                            \
      "When more than this share of the capacity is in use, files go, down to `low`.")             \
    X(low, INT, low, "90", "PERCENT",                                                              \
      "See `high`. Those go that are wanted last, or were used longest ago.")                      \
    X(revalidate, INT, revalidate, "5", "SECONDS",                                                 \
      "A file is looked at on the shared file system again when the last look is older; 0: files " \
      "never change.")                                                                             \
    X(scrub, INT, scrub, "3600", "SECONDS",                                                        \
      "Within this time all files of the cache are read and verified once; 0: never.")             \
    X(verity, ENUM, verity, "auto", "off|auto|on",                                                 \
      "Whether files of the cache are sealed with fs-verity, so that the kernel checks whatever "  \
      "is read of them; auto: where kernel and file system can, on: or the daemon does not start.")\
    X(node, TEXT, node, "", "NAME",                                                                \
      "By which the other nodes know this one; empty: the name of the machine. A node that comes " \
      "back has to have the name it had.")                                                         \
    X(listen, TEXT, listen, "", "HOST:PORT",                                                       \
      "Where other nodes reach this one; port 0 is any. Empty: 0.0.0.0:0 with `meet`, and without "\
      "`meet` there are no other nodes.")                                                          \
    X(advertise, TEXT, advertise, "", "HOST",                                                      \
      "Name or address, with a port or not, that the others are told; empty: that of `listen`, or "\
      "the name of the machine if that is 0.0.0.0.")                                               \
    X(peers, TEXT, peers, "", "FILE",                                                              \
      "The other nodes, one in each line: name and host:port. This one may be among them.")        \
    X(meet, TEXT, meet, "", "FOLDER",                                                              \
      "Folder on shared storage where the nodes of a job find each other, instead of `peers`. It " \
      "is created if missing.")                                                                    \
    X(token, TEXT, token, "", "FILE",                                                              \
      "File with what only the nodes of this job know, at least 16 bytes; empty: one that is "     \
      "drawn and kept in `meet`.")                                                                 \
    X(transport, ENUM, transport, "auto", "auto|tcp|ucx",                                          \
      "How nodes talk to each other.")                                                             \
    X(mode, ENUM, mode, "recache", "redirect|recache",                                             \
      "What becomes of the files of a node that is gone: redirect leaves them to the shared file " \
      "system, with recache other nodes fetch and keep them.")                                     \
    X(replicas, INT, replicas, "1", "NUMBER",                                                      \
      "Copies of each file, on different nodes.")                                                  \
    X(scheme, ENUM, scheme, "hrw-bounded", "ring|hrw|hrw-bounded",                                 \
      "Which node keeps a file; see varve-ring(1).")                                               \
    X(vnodes, INT, vnodes, "100", "NUMBER",                                                        \
      "Virtual nodes of a node, for ring.")                                                        \
    X(limit, INT, limit, "105", "PERCENT",                                                         \
      "What a node may hold under hrw-bounded, in percent of its share.")                          \
    X(expected, BYTES, expected, "0", "SIZE",                                                      \
      "All that the job will read, where that is known: then fewer files are kept away from their "\
      "homes.")                                                                                    \
    X(memory, BYTES, memory, "256M", "SIZE",                                                       \
      "Memory for files of other nodes that may be opened again on this one; half of it for those " \
      "that `preload --here` brings before they are opened.")                                      \
    X(memory_file, BYTES, memory_file, "64M", "SIZE",                                              \
      "Larger files of other nodes are received on local disk, smaller ones in memory.")           \
    X(patience, INT, patience, "4000", "MILLISECONDS",                                             \
      "How long a program waits for nodes that do not answer before it is told to read the shared "\
      "file system.")                                                                              \
    X(period, INT, period, "300", "MILLISECONDS",                                                  \
      "How often nodes look after each other.")                                                    \
    X(workers, INT, workers, "32", "NUMBER",                                                       \
      "Files that are fetched at once from the shared file system because somebody asked.")        \
    X(ahead, INT, ahead, "4", "NUMBER",                                                            \
      "Files that are fetched at once before anybody asks.")                                       \
    X(lazy, BOOL, lazy, "off", "on|off",                                                           \
      "Files of a node that is gone are fetched when they are asked for, not at once.")            \
    X(socket, TEXT, socket, "", "FILE",                                                            \
      "Where programs of this node find the daemon; empty: varve-cached.sock in $XDG_RUNTIME_DIR, "\
      "or else cached.sock in /tmp/varve-UID.")                                                    \
    X(metrics, TEXT, metrics, "", "FILE",                                                          \
      "File that is rewritten every five seconds for Prometheus; %p in its name is the number of " \
      "the process.")                                                                              \
    X(log, TEXT, log, "", "FILE",                                                                  \
      "Where messages go; empty: standard error. SIGHUP opens it again.")                          \
    X(log_level, ENUM, log_level, "info", "debug|info|warning",                                    \
      "Which of them.")
/* clang-format on */

#endif
