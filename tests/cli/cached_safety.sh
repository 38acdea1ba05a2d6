# SPDX-License-Identifier: Apache-2.0
# A daemon of the dataset cache against traps of another user: folders, tokens, the folder of a Slurm
# job; and senseless settings.
set -euo pipefail
. "$SOURCE_DIR/tests/cli/cached.sh.inc"
mkdir -p "$dir/data/sub"
for i in 1 2 3; do head -c $((i * 30000)) /dev/urandom >"$dir/data/f$i"; done

# A cache in a folder that is served, or that cannot hold it.
expect 2 --roots "$dir/data" --cache "$dir/data/cache" --capacity 10M
says "lies in $dir/data, which is served"
[ ! -e "$dir/data/cache" ] || fail "made a folder that it refuses"
expect 2 --roots "$dir/data" --cache "$dir/data" --capacity 10M
says "which is served"
ln -s data "$dir/other"
expect 2 --roots "$dir/data" --cache "$dir/other/sub/cache" --capacity 10M
says "which is served"
expect 2 --roots "$dir/data" --cache "$dir/cache" --capacity 900000T
says "is more than the disk of $dir/cache has"

# Folders that others can write to.
mkdir -m 777 "$dir/open"
chmod 777 "$dir/open"
expect 1 --roots "$dir/data" --cache "$dir/open" --capacity 10M
says "chmod go-w"
expect 1 --roots "$dir/data" --cache "$dir/open/cache" --capacity 10M
says "is not safe"
chmod +t "$dir/open"
start --roots "$dir/data" --cache "$dir/open/cache" --capacity 10M
end

# A folder is not a file, and a missing file is not an error.
start --roots "$dir/data" --cache "$dir/cache" --capacity 10M --revalidate 0
LD_PRELOAD=$library cat "$dir/data/none" "$dir/data/sub" "$dir/data/none" >/dev/null 2>&1 || true
[ "$(figure passed_error_total)" = 0 ] || fail "$(figure passed_error_total) errors"
[ "$(figure passed_missing_total)" -ge 1 ] || fail "what is missing is not counted"

# A folder that is deleted comes back.
LD_PRELOAD=$library cat "$dir"/data/f? | cmp - <(cat "$dir"/data/f?) || fail "wrong bytes"
[ "$(figure files)" = 3 ] || fail "$(figure files) files"
rm -rf "$dir/cache"
for _ in 1 2; do LD_PRELOAD=$library cat "$dir"/data/f? | cmp - <(cat "$dir"/data/f?) || fail "wrong bytes without the folder"; done
[ "$(figure files)" = 3 ] && [ "$(find "$dir/cache" -name '*.data' | wc -l)" = 3 ] || fail "the folder does not come back"
[ "$(figure damaged_total)" = 0 ] || fail "files that are gone are not damaged"
grep -q "the cache folder $dir/cache is gone" "$dir/log" || fail "not a word in the log"
end
start --roots "$dir/data" --cache "$dir/cache" --capacity 10M --revalidate 0
[ "$(figure files)" = 3 ] || fail "not taken up: $(figure files) files"
end

# A node with another token: refused, and the log says so, but not for each attempt.
for n in a b; do (umask 077; printf 'the token of %s, and of no other' $n >"$dir/token.$n"); done
start --roots "$dir/data" --cache "$dir/cache" --capacity 10M --node a --listen 127.0.0.1:0 --token "$dir/token.a"
address=$(sed -n 's/.*"name":"a","address":"\([^"]*\)".*/\1/p' < <("$VARVE_BIN" cached status --json))
printf 'a %s\n' "$address" >"$dir/peers"
expect 0 --daemon --log "$dir/log.b" --roots "$dir/data" --cache "$dir/cache.b" --capacity 10M --node b --listen 127.0.0.1:0 \
    --token "$dir/token.b" --peers "$dir/peers" --socket "$dir/sock.b"
for _ in $(seq 2400); do grep -qs "with another token" "$dir/log" "$dir/log.b" && break; sleep 0.05; done
grep -q "with another token" "$dir/log" "$dir/log.b" || fail "a token is refused without a word"
sleep 2
[ "$(cat "$dir/log" "$dir/log.b" | grep -c "with another token")" -le 2 ] || fail "it says so again and again"
expect 0 stop --socket "$dir/sock.b"
end

# The folder of a Slurm job.
stub=$dir/bin
mkdir "$stub" "$dir/nvme" "$dir/submit"
chmod 1777 "$dir/nvme"
ln -s "$VARVE_BIN" "$stub/varve"
prolog() {
    env PATH="$stub:$PATH" VARVE_ROOTS="$dir/data" VARVE_NVME="$dir/nvme" SLURM_JOB_ID="$1" SLURMD_NODENAME=one \
        SLURM_SUBMIT_DIR="$dir/submit" sh "$SOURCE_DIR/docs/examples/slurm-prolog.sh" >"$dir/out" 2>"$dir/err"
}
epilog() {
    env PATH="$stub:$PATH" VARVE_NVME="$dir/nvme" SLURM_JOB_ID="$1" SLURM_JOB_UID="$(id -u)" sh "$SOURCE_DIR/docs/examples/slurm-epilog.sh"
}
prolog 7
grep -q "^export VARVE_CACHED_SOCKET=$dir/nvme/varve-7/sock$" "$dir/out" || { cat "$dir/err"; fail "the prolog starts nothing"; }
[ "$(stat -c %a "$dir/nvme/varve-7")" = 700 ] || fail "a folder that others can enter"
prolog 7
grep -q "^export LD_PRELOAD=" "$dir/out" || fail "the second task of a job"
epilog 7
[ ! -e "$dir/nvme/varve-7" ] || fail "the epilog leaves the folder"
mkdir "$dir/elsewhere"
chmod 700 "$dir/elsewhere"
ln -s "$dir/elsewhere" "$dir/nvme/varve-8"
mkdir -m 755 "$dir/nvme/varve-9"
for job in 8 9; do
    prolog $job
    [ ! -s "$dir/out" ] || fail "job $job: uses files that another user may have left"
    says "is not a folder of this user alone"
done
epilog 8
[ -d "$dir/elsewhere" ] && [ -L "$dir/nvme/varve-8" ] || fail "the epilog follows a link"

# The part that needs a second user.
if [ "$(id -u)" != 0 ]; then
    echo "not root: files of another user cannot be made here"
    echo ok
    exit 0
fi
printf 'only the nodes of this job know it' >"$dir/token"
chmod 600 "$dir/token"
chown 65534 "$dir/token"
expect 1 --roots "$dir/data" --cache "$dir/cache" --capacity 10M --listen 127.0.0.1:0 --token "$dir/token"
says "belongs to user 65534"
chown 0 "$dir/token"
start --roots "$dir/data" --cache "$dir/cache" --capacity 10M --listen 127.0.0.1:0 --token "$dir/token"
end
mkdir -m 700 "$dir/nvme/varve-10"
chown 65534 "$dir/nvme/varve-10"
prolog 10
[ ! -s "$dir/out" ] || fail "uses the folder of another user"
epilog 10
[ -d "$dir/nvme/varve-10" ] || fail "removes the folder of another user"
expect 1 --roots "$dir/data" --cache "$dir/nvme/varve-10" --capacity 10M
says "belongs to user 65534"
echo ok
