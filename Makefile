# SPDX-License-Identifier: Apache-2.0
# A thin front for CMake; everything of substance is in CMakeLists.txt and scripts/.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

.PHONY: all setup test test-long check-fast bench install format clean portable docs

all: setup build/build.ninja
	cmake --build build -j $(JOBS)

build/build.ninja: | setup
	cmake --preset release

setup:
	@scripts/setup

# Every test, in debug mode, under AddressSanitizer and UndefinedBehaviorSanitizer, and the concurrent ones under
# ThreadSanitizer.
test: setup
	scripts/test dev asan tsan

# The same with far more random cases than a gate can afford.
test-long: setup
	VARVE_TEST_LONG=1 VARVE_TEST_TIMEOUT=7200 scripts/test dev asan tsan

# Under a minute: what to run before every commit.
check-fast: setup
	cmake --preset dev >/dev/null
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev -j $(JOBS) -L '^(unit|lint)$$' -E '^lint/(install|portable)$$'

bench: all
	@scripts/bench

install: all
	cmake --install build --prefix $(PREFIX)

portable: setup
	cmake --preset portable
	cmake --build --preset portable -j $(JOBS)

format:
	@scripts/format

# Documentation that is generated from the sources and committed.
docs: all
	@scripts/docs build/bin/varve-docgen

clean:
	rm -rf build
