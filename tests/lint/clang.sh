# SPDX-License-Identifier: Apache-2.0
# The sources compile without a warning under the other compiler as well. No code is generated: this takes seconds.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need clang
need python3
[ -e "$BUILD_DIR/compile_commands.json" ] || skip "no compile_commands.json"
python3 - "$BUILD_DIR/compile_commands.json" <<'PY' >"$dir/commands"
import json, shlex, sys
for entry in json.load(open(sys.argv[1])):
    words = shlex.split(entry["command"])
    flags = [w for w in words if w.startswith(("-D", "-I", "-std=", "-W", "-pthread"))]
    system = [words[i + 1] for i, w in enumerate(words) if w == "-isystem"]
    print(shlex.join(["clang", "-fsyntax-only", "-Werror", "-Wno-unknown-warning-option"] + flags + [x for s in system for x in ("-isystem", s)] + [entry["file"]]))
PY
[ -s "$dir/commands" ] || fail "no command found"
xargs -P 2 -I{} sh -c '{}' <"$dir/commands" >"$dir/out" 2>&1 || { head -50 "$dir/out"; fail "clang complains"; }
echo "ok, $(wc -l <"$dir/commands") files"
