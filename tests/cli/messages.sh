# SPDX-License-Identifier: Apache-2.0
# Typical mistakes on the command line. Each message names the command, says what is wrong and what was expected, and
# fits one line; the exit status is 2 for a wrong command line, and 1 if the command was tried.
. "$SOURCE_DIR/tests/cli/common.sh.inc"
cd "$dir"
unset VARVE_LOCAL VARVE_REMOTE VARVE_CONFIG
mkdir empty pages
export VARVE_STATS=$dir/pages # not the pages of other processes of this user
echo text >file.txt
echo 'put 0 x' >bad.txt

# mistake STATUS TEXT [ARGUMENT]...: `varve ARGUMENT...` fails with the status and one line that has the text.
mistake() {
    local want=$1 text=$2
    shift 2
    expect "$want" "$@"
    grep -qF -- "$text" err && [ "$(wc -l <err)" -eq 1 ] || { cat err; fail "varve $*: expected: $text"; }
}

mistake 2 "varve: unknown command 'verfiy'; did you mean 'verify'?" verfiy
mistake 2 "varve: unknown command 'repair'; did you mean 'verify'?" repair
mistake 2 "varve: unknown command 'nonsense'; 'varve --help' lists the commands" nonsense
mistake 2 "varve: unknown option '--colour'; 'varve --help' lists" --colour
mistake 2 "varve ls: unknown option '--locl'; did you mean '--local'?" ls --locl x
mistake 2 "varve ls: unknown option '--nonsense'; 'varve ls --help' lists the options" ls --nonsense
mistake 2 "varve ls: unknown option '-x'; 'varve ls --help' lists the options" ls -x
mistake 2 "varve ls: option '--local' needs a value: FOLDER" ls --local
mistake 2 "varve ls: option '--json' takes no value" ls --json=1
mistake 2 "varve bench shot: '--s' is short for" bench shot --s 1
for command in ls verify "rm" "export --veloc out"; do
    mistake 2 "varve ${command%% *}: no folder is given; name one before the history, give --local FOLDER" $command
    mistake 2 "'nothing' is not a folder" $command nothing
done
mistake 1 "varve ls: no history 'h' in empty" ls empty h
mistake 1 "varve verify: no checkpoints in empty" verify empty
mistake 2 "varve verify: --repair needs a second folder: give --remote FOLDER" verify --repair empty
mistake 2 "varve verify: --local and --remote are both given, expected one" verify --local empty --remote empty
mistake 1 "varve verify: nothing: No such file or directory" verify --repair --local empty --remote nothing
mistake 1 "'s3://x' is not s3://BUCKET/PREFIX" ls s3://x
mistake 2 "drain: expected a number of seconds" cached drain x
mistake 2 "varve rm: expected a history in empty, and after it versions or --all" rm empty h
mistake 2 "varve rm: '3-1' is not a version or a range" rm empty h 3-1
mistake 2 "varve rm: several folders are given" rm --local a --remote b h 5
mistake 2 "varve export: no folder to write to is given: give --veloc FOLDER" export empty
mistake 2 "varve doctor: several folders are given" doctor a b
mistake 2 "varve probe: --seconds: '0' is not a number of seconds above 0" probe --seconds 0
mistake 2 "'nope' is not one of auto|cuda|host|none" probe --device nope
mistake 2 "varve probe: unexpected argument 'folder'" probe folder
mistake 1 "varve probe: $dir/none/conf: No such file or directory" probe --write "$dir/none/conf"
mistake 2 "varve trace: no command is given; expected one of info, report, export, script" trace
mistake 2 "varve trace: unknown command 'file.txt'; expected one of info" trace file.txt
mistake 2 "varve trace info: expected the name of one trace" trace info
mistake 2 "varve trace report: no trace is given" trace report
mistake 2 "varve trace report: several traces are given, expected one" trace report a b
mistake 1 "varve trace report: nothing: No such file or directory" trace report nothing
mistake 2 "varve trace export: --format is missing: give chrome, svg or csv" trace export file.txt
mistake 2 "--format: 'png' is not one of chrome|svg|csv" trace export --format png file.txt
mistake 2 "--to is not after --from" trace export --format csv --from 2 --to 1 file.txt
mistake 2 "varve top: 'abc' is not the number of a process" top abc
mistake 2 "varve top: '2' is a second process, expected one at most" top 1 2
mistake 2 "varve top: --interval: '0' is not a number from 0.1 to 3600" top --interval 0
mistake 1 "publishes no statistics" top --once 99999999
mistake 2 "varve cached: unknown command 'statis'" cached statis
mistake 2 "forget: expected the name of a node; 'varve cached status' lists them" cached forget
mistake 2 "varve cached: stop: expected no arguments" cached stop now
mistake 1 "no daemon runs here; start one with 'varve cached --roots FOLDER" cached --socket "$dir/s" status
mistake 2 "varve cached preload: no files are given" cached preload
mistake 2 "varve helper: --name is empty; expected NAME" helper --name ''
mistake 2 "varve helper: --threads: '0' is not a whole number from 1 to 64" helper --threads 0
for command in bench sim ring; do
    mistake 2 "varve $command: no command is given; expected one of s" $command
    mistake 2 "varve $command: unknown command 'nonsense'; expected one of s" $command nonsense
done
mistake 2 "varve bench shot: --size: 'x' is not a size above 0 (such as 8M)" bench shot --size x
mistake 2 "--order: 'up' is not one of seq|rev|irr|binomial" bench shot --order up
mistake 1 "varve bench shot: --local $dir/no/where: No such file" bench shot --ckpts 2 --local "$dir/no/where"
mistake 1 "bad.txt:1: 'x' is not a size, expected one such as" bench script bad.txt
mistake 2 "varve sim script: expected the name of one script, or - for standard input" sim script
mistake 1 "varve sim script: nothing: No such file or directory" sim script nothing
mistake 2 "varve sim training: --nodes: '0' is not a list of whole numbers from 1" sim training --nodes 0
mistake 2 "--json and --csv - both write to standard output" sim training --json --csv -
mistake 2 "varve ring sim: --nodes: expected 2 or more" ring sim --nodes 1
mistake 2 "varve ring where: no file is given" ring where
mistake 2 "varve model: no layers are given: use --layer or --folder" model
mistake 2 "--layer: 'x' is not [SIZE@]WRITE[:READ] (for example 100G@2G:3G)" model --layer x
mistake 2 "--steps: '0' is not a whole number from 1" model --steps 0
mistake 2 "varve model: --adjoint-time is allowed only with --revolve" model --adjoint-time 1
