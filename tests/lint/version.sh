# SPDX-License-Identifier: Apache-2.0
# One version number: CMake's is that of CHANGELOG.md, the packages, the Python package, the man pages and the library that was built,
# and the soname and CMake's rule promise what docs/compatibility.md does.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
bad=0
complain() { echo "$*" >&2; bad=1; }
version=$(sed -nE 's/^project\(varve VERSION ([0-9]+\.[0-9]+\.[0-9]+) .*/\1/p' CMakeLists.txt)
[ -n "$version" ] || fail "CMakeLists.txt: no version"
major=${version%%.*}

# The newest part of CHANGELOG.md is this version: not yet released, or with its date. All others have theirs.
mapfile -t parts < <(grep -E '^## ' CHANGELOG.md)
case ${parts[0]:-} in
"## $version, not yet released" | "## $version, "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]) ;;
*) complain "CHANGELOG.md begins with '${parts[0]:-nothing}', not with '## $version, not yet released' or '## $version, YYYY-MM-DD'" ;;
esac
for part in "${parts[@]:1}"; do
    [[ $part =~ ^##\ [0-9]+\.[0-9]+\.[0-9]+,\ [0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || complain "CHANGELOG.md: '$part' has no date"
done
# A release with a date has a tag, if the clone has tags.
if tags=$(git tag 2>/dev/null) && [ -n "$tags" ]; then
    for part in "${parts[@]}"; do
        [[ $part =~ ^##\ ([0-9.]+),\ [0-9]{4}- ]] || continue
        grep -qx "v${BASH_REMATCH[1]}" <<<"$tags" || complain "${BASH_REMATCH[1]} is released, and there is no tag v${BASH_REMATCH[1]}"
    done
fi

same() { [ "$2" = "$version" ] || complain "$1 says ${2:-nothing}, CMakeLists.txt $version"; }
same packaging/debian/changelog "$(sed -nE '1s/^varve \(([^-)]*).*/\1/p' packaging/debian/changelog)"
same python/varve/_version.py "$(sed -nE 's/^__version__ = "(.*)"/\1/p' python/varve/_version.py)"
same examples/kubernetes.yaml "$(sed -nE 's/.*image: .*varve:([0-9.]+)$/\1/p' examples/kubernetes.yaml | sort -u)"
for page in man/*; do
    grep -q '^\.TH' "$page" && { grep -qE "^\.TH .*\"varve $version\"" "$page" || complain "$page is not of varve $version"; }
done

# libvarve.so.MAJOR, and packages of that name; any later MINOR of one MAJOR for CMake.
grep -q "^Package: libvarve$major\$" packaging/debian/control || complain "packaging/debian/control has no libvarve$major"
grep -q 'soname is `libvarve.so.MAJOR`' docs/compatibility.md || complain "docs/compatibility.md does not speak of the soname"
first=$(sed -nE 's/.*hold from ([0-9.]+) on\.$/\1/p' docs/compatibility.md)
[ -n "$first" ] && [ "$(printf '%s\n%s\n' "$first" "$version" | sort -V | head -1)" = "$first" ] ||
    complain "docs/compatibility.md promises from '$first' on, which is not $version or before"
if [ -e "$BUILD_DIR/lib/libvarve.so" ]; then
    need readelf
    soname=$(readelf -d "$BUILD_DIR/lib/libvarve.so" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')
    [ "$soname" = "libvarve.so.$major" ] || complain "the soname is $soname"
    [ -e "$BUILD_DIR/lib/libvarve.so.$version" ] || complain "there is no libvarve.so.$version"
    grep -q 'PACKAGE_FIND_VERSION_MAJOR STREQUAL' "$BUILD_DIR/varveConfigVersion.cmake" ||
        complain "varveConfigVersion.cmake does not go by the MAJOR"
fi
exit $bad
