# SPDX-License-Identifier: Apache-2.0
# Completion of varve for bash. Commands and options are read from --help, so that they are always those of the tool.
_varve()
{
    local cur=${COMP_WORDS[COMP_CWORD]} word command=() words
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word != [a-z]* ]] || command+=("$word")
    done
    case $cur in
    -*) words=$("${COMP_WORDS[0]}" "${command[@]:0:2}" --help 2>/dev/null | grep -oE -- '(^| )--[a-z][a-z0-9-]*' | tr -d ' ' | sort -u) ;;
    *)
        case ${#command[@]} in
        0) words=$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p') ;;
        1) words=$("${COMP_WORDS[0]}" "${command[0]}" --help 2>/dev/null |
            sed -nE "s/^(usage:|      ) varve ${command[0]} ([a-z|]+)( .*|\$)/\2/p" | tr '|' '\n') ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -o filenames -F _varve varve
