# SPDX-License-Identifier: Apache-2.0
# Messages about options begin with all words of the command as typed. The emulated device has two names.
set -euo pipefail
fail() { echo "names: $*" >&2; exit 1; }
for command in doctor ls probe model 'bench shot' 'bench paper' 'bench vector' 'bench blocks' 'bench gpufile' 'sim shot' 'sim scale' \
    'sim training' 'ring sim' 'ring where' 'trace report' 'trace export'; do
    rc=0
    # shellcheck disable=SC2086 # two words
    err=$("$VARVE_BIN" $command --nosuch 2>&1 >/dev/null) || rc=$?
    [ $rc -eq 2 ] || fail "$command --nosuch: status $rc, not 2"
    case $err in "varve $command: "*nosuch*) ;; *) fail "$command --nosuch: $err" ;; esac
done
for command in 'bench gpufile --list' 'bench paper --list' 'sim shot --ckpts 2 --size 1M --no-bound --rate d2d=4G,h2h=4G,d2h=1G,h2d=1G,h2f=1G,f2h=1G'; do
    for name in host emulated; do
        # shellcheck disable=SC2086 # several words
        "$VARVE_BIN" $command --device $name >/dev/null || fail "$command --device $name"
    done
done
echo "ok"
