#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# s3rver, a server of object stores from npm that is not ours: histories keep copies in it, and the dataset cache reads from
# it. It is installed once, into the build folder; without npm, or if npm gets nothing, the test is skipped.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
[ -z "${VARVE_SANITIZE:-}" ] || skip "once is enough"
command -v npm >/dev/null && command -v node >/dev/null || skip "no npm"
command -v python3 >/dev/null || skip "no python3"
at=$BUILD_DIR/s3rver
if [ ! -x "$at/node_modules/.bin/s3rver" ]; then
    mkdir -p "$at"
    (cd "$at" && timeout 300 npm install --no-audit --no-fund --silent s3rver@3.7.1 >"$at/log" 2>&1) || skip "npm does not install s3rver"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$dir/store"
node "$at/node_modules/.bin/s3rver" --directory "$dir/store" --address 127.0.0.1 --port "$port" --silent --configure-bucket bucket &
server=$!
trap 'kill -KILL $server 2>/dev/null; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
export VARVE_TEST_S3=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=S3RVER AWS_SECRET_ACCESS_KEY=S3RVER AWS_REGION=us-east-1
unset http_proxy AWS_SESSION_TOKEN
for i in $(seq 600); do
    python3 -c "import urllib.request; urllib.request.urlopen('$VARVE_TEST_S3/bucket?list-type=2')" 2>/dev/null && break
    kill -0 $server 2>/dev/null || fail "s3rver has ended"
    [ "$i" -lt 600 ] || fail "s3rver does not answer"
    sleep 0.1
done
VARVE_TEST_REMOTE=s3 "$BUILD_DIR/tests/unit/ckpt/remote" >"$dir/out" 2>&1 || { cat "$dir/out"; fail "histories"; }
python3 "$SOURCE_DIR/tests/dataset/s3.py" >"$dir/out" 2>&1 || { cat "$dir/out"; fail "the dataset cache"; }
echo ok
