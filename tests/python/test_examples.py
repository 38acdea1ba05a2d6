# SPDX-License-Identifier: Apache-2.0
"""The examples work as documented, and the programs of docs/python.md run."""
import os
import re
import signal
import subprocess
import sys

import common

common.need("numpy")
try:
    import torch
except ImportError:
    torch = None

SOURCE = os.environ["SOURCE_DIR"]


class Examples(common.Case):
    def run_one(self, name, *args, status=0):
        done = subprocess.run([sys.executable, os.path.join(SOURCE, "examples", name), *map(str, args)], capture_output=True, text=True,
                              timeout=300, check=False, cwd=self.folder.name)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def test_fwi_numpy(self):
        out = self.run_one("fwi_numpy.py", "--cells", 60, "--steps", 350, "--host-cache", "2M")
        self.assertRegex(out, "the same as with all in memory")
        self.assertNotRegex(out, "largest 0.000e")

    def test_resume(self):
        plain = self.run_one("resume.py", self.path("plain")).splitlines()[-1]
        self.run_one("resume.py", self.path("killed"), "--die-at", 117, status=-signal.SIGKILL)
        again = self.run_one("resume.py", self.path("killed"))
        self.assertEqual(again.splitlines()[-1], plain)

    def test_torch(self):
        if torch is None:
            self.skipTest("no torch")
        out = self.run_one("fwi_torch.py", "--cells", 64, "--steps", 350)
        self.assertRegex(out, "the same as with all in memory")
        losses = [float(v) for v in re.findall("misfit (.*)", out)]
        self.assertEqual(losses, sorted(losses, reverse=True))
        out = self.run_one("transformer.py", "--steps", 11, "--width", 64, "--layers", 2)
        losses = [float(v) for v in re.findall("loss (.*)", out)]
        self.assertLess(losses[-1], losses[0])

    def test_documentation(self):
        """Each program of the page that stands alone."""
        with open(os.path.join(SOURCE, "docs", "python.md"), encoding="utf-8") as f:
            programs = re.findall(r"```python\n(.*?)```", f.read(), flags=re.S)
        self.assertGreater(len(programs), 3)
        for program in programs:
            if ("torch" in program and torch is None) or "# not run" in program:
                continue
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
                                  cwd=self.folder.name)
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)


common.main()
