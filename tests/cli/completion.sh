# SPDX-License-Identifier: Apache-2.0
# Completion for bash offers the commands, their parts and their options; that for zsh parses.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
. "$SOURCE_DIR/packaging/completion/varve.bash"
# To a file: a grep that ends early would end the printing program.
complete_() { # WORD...: what is offered for the last one
    COMP_WORDS=("$VARVE_BIN" "$@") COMP_CWORD=$# COMPREPLY=()
    _varve
    printf '%s\n' "${COMPREPLY[@]}" >"$dir/out"
}
complete_ d && grep -qx doctor "$dir/out" || fail "no command"
complete_ bench s && grep -qx shot "$dir/out" || fail "no part of a command"
complete_ bench shot --host && grep -qx -- --host-cache "$dir/out" || fail "no option of a part"
complete_ cached status --j && grep -qx -- --json "$dir/out" || fail "no option of a part with a help text of its own"
complete_ ls --lo && grep -qx -- --local "$dir/out" || fail "no option"
(cd "$dir" && touch some.vtrace && complete_ trace info som) && grep -qx some.vtrace "$dir/out" || fail "no file"
! command -v zsh >/dev/null || zsh -n "$SOURCE_DIR/packaging/completion/_varve" || fail "_varve for zsh"
echo ok
