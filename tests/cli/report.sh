# SPDX-License-Identifier: Apache-2.0
# The page of a trace: well formed, whole, loading nothing; and in a browser, where there is one.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "report: $*" >&2; exit 1; }
make="$BUILD_DIR/tests/unit/sim/trace_page"
[ -x "$make" ] || { echo "skipped: no $make"; exit 77; }

"$make" make "$dir/page.html" 300
python3 "$SOURCE_DIR/tests/cli/report_page.py" "$dir/page.html" || fail "the page of an invented run"

# The browser is the same for every build: what it would show differently under a sanitizer the checks above see.
if [ -n "${VARVE_SANITIZE:-}" ]; then
    echo "in a browser: not under a sanitizer"
    exit 0
fi
mkdir "$dir/browser"
rc=0
timeout 300 python3 "$SOURCE_DIR/tests/cli/report_browser.py" "$dir/page.html" "$dir/browser" || rc=$?
[ $rc -eq 0 ] || [ $rc -eq 77 ] || fail "in a browser ($rc)"
[ $rc -ne 77 ] || { echo "skipped: all but the browser was tested"; exit 77; }
