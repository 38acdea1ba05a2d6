#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Swift with its s3api and memcached, a server of object stores that is not ours and checks every signature: histories keep
# copies in it, and the dataset cache reads from it. Long runs install it.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
[ -z "${VARVE_SANITIZE:-}" ] || skip "once is enough"
for command in swift-proxy-server swift-account-server swift-container-server swift-object-server swift-ring-builder memcached python3; do
    need "$command"
done
python3 -c "import os; os.setxattr('$dir', 'user.varve', b'1')" 2>/dev/null || skip "no extended attributes in $dir"
pids=()
trap '{ [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}"; wait; } 2>/dev/null || true; rm -rf "$dir"' EXIT

read -r -a port < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(5)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in sockets])')
proxy=${port[3]} memcached=${port[4]}
mkdir "$dir/srv" "$dir/srv/disk"
cd "$dir"
common="bind_ip = 127.0.0.1
swift_dir = $dir
user = $(id -un)
workers = 0"
n=0
for kind in account container object; do
    {
        swift-ring-builder $kind.builder create 4 1 0
        swift-ring-builder $kind.builder add --region 1 --zone 1 --ip 127.0.0.1 --port "${port[$n]}" --device disk --weight 1
        swift-ring-builder $kind.builder rebalance
    } >>log 2>&1 || { cat log; fail "swift-ring-builder"; }
    cat >$kind.conf <<CONF
[DEFAULT]
$common
bind_port = ${port[$n]}
devices = $dir/srv
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
CONF
    n=$((n + 1))
done
cat >proxy.conf <<CONF
[DEFAULT]
$common
bind_port = $proxy
[pipeline:main]
pipeline = catch_errors gatekeeper cache bulk s3api tempauth slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_varve = secret .admin
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:$memcached
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
CONF
memcached -l 127.0.0.1 -p "$memcached" -U 0 -u "$(id -un)" >>log 2>&1 &
pids+=($!)
for kind in account container object proxy; do
    swift-$kind-server "$dir/$kind.conf" -v >>log 2>&1 &
    pids+=($!)
done

# Swift's own interface makes the bucket and puts the objects that the dataset cache is to read.
unset http_proxy AWS_SESSION_TOKEN
cat >bucket.py <<'PY'
import sys, urllib.request
base = sys.argv[1]
ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
login = urllib.request.Request(base + "/auth/v1.0", headers={"X-Auth-User": "test:varve", "X-Auth-Key": "secret"})
token = ask(login, timeout=10).headers["X-Auth-Token"]
ask(urllib.request.Request(base + "/v1/AUTH_test/bucket", method="PUT", headers={"X-Auth-Token": token}), timeout=10)
print(token)
PY
export VARVE_TEST_S3=http://127.0.0.1:$proxy AWS_ACCESS_KEY_ID=test:varve AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1
for i in $(seq 300); do
    token=$(python3 bucket.py "$VARVE_TEST_S3" 2>>log) && break
    kill -0 "${pids[@]}" 2>/dev/null || { cat log; fail "a server of Swift has ended"; }
    [ "$i" -lt 300 ] || { cat log; fail "Swift does not answer"; }
    sleep 0.2
done
VARVE_TEST_REMOTE=s3 "$BUILD_DIR/tests/unit/ckpt/remote" >out 2>&1 || { cat out; tail -40 log; fail "histories"; }
AWS_SECRET_ACCESS_KEY=wrong VARVE_TEST_REMOTE=s3 "$BUILD_DIR/tests/unit/ckpt/remote" >out 2>&1 && fail "a wrong key was taken"
VARVE_TEST_S3_PUT=$VARVE_TEST_S3/v1/AUTH_test VARVE_TEST_S3_TOKEN=$token python3 "$SOURCE_DIR/tests/dataset/s3.py" >out 2>&1 ||
    { cat out; tail -40 log; fail "the dataset cache"; }
echo ok
