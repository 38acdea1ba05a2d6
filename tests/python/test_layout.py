# SPDX-License-Identifier: Apache-2.0
"""The structures of the package have the layout of the C compiler, and all functions exist."""
import ctypes
import os
import subprocess

import common
import varve._layout as layout
from varve._lib import lib


class Layout(common.Case):
    def test_structs(self):
        lines, here = [], []
        for struct in layout.STRUCTS:
            name = struct.__name__
            lines.append(f'printf("%zu ", sizeof(struct {name}));')
            here.append(ctypes.sizeof(struct))
            for field in struct._fields_:
                lines.append(f'printf("%zu %zu ", offsetof(struct {name}, {field[0]}), sizeof(((struct {name} *)0)->{field[0]}));')
                here += [getattr(struct, field[0]).offset, getattr(struct, field[0]).size]
        for name in layout.CONSTANTS:
            lines.append(f'printf("%zu ", (size_t){name});')
        here += layout.CONSTANTS.values()
        with open(self.path("layout.c"), "w", encoding="ascii") as f:
            f.write("#include <stddef.h>\n#include <stdio.h>\n#include <varve/ckpt.h>\n#include <varve/dlpack.h>\n"
                    "int main(void) {" + "\n".join(lines) + "return 0; }\n")
        include = os.path.join(os.environ["SOURCE_DIR"], "include")
        subprocess.run([os.environ.get("CC", "cc"), "-I", include, self.path("layout.c"), "-o", self.path("layout")], check=True)
        there = subprocess.run([self.path("layout")], check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual([int(n) for n in there], here)
        self.assertGreater(len(layout.STRUCTS), 5)

    def test_functions(self):
        for name in layout.FUNCTIONS:
            self.assertIsNotNone(getattr(lib, name))


common.main()
