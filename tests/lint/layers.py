#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dependencies point one way.

Reads the #include lines of src/ and the symbols of the compiled objects, and fails on an edge that points up, or from
one face of the library to another, or from the tool to the lab. What has to be pure is checked by its symbols: policy/ and the core of the engine
take no lock, read no clock and do no I/O. No two sources have one name, so that a name says which file it is.
"""
import os
import re
import subprocess
import sys

# The lowest first; modules of one row do not use each other.
ROWS = [["base"], ["trace", "stats"], ["policy", "net", "s3"], ["device"], ["store"], ["engine"],
        ["ckpt", "dataset"], ["vector", "gpufile", "ooc"], ["mpi", "fortran", "petsc"], ["veloc"]]
RANK = {module: row for row, modules in enumerate(ROWS) for module in modules}
FIRST_FACE = RANK["ckpt"]
# Folders of store/ above its own files, in the same way.
STORE = {"arena": 0, "aio": 0, "target": 1, "spill": 2, "files": 2, "parity": 3, "remote": 3, "partner": 4}

IMPURE = re.compile(r"^(pthread_|vv_mutex_|vv_cond_|vv_now_ns|vv_sleep|clock_|nanosleep|usleep|sleep$|time$|gettimeofday|"
                    r"open(64)?$|openat|read$|write$|pread|pwrite|fopen|fread|fwrite|fsync|mmap|printf|fprintf|puts$|"
                    r"rand$|random$|getenv)")


def module_of(path):
    """src/store/files/files.c -> store; a file directly in src/ belongs to none."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def allowed(user, used):
    if user == used:
        return True
    return RANK[used] < RANK[user]


def store_folder(path):
    """store/files/ckfile.h -> files; None outside of store/ and for files directly in it."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "store" else None


def is_up_in_store(path, target):
    user, used = store_folder(path[len("src/"):]), store_folder(target)
    return user and used and user != used and STORE[used] >= STORE[user]


def is_pure(path):
    """policy/, engine/core, membership, and plans of tables."""
    module = module_of(path)
    name = os.path.basename(path)
    return (module == "policy" or path.startswith("src/engine/core/") or
            (module == "dataset" and name.startswith("member")) or
            (module == "ooc" and name.startswith(("slots", "tables_order", "tables_place", "tables_plan", "tables_sim"))))


def check_includes(root):
    bad = []
    count = 0
    for folder, _, files in sorted(os.walk(os.path.join(root, "src"))):
        for name in sorted(files):
            if not name.endswith((".c", ".h")):
                continue
            path = os.path.relpath(os.path.join(folder, name), root)
            user = module_of(path)
            if user not in RANK:
                bad.append(f"{path}: '{user}' is not a module that is known here")
                continue
            for number, line in enumerate(open(os.path.join(root, path), encoding="utf-8"), 1):
                match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
                if not match:
                    continue
                count += 1
                target = match.group(2)
                top = target.split("/")[0]
                if top == "varve":
                    if RANK[user] < FIRST_FACE:
                        bad.append(f"{path}:{number}: {user} includes the public API")
                elif match.group(1) == '"':
                    if top in ("cli", "lab", "tests"):
                        bad.append(f"{path}:{number}: the library includes {target}")
                    elif "/" in target and top not in RANK:
                        bad.append(f"{path}:{number}: {target} is in no module")
                    elif top in RANK and not allowed(user, top):
                        bad.append(f"{path}:{number}: {user} includes {target}, which is above or beside it")
                    elif is_up_in_store(path, target):
                        bad.append(f"{path}:{number}: {target} is in a folder above or beside it")
                    elif top in RANK and target.endswith("_private.h") and top != user:
                        bad.append(f"{path}:{number}: {target} is private to {top}")
    return bad, count


def check_tool(root):
    """cli/ uses nothing of lab/, and its folders, which are a library, nothing of its commands."""
    bad = []
    for folder, _, files in sorted(os.walk(os.path.join(root, "cli"))):
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), root)
            if not name.endswith((".c", ".h")):
                continue
            for number, line in enumerate(open(os.path.join(root, path), encoding="utf-8"), 1):
                match = re.match(r'\s*#\s*include\s+"((?:cli|lab)/[^"]+)"', line)
                if match and match.group(1).startswith("lab/"):
                    bad.append(f"{path}:{number}: the tool includes {match.group(1)}")
                elif match and path.count("/") > 1 and match.group(1).count("/") == 1:
                    bad.append(f"{path}:{number}: {match.group(1)} belongs to the commands")
    return bad


def check_names(root):
    bad = []
    seen = {}
    for top in ("src", "cli", "lab", "preload"):
        for folder, _, files in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(files):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith((".c", ".h", ".cu", ".cuh")) and seen.setdefault(name, path) != path:
                    bad.append(f"{path}: {seen[name]} has that name, too")
    return bad


def symbols(obj):
    """Names that an object defines for others, and names that it needs."""
    out = subprocess.run(["nm", obj], check=True, capture_output=True, text=True).stdout
    defined, needed = set(), set()
    for line in out.splitlines():
        fields = line.split()
        kind, name = fields[-2], fields[-1]
        if kind == "U":
            needed.add(name)
        elif kind.isupper():
            defined.add(name)
    return defined, needed


def check_symbols(build):
    base = os.path.join(build, "CMakeFiles", "varve_objects.dir")
    table = {}
    for folder, _, files in os.walk(base):
        for name in files:
            if name.endswith(".c.o"):
                obj = os.path.join(folder, name)
                path = os.path.relpath(obj, base)[:-2]
                # The object of a removed source stays in the build folder until that is cleaned.
                if os.path.exists(os.path.join(os.environ["SOURCE_DIR"], path)):
                    table[path] = symbols(obj)
    home = {name: path for path, (defined, _) in table.items() for name in defined}
    bad = []
    for path, (_, needed) in sorted(table.items()):
        user = module_of(path)
        for name in sorted(needed):
            if name in home and not allowed(user, module_of(home[name])):
                bad.append(f"{path} needs {name} of {home[name]}, which is above or beside it")
            if is_pure(path) and IMPURE.match(name):
                bad.append(f"{path} needs {name}, but has to be pure")
            if name in ("exit", "_exit", "abort", "printf", "puts", "putchar") and path != "src/base/assert.c":
                bad.append(f"{path} needs {name}: the library never prints, aborts or exits")
    return bad, len(table)


def main():
    bad, includes = check_includes(os.environ["SOURCE_DIR"])
    bad += check_tool(os.environ["SOURCE_DIR"])
    bad += check_names(os.environ["SOURCE_DIR"])
    more, objects = check_symbols(os.environ["BUILD_DIR"])
    for line in bad + more:
        print(line)
    if bad or more:
        return 1
    if includes == 0 or objects == 0:
        print("nothing was checked")
        return 1
    print(f"ok, {includes} includes, {objects} objects")
    return 0


sys.exit(main())
