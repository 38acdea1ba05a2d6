# SPDX-License-Identifier: Apache-2.0
"""Histories of arrays: restored content, refused calls, and versions after reopening, a fork and an exit."""
import array
import ctypes
import errno
import gc
import os
import threading
import time
import unittest
import unittest.mock

import common

np = common.need("numpy")
import varve  # noqa: E402
from varve import _lease  # noqa: E402


def opened(**settings):
    return varve.open(**{"device": "none", "host_cache": "16M", **settings})


class Arrays(common.Case):
    def setUp(self):
        super().setUp()
        self.ctx = self.enterContext(opened()) if hasattr(self, "enterContext") else opened()
        self.addCleanup(gc.collect)

    def test_types_and_shapes(self):
        h = self.ctx.history("types")
        for v, dtype in enumerate(["f2", "f4", "f8", "c8", "c16", "i1", "u2", "i4", "u8", "?", ">f4", "S7", "U3", "M8[s]", "V5"]):
            a = np.frombuffer(os.urandom(24 * np.dtype(dtype).itemsize), dtype=dtype).reshape(2, 3, 4)
            if dtype == "U3":
                a = np.array([["abc", "d"]] * 3)
            elif dtype == "M8[s]":
                a = np.arange(24, dtype="i8").view("M8[s]").reshape(2, 3, 4)
            h.checkpoint(v, a)
            b = h.restore(v)
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            self.assertEqual(a.tobytes(), b.tobytes(), dtype)

    def test_names_and_positions(self):
        h = self.ctx.history("names")
        u, w = np.arange(12.0).reshape(3, 4), np.arange(5, dtype="i4")
        h.checkpoint(0, u)
        h.checkpoint(1, u, w)
        h.checkpoint(2, u, w=w)
        np.testing.assert_array_equal(h.restore(0), u)
        self.assertEqual([a.tobytes() for a in h.restore(1)], [u.tobytes(), w.tobytes()])
        found = h.restore(2)
        self.assertEqual(list(found), ["0", "w"])
        only = h.restore(2, out={"w": np.zeros_like(w)})
        np.testing.assert_array_equal(only["w"], w)
        self.assertEqual([(r.name, r.dtype, r.shape) for r in h.describe(2)], [(None, "float64", (3, 4)), ("w", "int32", (5,))])
        self.assertEqual(list(h), [0, 1, 2])
        self.assertIn(1, h)
        self.assertEqual(len(h), 3)
        h.discard(1)
        self.assertNotIn(1, h)

    def test_without_arrays(self):
        """Refused at every level: above `cached` the description alone would make a version."""
        with opened(local=self.path("none"), level="local") as ctx:
            for h in (self.ctx.history("none"), ctx.history("none")):
                with self.assertRaisesRegex(varve.Error, "version 1: no array is given"):
                    h.checkpoint(1)
                self.assertEqual(list(h), [])

    def test_order_of_memory(self):
        h = self.ctx.history("order")
        a = np.asfortranarray(np.arange(12.0).reshape(3, 4))
        h.checkpoint(0, a)
        b = h.restore(0)
        self.assertTrue(b.flags.f_contiguous)
        np.testing.assert_array_equal(a, b)
        with self.assertRaises(varve.LayoutError):
            h.restore(0, out=np.zeros((3, 4)))
        with self.assertRaises(varve.NotContiguousError):
            h.checkpoint(1, a[::2])
        h.checkpoint(1, np.zeros((0, 3)), np.float32(3.5).reshape(()))
        empty, scalar = h.restore(1)
        self.assertEqual((empty.shape, scalar.shape, float(scalar)), ((0, 3), (), 3.5))

    def test_buffers(self):
        h = self.ctx.history("buffers")
        h.checkpoint(0, b"read only", bytearray(b"bytes"), array.array("d", [1.5, 2.5]), memoryview(b"view"), (ctypes.c_int32 * 3)(4, 5, 6))
        out = [bytearray(9), bytearray(5), array.array("d", [0, 0]), bytearray(4), (ctypes.c_int32 * 3)()]
        h.restore(0, out=out)
        self.assertEqual((bytes(out[0]), bytes(out[1]), list(out[2]), bytes(out[3]), list(out[4])),
                         (b"read only", b"bytes", [1.5, 2.5], b"view", [4, 5, 6]))
        h.checkpoint(1, Dlpack(np.arange(6, dtype="f4").reshape(2, 3)))
        np.testing.assert_array_equal(h.restore(1), np.arange(6, dtype="f4").reshape(2, 3))
        inner = np.dtype([("x", "f4"), ("y", object)])
        swapped = np.dtype({"names": ["x", "y"], "formats": [object, "f4"], "offsets": [8, 0]})
        fields = (np.zeros(3, [("a", "f4"), ("b", object)]), np.zeros(3, [("a", inner)]), np.zeros(3, swapped))
        h.checkpoint(2, np.zeros(3, [("a", "f4"), ("b", [("c", "i8")])]))
        for bad in (3, "text", None, [1.0], np.array([object()]), *fields):
            with self.assertRaises(TypeError):
                h.checkpoint(3, bad)

    def test_layout_is_checked(self):
        h = self.ctx.history("layout")
        a = np.ones((4, 5), "f4")
        h.checkpoint(0, a, b=a)
        keep = np.full((4, 5), 7, "f4")
        readonly = keep.copy()
        readonly.flags.writeable = False
        for out in ({"0": np.zeros((5, 4), "f4")}, {"0": np.zeros((4, 5), "i4")}, {"c": keep}, [keep], {"b": readonly}, [keep, b"x" * 80]):
            with self.assertRaises(varve.LayoutError):
                h.restore(0, out=out)
        self.assertTrue((keep == 7).all())

    def test_order_and_consumption(self):
        h = self.ctx.history("adjoint", order="lifo", consume="once")
        field = np.zeros(1 << 16)
        for step in range(8):
            field[:] = step
            h.checkpoint(step, field)
        for step in reversed(range(8)):
            h.restore(step, out=field)
            self.assertTrue((field == step).all())
        self.assertEqual(len(h), 0)
        with self.assertRaises(varve.InvalidError):
            h.hint(3)
        other = self.ctx.history("hinted")
        other.checkpoint(1, field)
        other.hint([1, 2])
        other.hint(3)
        other.prefetch()
        other.clear_hints()
        other.wait(1)
        self.assertTrue(other.ready(1))
        self.assertEqual((other.level(1), other.latest()), ("cached", 1))
        self.assertGreaterEqual(self.ctx.stats()["checkpoints"], 9)

    def test_errors(self):
        h = self.ctx.history("errors")
        a = np.zeros(10)
        with self.assertRaises(varve.NotFoundError) as e:
            h.restore(5)
        self.assertEqual(e.exception.errno, errno.ENOENT)
        self.assertIn("version 5", str(e.exception))
        h.checkpoint(5, a)
        with self.assertRaisesRegex(varve.ExistsError, "overwrite"):
            h.checkpoint(5, a)
        with self.assertRaisesRegex(varve.InvalidError, "not negative"):
            h.checkpoint(-1, a)
        with self.assertRaises(varve.NoSpaceError):
            h.checkpoint(6, np.zeros(1 << 22))
        with self.assertRaises(varve.BusyError):
            self.ctx.history("errors")
        with self.assertRaises(varve.InvalidError):
            self.ctx.history("a/b")
        with self.assertRaises(varve.InvalidError):
            h.wait(5, "remote")
        for bad in ({"no_such_key": 1}, {"host_cache": "many"}, {"level": "local"}):
            with self.assertRaisesRegex(varve.InvalidError, next(iter(bad))):
                varve.open(**bad)

    def test_versions_are_whole_numbers(self):
        h = self.ctx.history("whole")
        h.checkpoint(np.int64(3), np.zeros(3))
        h.restore(np.uint8(3))
        for use in (lambda: h.checkpoint(1.5, np.zeros(3)), lambda: h.restore(3.0)):
            with self.assertRaisesRegex(TypeError, "'float' object cannot be interpreted as an integer"):
                use()
        h.close()

    def test_closed(self):
        h = self.ctx.history("closed")
        h.checkpoint(0, np.zeros(3))
        h.close()
        h.close()
        with self.assertRaises(varve.ClosedError):
            h.restore(0)
        with opened() as ctx:
            other = ctx.history("other")
        for use in (lambda: other.checkpoint(0, np.zeros(3)), other.versions, lambda: ctx.history("x"), ctx.stats):
            with self.assertRaises(varve.ClosedError):
                use()

    def test_threads(self):
        """Threads with separate memory; closing during calls is refused or waits."""
        h = self.ctx.history("threads", consume="once")
        bad = []

        def work(first):
            mine = np.zeros(5000)
            for v in range(first, first + 60):
                mine[:] = v
                h.checkpoint(v, mine)
                if not (h.restore(v) == v).all():
                    bad.append(v)

        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(bad, [])

    def test_versions_of_any_integer_type(self):
        h = self.ctx.history("numbers")
        a = np.arange(3.0)
        h.checkpoint(np.int64(3), a)
        h.hint(np.int64(3))
        h.hint(np.array([3]))
        np.testing.assert_array_equal(h.restore(3), a)
        with self.assertRaises(varve.ExistsError):
            h.checkpoint(3, a)
        with h._using(), self.assertRaisesRegex(varve.BusyError, "in progress"):
            h.close()

    def test_layouts_of_other_threads(self):
        """A version that another thread writes while layouts of removed versions are dropped keeps its layout."""
        h = self.ctx.history("layouts", keep=2)
        versions, a = h.versions, np.arange(3.0)

        def meanwhile():
            del h.versions
            found = versions()
            h.checkpoint(5000, a)
            return found

        h.versions = meanwhile
        for v in range(1024):
            h.checkpoint(v, a)
        self.assertNotIn("versions", vars(h))
        self.assertLess(len(h._layouts), 5)
        np.testing.assert_array_equal(h.restore(5000), a)

    def test_interpreter_is_free(self):
        """Other threads run while the library waits."""
        with opened(local=self.path("slow"), level="local", rate="h2f=2M") as ctx:
            h = ctx.history("free")
            h.checkpoint(0, np.zeros(1 << 18))
            t = threading.Thread(target=h.wait, args=(0,))
            t.start()
            rounds = 0
            while t.is_alive():
                rounds += 1
                time.sleep(0)
            self.assertGreater(rounds, 100)

    def test_leaks(self):
        h = self.ctx.history("leaks", consume="once")
        a, versions = np.zeros(1000), iter(range(1 << 30))

        def step():
            v = next(versions)
            h.checkpoint(v, a, named=a)
            if v % 3 == 0:
                h.restore(v)
            else:
                with h.acquire(v, "named") as lease:
                    np.from_dlpack(lease)
                h.discard(v) if v in h else None

        self.flat(step, 1000, 4 << 20)


