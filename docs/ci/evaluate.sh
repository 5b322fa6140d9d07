#!/bin/sh
# One evaluation in CI, the same for every forge.
#
#   evaluate.sh MODE [OVERRIDES ...]      evaluate.sh regression_gate dataset=jsonl dataset.path=eval/labeled.jsonl
#
#   RAGPIPE_OVERRIDES, RAGPIPE_JUDGE   further overrides, one a line; blanks belong to the value, lines with # are comments
#   RAGPIPE_SYSTEM_VERSION             what a live system is now: with another value it is asked again (default: the day)
#   RAGPIPE_NEEDS_BASELINE=1           a full evaluation without a baseline ends with 2
#
# Puts report.md, report.html, report.junit.xml and gates.json into rag-report/. Exit code: that of ragpipe. Where answers are
# missing (4) it starts once more, and asks for those alone.
set -u
mode=$1
shift
while read -r line; do
    case $line in
    '' | '#'*) ;;
    *) set -- "$@" "$line" ;;
    esac
done <<EOF
${RAGPIPE_OVERRIDES:-}
${RAGPIPE_JUDGE:-}
EOF
set -- "$@" "+mode=$mode" 'report.formats=[terminal,markdown,html,junit]'

say() { # say error|warning TEXT
    [ -z "${GITHUB_ACTIONS:-}" ] || printf '::%s title=RAG evaluation::' "$1"
    printf '%s\n' "$2"
}

given() { # whether one of the other arguments starts with the first
    wanted=$1
    shift
    for argument; do
        case $argument in "$wanted"*) return 0 ;; esac
    done
    return 1
}

rm -rf rag-report
mkdir rag-report
facts='
import sys, yaml
config = yaml.safe_load(sys.stdin)
print(config["system"]["kind"], config["output_dir"] + "/" + config["name"])'
if ! composed=$(python -m ragpipe "$@" --cfg job --resolve) || ! composed=$(printf '%s\n' "$composed" | python -c "$facts"); then
    say error 'the configuration or the data are wrong, nothing was asked'
    exit 2
fi
system=${composed%% *}
runs=${composed#* }

# A complete run is found again by its configuration. A live system can change where no configuration shows it (a deployment, an
# index, a prompt), so its version is part of it. Recorded answers are data: a change of theirs is seen.
if [ "$system" != recorded ] && ! given system.version= "$@"; then
    set -- "$@" "system.version='${RAGPIPE_SYSTEM_VERSION:-$(date -u +%F)}'"
fi

# The baseline is the last run that ended with 0, not simply the last one: a bad week must not become what the next is compared with.
missing=''
if [ "$mode" = full_evaluation ] && ! given scoring.gates.overall_drop.against= "$@"; then
    baseline=$(cat "$runs/baseline.txt" 2>/dev/null)
    if [ -n "$baseline" ] && [ -d "$runs/$baseline" ]; then
        set -- "$@" "scoring.gates.overall_drop.against='$baseline'"
    else
        missing="no baseline in $runs: a drop cannot be seen in this run"
        if [ "${RAGPIPE_NEEDS_BASELINE:-}" = 1 ]; then
            say error "$missing. Restore one, or start once without RAGPIPE_NEEDS_BASELINE; nothing was asked"
            exit 2
        fi
        say warning "$missing"
    fi
fi

code=0
python -m ragpipe "$@" || code=$?
if [ "$code" -eq 4 ]; then
    code=0
    python -m ragpipe "$@" || code=$?
fi

case $code in
0 | 3 | 4)
    for name in report.md report.html report.junit.xml gates.json; do
        [ ! -f "$runs/latest/$name" ] || cp "$runs/latest/$name" rag-report/
    done
    if [ -n "$missing" ] && [ -f rag-report/report.md ]; then
        printf '> **Warning:** %s\n\n' "$missing" | cat - "$runs/latest/report.md" >rag-report/report.md
    fi
    ;;
esac
if [ "$code" -eq 0 ] && [ "$mode" = full_evaluation ]; then
    basename "$(readlink -f "$runs/latest")" >"$runs/baseline.txt"
fi

case $code in
0) said='' ;;
2) said='the configuration or the data are wrong, nothing was asked' ;;
3) said='a critical gate blocks: the cases are in rag-report/report.html' ;;
4) said='too few judgements or answers came out, also at a second start' ;;
5) said='infrastructure, not this change: the judge cannot be used. Start the job again when it can' ;;
*) said="ragpipe ended with exit code $code" ;;
esac
[ -z "$said" ] || say error "$said"
exit "$code"
