#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables in the README.md of modules name files that exist; those of src/ and preload/ name all of theirs.

A name is relative to the module, to a folder in it, to src/, to include/ or to the root. Private headers need no row, and a .c file needs none
where its header has one. A module without a table is left alone.

All files and functions that docs/architecture.md names exist; of `file: function`, the function is in that file.
"""
import glob
import os
import re
import sys

FILE = re.compile(r"^[\w./*-]+(\.(c|h|cu|cuh|f90|js|css|map|md|sh|py|csv)|\.\[ch\]|/)$")


def named(module):
    """For each name in a table of the README: line, name, its files."""
    with open(os.path.join(module, "README.md"), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.startswith("|"):
                continue
            for name in re.findall(r"`([^`]+)`", line):
                if FILE.match(name):
                    yield number, name, find(module, name)


def find(module, name):
    """The files of a name; empty unless all of `name.[ch]` exist."""
    if name.endswith(".[ch]"):
        parts = [find(module, name[:-4] + letter) for letter in "ch"]
        return parts[0] | parts[1] if all(parts) else set()
    for base in (module, os.path.join(module, "*"), "src", "include", "."):
        found = glob.glob(os.path.join(base, name))
        if found:
            return {os.path.normpath(path) for path in found}
    return set()


def has_row(path, rows):
    return path in rows or path.endswith("_private.h") or (path.endswith(".c") and path[:-2] + ".h" in rows)


def check(module):
    bad = []
    rows = set()
    for number, name, files in named(module):
        rows |= files
        if not files:
            bad.append(f"{module}/README.md:{number}: there is no {name}")
    if rows and module not in ("cli", "lab"):
        for folder, _, files in sorted(os.walk(module)):
            for path in (os.path.join(folder, name) for name in sorted(files)):
                if path.endswith((".c", ".h", ".cu", ".cuh")) and not has_row(path, rows):
                    bad.append(f"{module}/README.md: no row for {path}")
    return bad


def check_page(page):
    """Names in the text: `ckpt/checkpoint.c: varve_checkpoint`, `space.c`, `policy/next.[ch]`, `vv_core_put`."""
    sources = {}
    for top in ("src", "include", "cli", "lab", "preload", "tests"):
        for path in glob.glob(top + "/**/*.*", recursive=True):
            if path.endswith((".c", ".h", ".cu", ".sh", ".css", ".js")):
                with open(path, encoding="utf-8") as f:
                    sources["/" + path] = f.read()
    known = set(re.findall(r"\w+", " ".join(sources.values())))
    bad = []
    with open(page, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            for name in re.findall(r"`([^`]+)`", line):
                path, _, function = name.partition(": ")
                names = [path[:-4] + letter for letter in "ch"] if path.endswith(".[ch]") else [path]
                texts = [[text for at, text in sources.items() if at.endswith("/" + one)] for one in names]
                is_file = FILE.match(path) and not path.endswith(("/", ".md", ".map")) and "*" not in path
                if is_file and not all(texts):
                    bad.append(f"{page}:{number}: there is no {path}")
                elif is_file and function and not any(re.search(rf"\b{function}\(", text) for text in texts[0]):
                    bad.append(f"{page}:{number}: no {function} in {path}")
                elif re.match(r"(vv|vvi|varve)_[a-z0-9_]+$", name) and name not in known:
                    bad.append(f"{page}:{number}: there is no {name}")
    return bad


modules = sorted(os.path.dirname(path) for pattern in ("src/*", "cli", "lab", "preload") for path in glob.glob(pattern + "/README.md"))
bad = [line for module in modules for line in check(module)] + check_page("docs/architecture.md")
print("\n".join(bad) if bad else f"ok, {len(modules)} modules")
sys.exit(bool(bad))