class Dlpack:
    """An object with DLPack and nothing else."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **kwargs):
        return self.a.__dlpack__()

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


class Leases(common.Case):
    def test_lending(self):
        with opened() as ctx:
            h = ctx.history("lent", consume="once")
            a = np.arange(30.0).reshape(5, 6)
            for v in range(4):
                h.checkpoint(v, a + v)
            with h.acquire(0) as lease:
                taken = np.from_dlpack(lease)
                self.assertEqual(lease.__dlpack_device__(), (1, 0))
                np.testing.assert_array_equal(taken, a)
                self.assertFalse(taken.flags.writeable)
            with self.assertRaises(varve.BusyError):
                ctx.close()
            self.assertIn(0, h)
            del taken
            gc.collect()
            self.assertNotIn(0, h)
            view = np.asarray(h.acquire(1))
            np.testing.assert_array_equal(view, a + 1)
            del view
            capsule = h.acquire(2).__dlpack__()
            gc.collect()
            with self.assertRaises(varve.BusyError):
                h.close()
            del capsule
            lease = h.acquire(3)
            lease.__dlpack__()
            lease.release()
            for use in (lease.__dlpack__, lambda: lease.pointer):
                with self.assertRaises(varve.ClosedError):
                    use()
            self.assertNotIn(2, h)
            self.assertEqual(len(h), 0)

    def test_capsule_taken_meanwhile(self):
        """A capsule that another thread consumes during the search for unused ones stays with that thread."""
        valid = _lease._capsule_valid
        with opened() as ctx:
            h = ctx.history("meanwhile")
            h.checkpoint(0, np.arange(30.0))
            lease = h.acquire(0)
            held = [lease.__dlpack__()]

            class Offer:
                def __dlpack__(self, **_):
                    return held.pop()

                def __dlpack_device__(self):
                    return 1, 0

            def meanwhile(capsule, name):
                found = valid(capsule, name)
                if held:
                    del capsule
                    taken.append(np.from_dlpack(Offer()))
                return found

            taken = []
            with unittest.mock.patch.object(_lease, "_capsule_valid", meanwhile):
                _lease._sweep()
            del lease
            with self.assertRaises(varve.BusyError):
                h.close()
            np.testing.assert_array_equal(taken[0], np.arange(30.0))
            taken.clear()

    def test_refused(self):
        with opened() as ctx:
            h = ctx.history("lent")
            h.checkpoint(0, np.asfortranarray(np.ones((3, 4))), np.ones(3))
            with self.assertRaises(varve.LayoutError):
                h.acquire(0)
            with self.assertRaises(varve.NotFoundError):
                h.acquire(0, "nothing")
            with h.acquire(0, 1) as lease:
                with self.assertRaises(varve.BusyError):
                    h.acquire(0, 1)
                with self.assertRaises(BufferError):
                    lease.__dlpack__(copy=True)
                with self.assertRaises(AttributeError):
                    lease.__cuda_array_interface__
            h.checkpoint(1, np.zeros(1 << 20, "u1"), np.zeros(9 << 20, "u1"))
            with self.assertRaises(varve.NoSpaceError):
                h.acquire(1, 1)


class Lives(common.Case):
    def test_reopened(self):
        a, b = np.arange(100, dtype="f4").reshape(10, 10), np.asfortranarray(np.arange(6).reshape(2, 3))
        for once in (False, True):
            folder = self.path(f"folder{once}")
            with opened(local=folder, level="local") as ctx:
                h = ctx.history("kept")
                for v in range(3):
                    h.checkpoint(v, a + v, b=b)
            with opened(local=folder, level="local") as ctx:
                h = ctx.history("kept", consume="once" if once else "keep")
                self.assertEqual((list(h), h.latest()), ([0, 1, 2], 2))
                found = h.restore(2)
                np.testing.assert_array_equal(found["0"], a + 2)
                np.testing.assert_array_equal(found["b"], b)
                self.assertEqual(2 in h, not once)
                with self.assertRaises(varve.LayoutError):
                    h.restore(1, out=np.zeros(3))
                if once:  # it was read, but is not lost
                    np.testing.assert_array_equal(h.restore(1)["0"], a + 1)
                    with self.assertRaises(varve.NotFoundError):
                        h.restore(1)
                    continue
                out = {"0": np.zeros_like(a)}
                self.assertIs(h.restore(1, out=out), out)
                np.testing.assert_array_equal(out["0"], a + 1)
                self.assertEqual(h.describe(0)[1].order, "F")

    def test_damaged(self):
        folder = self.path("folder")
        with opened(local=folder, level="local") as ctx:
            ctx.history("kept").checkpoint(7, np.arange(1 << 18))
        [file] = [os.path.join(d, f) for d, _, files in os.walk(folder) for f in files if os.path.getsize(os.path.join(d, f)) > 1 << 20]
        with open(file, "r+b") as f:
            f.seek(1 << 20)
            byte = f.read(1)[0]
            f.seek(1 << 20)
            f.write(bytes([byte ^ 4]))
        with opened(local=folder, level="local") as ctx:
            with self.assertRaises(varve.DamagedError):
                ctx.history("kept").restore(7)

    def test_fork(self):
        with opened() as ctx:
            h = ctx.history("forked")
            a = np.arange(1000.0)
            h.checkpoint(0, a)
            lease = h.acquire(0)
            taken = np.from_dlpack(lease)
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    h.restore(0)
                except varve.ForkedError:
                    del taken
                    lease.release()
                    gc.collect()
                    with opened() as mine:
                        mine.history("child").checkpoint(0, a)
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            np.testing.assert_array_equal(taken, a)
            del taken
            lease.release()

    def test_exit(self):
        """Nothing is closed and arrays are still alive in every way: the program ends normally, and its versions are there."""
        folder = self.path("folder")
        program = """
