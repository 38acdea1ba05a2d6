# SPDX-License-Identifier: Apache-2.0
# Completion for bash offers the commands, their parts and their options; that for zsh parses.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
. "$SOURCE_DIR/packaging/completion/varve.bash"
complete_() { # WORD...: what is offered for the last one
    COMP_WORDS=("$VARVE_BIN" "$@") COMP_CWORD=$# COMPREPLY=()
    _varve
    printf '%s\n' "${COMPREPLY[@]}"
}
complete_ d | grep -qx doctor || fail "no command"
complete_ bench s | grep -qx shot || fail "no part of a command"
complete_ bench shot --host | grep -qx -- --host-cache || fail "no option of a part"
complete_ ls --lo | grep -qx -- --local || fail "no option"
(cd "$dir" && touch some.vtrace && complete_ trace info som | grep -qx some.vtrace) || fail "no file"
! command -v zsh >/dev/null || zsh -n "$SOURCE_DIR/packaging/completion/_varve" || fail "_varve for zsh"
echo ok
