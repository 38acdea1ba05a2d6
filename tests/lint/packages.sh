# SPDX-License-Identifier: Apache-2.0
# The Debian packages can be built, lintian finds nothing, and the recipe for Spack compiles. In a long run the packages are
# installed in a chroot and tried there, and Varve is built with only the packages that README.md requires.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need python3
cp packaging/spack/package.py "$dir"
python3 -m py_compile "$dir/package.py" || fail "packaging/spack/package.py"
need dpkg-buildpackage
need dh
VARVE_DEB_OUT=$dir/deb JOBS=2 scripts/deb >"$dir/log" 2>&1 || { tail -40 "$dir/log"; fail "scripts/deb"; }
for package in libvarve0 libvarve-mpi0 libvarve-dev varve-tools python3-varve varve-doc; do
    ls "$dir/deb/$package"_*.deb >/dev/null || fail "no $package"
done
dpkg-deb -c "$dir"/deb/varve-tools_*.deb >"$dir/files"
grep -q " ./usr/libexec/varve/varve-lab\$" "$dir/files" || fail "varve-tools has no varve-lab"
! dpkg-deb -f "$dir"/deb/libvarve0_*.deb Depends | grep -q mpi || fail "libvarve0 needs an MPI"

if [ -z "${VARVE_TEST_LONG:-}" ] || [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "ok; not tried in a chroot, which takes VARVE_TEST_LONG, root and debootstrap"
    exit 0
fi
root=$dir/chroot
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER # which are not there
debootstrap --variant=minbase --include=gcc,libc6-dev,make,cmake,ninja-build,libinih-dev,libxxhash-dev \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$dir/log" 2>&1 || { tail "$dir/log"; fail "debootstrap"; }
mkdir "$root/src" "$root/deb"
git ls-files -z | xargs -0 cp --parents -P -t "$root/src"
chroot "$root" bash -c 'cd /src && make JOBS=2 && build/bin/varve doctor && make install PREFIX=/opt/varve && make uninstall && [ ! -e /opt/varve ]' >"$dir/log" 2>&1 ||
    { tail -40 "$dir/log"; fail "make, with nothing but what is required"; }
cp "$dir"/deb/*.deb "$root/deb"
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
chroot "$root" bash -ec 'apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends pkg-config $(ls /deb/*.deb | grep -v dbgsym)
    sed -n "/^```c\$/,/^```\$/{/^```/!p}" /src/README.md >/tmp/first.c
    cc /tmp/first.c $(pkg-config --cflags --libs varve) -o /tmp/first
    /tmp/first
    python3 -c "import varve; varve.open(host_cache=\"8M\").close()"
    varve sim shot --ckpts 8 --size 1M --rate d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M
    apt-get remove -y libvarve0' >"$dir/log" 2>&1 || { tail -40 "$dir/log"; fail "the packages in a chroot"; }
grep -q '^100 versions, there and back$' "$dir/log" || fail "the first program in a chroot"
echo ok
