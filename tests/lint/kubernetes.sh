# SPDX-License-Identifier: Apache-2.0
# The manifest in examples/ follows the schema of Kubernetes, and one with a mistake is refused.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
python=/usr/bin/python3
$python -c 'import kubernetes, yaml' 2>/dev/null || skip "no python3-kubernetes"
check() { $python tests/lint/kubernetes.py "$1" docs/cached-config.md; }
check examples/kubernetes.yaml || fail "examples/kubernetes.yaml"
refused() { # refused WHY SED
    sed "$2" examples/kubernetes.yaml >"$dir/bad.yaml"
    ! cmp -s "$dir/bad.yaml" examples/kubernetes.yaml || fail "$1: nothing has changed"
    ! check "$dir/bad.yaml" >"$dir/log" || fail "$1: not refused"
}
refused "a field that there is not" 's/mountPath: \/meet/mountPaht: \/meet/'
refused "a field in another place" 's/^      restartPolicy: Never/      completions: 4/'
refused "a required field" 's/^          hostPath: {path: \/nvme\/varve, /          hostPath: {/'
refused "a setting that there is not" 's/VARVE_CACHED_CAPACITY/VARVE_CACHED_CAPACITIES/'
