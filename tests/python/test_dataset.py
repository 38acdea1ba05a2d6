# SPDX-License-Identifier: Apache-2.0
"""A daemon of the dataset cache gets orders by lists and samplers, answers with its figures, and its refusals are exceptions."""
import os
import subprocess
import threading
import time

import common
from varve import dataset


class Daemon(common.Case):
    def setUp(self):
        super().setUp()
        os.environ["VARVE_CACHED_SOCKET"] = self.path("sock")
        self.data = self.path("data")
        os.mkdir(self.data)
        self.files = []
        for i in range(40):
            self.files.append(os.path.join(self.data, f"{i}.bin"))
            with open(self.files[-1], "wb") as f:
                f.write(os.urandom(10000))

    def start(self):
        tool = os.environ["VARVE_BIN"]
        subprocess.run([tool, "cached", "--daemon", "--roots", self.data, "--cache", self.path("cache"), "--log", self.path("log")],
                       check=True, capture_output=True, timeout=120)
        self.addCleanup(subprocess.run, [tool, "cached", "stop"], check=False, capture_output=True, timeout=120)

    def test_orders_and_figures(self):
        self.start()
        self.assertEqual(dataset.status()["files"], 0)
        answer = dataset.order(self.files)
        self.assertIn("40 files will be brought", answer)
        for _ in range(2400):
            if dataset.status()["files"] == 40:
                break
            time.sleep(0.05)
        self.assertEqual(dataset.status()["files"], 40)

        sampler = [3, 1, 2]
        self.assertIn("3 files", dataset.order(iter(sampler), lambda i: self.files[i]))
        self.assertIn("3 files", dataset.order(sampler, lambda i: self.files[i], here=True))
        self.assertIn("2 files", dataset.bring(os.path.relpath(f) for f in self.files[:2]))
        self.assertIn("1 will not", dataset.order([self.files[0], "/etc/hostname"]))
        with self.assertRaisesRegex(dataset.CacheError, "below a root"):
            dataset.order(["/etc/hostname"])
        with self.assertRaises(ValueError):
            dataset.order(["a\nb"])
        # More than one message, from several threads.
        many = self.files * 500
        threads = [threading.Thread(target=lambda: self.assertIn("20000 files", dataset.order(many))) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.flat(lambda: dataset.status(), 100, 4 << 20)

    def test_no_daemon(self):
        for call in (dataset.status, lambda: dataset.order(self.files)):
            with self.assertRaises(dataset.NoDaemonError):
                call()

    def test_samplers_of_torch(self):
        try:
            from torch.utils.data import DistributedSampler, RandomSampler
        except ImportError:
            self.skipTest("no torch")
        self.start()
        for sampler in (RandomSampler(self.files), DistributedSampler(self.files, num_replicas=2, rank=0)):
            self.assertIn(f"{len(sampler)} files", dataset.order(sampler, self.files.__getitem__))


common.main()