import sys, threading, numpy as np, varve
ctx = varve.open(device="none", host_cache="16M", local=sys.argv[1], level="local")
h = ctx.history("left")
for v in range(4): h.checkpoint(v, np.full(1 << 16, float(v)))
lent = [np.from_dlpack(h.acquire(0))] if sys.argv[2] == "lent" else None
kept = h.acquire(1) if sys.argv[2] == "lent" else None
offered = kept.__dlpack__() if kept else None
class Ring: pass
ring = Ring(); ring.me = ring; ring.h, ring.lent, ring.kept = h, lent, kept
print(len(h))
"""
        for how in ("lent", "plain"):
            status, out, err = common.child(program, self.path(how), how)
            self.assertEqual((status, out, err), (0, "4\n", ""))
        with opened(local=self.path("plain"), level="local") as ctx:
            self.assertEqual(list(ctx.history("left")), [0, 1, 2, 3])
        self.assertFalse(os.path.exists(folder))


class Parts(common.Case):
    """A job of three ranks; another one reads the versions of each rank."""

    def settings(self, rank, ranks, run):
        return {"level": "complete", "local": self.path(f"local{run}"), "remote": self.path("shared"), "rank": rank, "ranks": ranks, "run": run}

    def test_another_number_of_ranks(self):
        job = [opened(**self.settings(rank, 3, "old")) for rank in range(3)]
        histories = [ctx.history("state") for ctx in job]
        for version in range(2):
            for rank, h in enumerate(histories):
                h.checkpoint(version, np.arange(rank * 1000.0), step=np.array([version, rank]))
        for ctx in job:
            ctx.close()
        with opened(**self.settings(1, 2, "new")) as ctx:
            self.assertEqual(ctx.parts("state"), 3)
            for rank in range(3):
                part = ctx.part("state", rank)
                self.assertEqual(list(part), [0, 1])
                part.hint([1, 0])
                part.prefetch()
                for version in (1, 0):
                    found = part.restore(version)
                    np.testing.assert_array_equal(found["0"], np.arange(rank * 1000.0))
                    np.testing.assert_array_equal(found["step"], [version, rank])
                with self.assertRaises(varve.Error) as caught:
                    part.checkpoint(7, np.zeros(3))
                self.assertEqual(caught.exception.errno, errno.EROFS)
                part.close()
            for rank in (-1, 3):
                self.assertRaises(varve.InvalidError, ctx.part, "state", rank)
            self.assertRaises(varve.NotFoundError, ctx.parts, "none")


class Library(common.Case):
    def test_found_and_checked(self):
        status, _, err = common.child("import varve", env={"VARVE_LIBRARY": self.path("none.so")})
        self.assertEqual(status, 1)
        self.assertIn("set VARVE_LIBRARY", err)
        self.assertTrue(varve.library_version().startswith(varve.__version__[:3]))


if __name__ == "__main__":
    assert unittest
    common.main()
