# SPDX-License-Identifier: Apache-2.0
# A thin layer over CMake; the work is in CMakeLists.txt and scripts/.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

.PHONY: all demo setup test test-all test-long gpu-test check-fast bench install uninstall deb abi format clean portable docs

# Configures again each time, to find libraries that were installed since the last time.
all: build/build.ninja
	@cmake build >build/configure.log || { cat build/configure.log; exit 1; }
	cmake --build build -j $(JOBS)

# If CMake fails, scripts/setup looks for packages to install.
build/build.ninja:
	cmake --preset release || { scripts/setup build && cmake --preset release; }

# The main job: images a piece of ground, with its history in Varve and without. Options: make demo DEMO='--small'.
demo: all
	@scripts/demo $(DEMO)

# Installs the needs of tests, benchmarks and documentation beyond a build.
setup:
	@scripts/setup test

# Every test, in debug mode.
test: setup
	scripts/test dev

# And under AddressSanitizer and UndefinedBehaviorSanitizer, and the concurrent ones under ThreadSanitizer; and a few
# of the known faults, which the tests have to find.
test-all: test
	scripts/test builds asan tsan mutants

# The same with many more random cases, every known fault (result: lab/results/mutants.md),
# and every case of the crash matrix (result: lab/results/crash.md).
test-long:
	@VARVE_TEST_LONG=1 scripts/setup test
	VARVE_TEST_LONG=1 VARVE_TEST_TIMEOUT=7200 scripts/test dev builds asan tsan mutants
	scripts/crash-matrix

# On a machine with a GPU: the tests of devices and of the modules above them, with the CUDA backend.
gpu-test:
	@scripts/gpu-test

# Run this before every commit: under a minute.
check-fast: setup
	cmake --preset dev >/dev/null
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev -j $(JOBS) -L '^(unit|lint)$$' -E '^lint/(install|packages|portable|without)$$'

bench: setup all
	@scripts/bench

install: all
	cmake --install build --prefix $(PREFIX)

# Removes the files of the last `make install` from this folder.
uninstall:
	@test -s build/install_manifest.txt || { echo "make uninstall: no build/install_manifest.txt: nothing was installed from this folder" >&2; exit 1; }
	xargs -d '\n' rm -f -- <build/install_manifest.txt
	sed 's,/[^/]*$$,,' build/install_manifest.txt | sort -ru | xargs -d '\n' rmdir -p --ignore-fail-on-non-empty -- 2>/dev/null || true
	rm build/install_manifest.txt

# Debian packages, in build/deb.
deb:
	@scripts/deb

portable:
	cmake --preset portable || { scripts/setup build && cmake --preset portable; }
	cmake --build --preset portable -j $(JOBS)

format:
	@scripts/format

# Pages of docs/ that are made from the sources and committed; man pages are made by the build.
docs: setup all
	@scripts/docs build/bin/varve-docgen

# The binary interface that tests/lint/abi.sh compares with.
abi: setup
	cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target varve_shared
	mkdir -p tests/golden/abi && scripts/abi build/dev >tests/golden/abi/libvarve.abi

clean:
	rm -rf build
