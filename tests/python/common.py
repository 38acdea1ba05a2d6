# SPDX-License-Identifier: Apache-2.0
"""Helpers shared by the tests of the package: modules that may be missing, child processes, temporary folders, figures of a process."""
import gc
import importlib
import os
import subprocess
import sys
import tempfile
import unittest


def need(*names):
    """The modules; the test is skipped without them."""
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ImportError as e:
            print(f"skipped: no {name} ({e})")
            sys.exit(77)
    return found[0] if len(found) == 1 else found


def child(code, *args, env=None, timeout=120):
    """Runs a program; a crash shows in the status."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, check=False)
    return done.returncode, done.stdout, done.stderr


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="varve-")
        self.addCleanup(self.folder.cleanup)

    def path(self, *parts):
        return os.path.join(self.folder.name, *parts)

    def flat(self, step, rounds, slack):
        """Checks that `step` stops taking more memory and descriptors after some calls."""
        for _ in range(max(rounds // 5, 1)):
            step()
        gc.collect()
        memory, files = resident(), descriptors()
        for _ in range(rounds):
            step()
        gc.collect()
        self.assertLessEqual(descriptors(), files)
        self.assertLessEqual(resident() - memory, slack)


def main():
    unittest.main(verbosity=1)
