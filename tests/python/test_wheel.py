# SPDX-License-Identifier: Apache-2.0
"""The package built by pip, with the library and without, called from any folder."""
import os
import sys
import unittest.mock
import zipfile

import common

SOURCE = os.environ["SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "python", "build_support"))
import wheel_of_varve  # noqa: E402


class Wheel(common.Case):
    def make(self, library):
        with unittest.mock.patch.dict(os.environ, {"VARVE_WHEEL_LIBRARY": library} if library else {}):
            name = wheel_of_varve.build_wheel(self.folder.name)
        return name, zipfile.ZipFile(self.path(name)).namelist()

    def test_alone(self):
        name, files = self.make(None)
        self.assertTrue(name.endswith("-py3-none-any.whl"))
        self.assertIn("varve/torch/_offload.py", files)
        self.assertNotIn("varve/libvarve.so.0", files)

    def test_with_the_library(self):
        library = os.environ["VARVE_LIBRARY"]
        for path in library, os.path.relpath(library, SOURCE):
            name, files = self.make(path)
            self.assertFalse(name.endswith("-any.whl"))
            self.assertIn("varve/libvarve.so.0", files)
        program = "import sys; sys.path.insert(0, sys.argv[1]); import varve; print(varve.__file__, varve.library_version())"
        with zipfile.ZipFile(self.path(name)) as wheel:
            wheel.extractall(self.path("there"))
        status, out, err = common.child(program, self.path("there"), env={"VARVE_LIBRARY": ""})
        self.assertEqual(status, 0, err)
        self.assertTrue(out.startswith(self.path("there")), out)
        with self.assertRaisesRegex(FileNotFoundError, "VARVE_WHEEL_LIBRARY: there is no .*nothing.so"):
            self.make("build/nothing.so")


if __name__ == "__main__":
    common.main()
