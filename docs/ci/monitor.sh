#!/bin/sh
# One day of production monitoring, for cron or a systemd timer.
#
#   monitor.sh LOG [OVERRIDES ...]      monitor.sh logs/2026-11-22.jsonl judge=llm judge.model=...
#
# Alerts are appended to outputs/alerts.jsonl. With ALERT_URL in the environment those that were not posted yet are posted
# there, one JSON object a line. A run that could not be made (exit code other than 0 and 3) is an alert too, and the only
# thing, beside a failed post, that goes to stderr. outputs/monitored.txt says when it last ran, and how that ended.
# Exit code: that of ragpipe, or curl's where the run is fine and the post is not.
set -u
log=$1
shift
alerts=outputs/alerts.jsonl
posted=outputs/alerts.posted # the number of lines that were posted
mkdir -p outputs

start() {
    python -m ragpipe dataset=jsonl "dataset.path=$log" +mode=monitoring "$@" 2>&1
}

code=0
start "$@" || code=$?
if [ "$code" -eq 4 ]; then # answers are missing: the same command asks for those alone
    code=0
    start "$@" || code=$?
fi

now=$(date -u +%Y-%m-%dT%H:%M:%S+00:00)
printf '%s exit code %s %s\n' "$now" "$code" "$log" >outputs/monitored.txt
case $code in
0 | 3) ;;
*)
    said="monitoring itself failed: exit code $code for $log; this log was not evaluated to its end"
    printf '%s\n' "$said" >&2
    printf '{"time": "%s", "alert": "monitoring", "what": "failed", "exit_code": %s, "message": "%s"}\n' \
        "$now" "$code" "$(printf '%s' "$said" | sed 's/[\\"]/\\&/g')" >>"$alerts"
    ;;
esac

if [ -n "${ALERT_URL:-}" ] && [ -s "$alerts" ]; then
    lines=$(wc -l <"$alerts")
    before=$(cat "$posted" 2>/dev/null || echo 0)
    [ "$before" -le "$lines" ] || before=0 # the file was rotated
    if [ "$lines" -gt "$before" ]; then
        sent=0
        sed -n "$((before + 1)),${lines}p" "$alerts" |
            curl --fail --silent --show-error --max-time 30 --output /dev/null \
                --header 'Content-Type: application/x-ndjson' --data-binary @- "$ALERT_URL" || sent=$?
        if [ "$sent" -eq 0 ]; then
            echo "$lines" >"$posted"
        elif [ "$code" -eq 0 ]; then
            code=$sent
        fi
    fi
fi
exit "$code"
