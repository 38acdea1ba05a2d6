# SPDX-License-Identifier: Apache-2.0
# The package passes mypy --strict and ruff, where they are installed, compiles with the oldest Python that it is for, and has
# the version of the library.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need python3
version=$(sed -n 's/^project(varve VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
grep -q "\"$version\"" python/varve/_version.py || fail "python/varve/_version.py: not version $version"
export PYTHONPYCACHEPREFIX=$dir
for python in python3.9 python3; do
    "$python" --version >/dev/null 2>&1 || continue
    "$python" -m compileall -q -f python examples || fail "$python"
done
if command -v mypy >/dev/null; then
    mypy --strict --python-version 3.9 --cache-dir "$dir/mypy" --config-file python/mypy.ini python/varve || fail "mypy"
fi
if command -v ruff >/dev/null; then
    ruff check --no-cache --config python/ruff.toml python examples tests/python || fail "ruff"
fi
echo ok
