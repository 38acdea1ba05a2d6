# SPDX-License-Identifier: Apache-2.0
# Dependencies point one way, and no two sources have one name; and the check finds violations.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need nm
need python3
python3 tests/lint/layers.py

# A tree with one upward edge by name, one by symbol, a policy that reads the clock, and two files of one name.
mkdir -p "$dir/cli" "$dir/src/base" "$dir/src/store/files" "$dir/src/policy" "$dir/build/CMakeFiles/varve_objects.dir/src/"{base,store,policy}
echo '#include "store/store.h"
int vv_store_thing(void); int vv_base_thing(void); int vv_base_thing(void) { return vv_store_thing(); }' >"$dir/src/base/a.c"
echo 'int vv_store_thing(void); int vv_store_thing(void) { return 1; }' >"$dir/src/store/b.c"
echo 'long vv_now_ns(void); long vv_policy_thing(void); long vv_policy_thing(void) { return vv_now_ns(); }' >"$dir/src/policy/c.c"
echo '#include "store/remote/group.h"' >"$dir/src/store/files/d.h"
touch "$dir/src/store/store.h" "$dir/cli/a.c"
for f in base/a store/b policy/c; do
    ${CC:-cc} -I"$dir/src" -c "$dir/src/$f.c" -o "$dir/build/CMakeFiles/varve_objects.dir/src/$f.c.o"
done
if SOURCE_DIR=$dir BUILD_DIR=$dir/build python3 tests/lint/layers.py >"$dir/out"; then
    fail "the check does not see upward edges"
fi
grep -q 'src/base/a.c:1: base includes store/store.h' "$dir/out" || fail "upward include not seen"
grep -q 'src/store/files/d.h:1: store/remote/group.h is in a folder above' "$dir/out" || fail "upward include in store/ not seen"
grep -q 'src/base/a.c needs vv_store_thing of src/store/b.c' "$dir/out" || fail "upward symbol not seen"
grep -q 'src/policy/c.c needs vv_now_ns' "$dir/out" || fail "clock in a policy not seen"
grep -q 'cli/a.c: src/base/a.c has that name, too' "$dir/out" || fail "two files of one name not seen"
