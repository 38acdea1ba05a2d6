#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# preload/list.h is complete: the library exports exactly those calls, needs only libc, and the documentation lists the
# same calls, and the same ones that are left alone.
set -euo pipefail
cd "$SOURCE_DIR"
library=$BUILD_DIR/lib/libvarve-preload.so
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
sed -n 's/^    X(\([A-Za-z0-9_]*\)).*/\1/p' preload/list.h | LC_ALL=C sort >"$dir/list"
[ "$(wc -l <"$dir/list")" -ge 40 ] || fail "hooks not found in list.h"
nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort >"$dir/exported"
diff "$dir/list" "$dir/exported" || fail "list.h and the library's exports differ"
sed -n 's/^        \([A-Za-z0-9_]*\);$/\1/p' preload/libvarve-preload.map | LC_ALL=C sort >"$dir/map"
diff "$dir/list" "$dir/map" || fail "list.h and the map differ"
while read -r name; do
    grep -q "\`$name\`" docs/dataset-preload.md || fail "docs/dataset-preload.md does not list $name"
    grep -q "^\.BR $name[, ]" man/varve-preload.7 || fail "man/varve-preload.7 does not list $name"
done <"$dir/list"
python3 - <<'END' || fail "the lists of calls that are left alone differ"
import re, sys
text = open("preload/list.h").read().split("#define VV_PRELOAD_LEFT_OUT(X)")[1]
rows = re.findall(r'X\(((?:"[^"]*"[\s\\]*)+),[\s\\]*((?:"[^"]*"[\s\\]*)+)\)', text)
doc = open("docs/dataset-preload.md").read()
man = open("man/varve-preload.7").read()
bad = len(rows) < 10
for row in rows:
    calls, why = ("".join(re.findall(r'"([^"]*)"', part)) for part in row)
    for where, has in (("docs/dataset-preload.md", f"| {calls} | {why} |" in doc),
                       ("man/varve-preload.7", calls.replace("-", "\\-") in man and why in man)):
        if not has:
            print(f"{where}: {calls}")
            bad = True
sys.exit(bad)
END
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^libc\.so\|^libdl\.so\|^ld-linux' || true)
[ -z "$needed" ] || fail "the library needs $needed"
