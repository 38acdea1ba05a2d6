# SPDX-License-Identifier: Apache-2.0
# The sources compile without a warning under the other compiler as well. No code is generated: this takes seconds.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need clang
need python3
[ -e "$BUILD_DIR/compile_commands.json" ] || skip "no compile_commands.json"
python3 - "$BUILD_DIR/compile_commands.json" <<'PY'
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


# A header of the Fortran compiler, which lies beside those of the other C compiler.
BESIDE = subprocess.run([os.environ.get("CC", "cc"), "-print-file-name=include"], capture_output=True, text=True).stdout.strip()


def check(entry):
    words = shlex.split(entry["command"])
    flags = [w for w in words if w.startswith(("-D", "-I", "-std=", "-W", "-pthread"))]
    for i, word in enumerate(words):
        if word == "-isystem":
            flags += words[i:i + 2]
    if "/src/fortran/" in entry["file"] and os.path.isabs(BESIDE):
        flags += ["-idirafter", BESIDE]
    run = subprocess.run(["clang", "-fsyntax-only", "-Werror", "-Wno-unknown-warning-option"] + flags + [entry["file"]],
                         capture_output=True, text=True)
    return run.returncode, run.stderr


# A build folder may list removed files.
entries = [e for e in json.load(open(sys.argv[1])) if e["file"].endswith(".c") and os.path.exists(e["file"])]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    results = list(pool.map(check, entries))
for code, text in results:
    if code != 0:
        sys.stderr.write(text)
if not results or any(code != 0 for code, _ in results):
    sys.exit(1)
print(f"ok, {len(results)} files")
PY
