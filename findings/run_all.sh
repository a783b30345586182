#!/usr/bin/env bash
# Runs each finding of a directory (default: this one) and prints those whose behaviour changed or that could not run,
# with the last lines of their output. Exits 1 if there is one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=${1:-$here}
limit=${FINDING_TIMEOUT_S:-900}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

run=0 kept=0
for finding in "$directory"/*.sh; do
    [ "$(basename "$finding")" != run_all.sh ] && [ -e "$finding" ] || continue
    run=$((run + 1))
    status=0
    timeout --kill-after=10 "$limit" bash "$finding" >"$output" 2>&1 || status=$?
    case $status in
        0) kept=$((kept + 1)); continue ;;
        1) verdict="changed" ;;
        124 | 137) verdict="not ended after $limit s" ;;
        *) verdict="could not run (exit $status)" ;;
    esac
    echo "$(basename "$finding" .sh): $verdict"
    tail -n 5 "$output" | sed 's/^/    /'
done
echo "$kept of $run findings are as recorded"
[ "$kept" -eq "$run" ]
