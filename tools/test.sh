#!/usr/bin/env bash
# Makes .venv and runs the tests; the last line counts them.
#
#   tools/test.sh                  everything but lowest
#   tools/test.sh PART…            style, unit, functional, integration, docs,
#                                  smoke or lowest
#   tools/test.sh simulation --seed N [--count M]
#                                  one simulation again; --help says more
#
# lowest makes .venv-lowest, which has each library in the lowest version that
# requirements.txt allows, and runs unit and functional tests there; smoke does
# what finds most of the same in a minute.
#
# Integration tests start the servers that they need, and skip where those are
# not installed; with CELLSCHED_REQUIRE_SERVERS=1 that is a failure. They wait
# most of the time: other parts run meanwhile, with what they leave.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

# Tests wait much of the time: for processes to start, for threads to end. But
# each worker imports all tests before it runs some, and others wait less.
workers=8
few_workers=4

# What runs stestr, if not this shell.
within=''

# Who knows how long tests take; two runs at a time need one each.
repository=.

# The process that runs some parts beside the others.
beside=''

work=$(mktemp -d)
trap clean_up EXIT

main() {
    local part parts='' others=''
    local all='style unit functional integration docs smoke'
    [ $# -gt 0 ] || set -- $all
    for part in "$@"; do
        case $part in
            style) parts="$parts style layers types" ;;
            unit | functional | integration | docs | smoke | lowest)
                parts="$parts $part"
                ;;
            simulation) break ;;
            *) die "no part $part; there are: $all lowest" ;;
        esac
    done
    make_environment tests
    [ "$SECONDS" -lt 5 ] || printf 'environment %s\n' "$SECONDS" >>"$work/times"
    PATH=$environment/bin:$PATH
    # stestr would run tests by this one.
    unset PYTHON
    # Hundreds of processes start; each would compile all that it imports.
    unset PYTHONDONTWRITEBYTECODE
    cd "$top"
    if [ "$1" = simulation ]; then
        shift
        exec python -W ignore -m cellsched.simulator "$@"
    fi
    for part in $parts; do
        [ "$part" = integration ] || others="$others $part"
    done
    if [ -n "$others" ] && [ "$others" != "$parts" ]; then
        run_beside_integration $others
    else
        run_parts $parts
    fi
    summary
}

run_parts() {
    local part begin
    for part in "$@"; do
        printf '\n=== %s ===\n' "$part"
        begin=$SECONDS
        "run_$part"
        printf '%s %s\n' "$part" $((SECONDS - begin)) >>"$work/times"
    done
}

# run_beside_integration PART…: those parts, and integration at the same time
#
# What integration says comes when all is over.
run_beside_integration() {
    # Under job control it is a group of processes, which can be ended as one.
    set -m
    run_parts integration </dev/null >"$work/integration" 2>&1 &
    beside=$!
    set +m
    # Who computes makes way for who has waited for something.
    (
        renice -n 5 -p "$BASHPID" >/dev/null || true
        run_parts "$@"
    )
    wait "$beside" || failed integration
    beside=''
    cat "$work/integration"
}

clean_up() {
    if [ -n "$beside" ]; then
        kill -- "-$beside" || true
        wait "$beside" || true
    fi
    rm -rf "$work"
}

run_style() {
    check style style
}

style() {
    local status=0 script
    flake8 || status=1
    doc8 --quiet README.rst CONTRIBUTING.rst HACKING.rst doc/source || status=1
    # reno reads the whole history; an export or a shallow clone has none.
    ! [ -e .git ] || [ -e .git/shallow ] || reno --quiet lint || status=1
    for script in tools/*.sh .ci/run; do
        bash -n "$script" || status=1
    done
    return $status
}

run_layers() {
    check layers lint-imports --no-logo
}

run_types() {
    check types mypy
}

run_docs() {
    check docs sphinx-build -q -E -W --keep-going -b html \
        doc/source doc/build/html
}

run_unit() {
    tests unit tests/unit --concurrency $few_workers
}

run_functional() {
    tests functional tests/functional --concurrency $few_workers
    if [ -n "$(find tests/regressions -name 'test_*.py')" ]; then
        tests regressions tests/regressions
    fi
}

# Servers are heavy: one set of them for all workers.
run_integration() {
    local within='python -m tests.integration.sharing'
    local repository=tests/integration
    tests integration tests/integration --concurrency $workers
}

# The modules that have most to do with libraries, and what they do together.
run_smoke() {
    (
        use_lowest &&
            check imports-lowest python tools/import_modules.py &&
            check demo-lowest cellsched demo &&
            tests unit-lowest tests/unit --concurrency 1 \
                '^tests\.unit\.(cli|conf|objects|rpc)\.'
    ) || failed smoke
}

run_lowest() {
    (
        use_lowest &&
            tests unit-lowest tests/unit --concurrency $few_workers &&
            tests functional-lowest tests/functional \
                --concurrency $few_workers
    ) || failed lowest
}

# use_lowest: have this shell use the environment of the lowest versions
use_lowest() {
    environment=$top/.venv-lowest
    make_environment lowest && PATH=$environment/bin:$PATH
}

# check NAME COMMAND…: one passed or one failed
check() {
    local name=$1
    shift
    if "$@"; then
        printf '%s 1 0 0\n' "$name" >>"$work/counts"
    else
        failed "$name"
    fi
}

failed() {
    printf '%s 0 1 0\n' "$1" >>"$work/counts"
}

# tests NAME DIRECTORY [arguments of stestr run]
tests() {
    local name=$1 directory=$2 before status=0
    shift 2
    # A new clone knows of no test how long it takes.
    [ -e "$repository/.stestr" ] || python tools/durations.py known |
        stestr --repo-url "$repository" load --force-init --subunit \
            >/dev/null
    before=$(next_stream)
    $within stestr --repo-url "$repository" --test-path "./$directory" \
        run "$@" || status=$?
    if [ "$(next_stream)" = "$before" ]; then
        # stestr keeps no record of a run that found nothing to run.
        failed "$name"
        return
    fi
    stestr --repo-url "$repository" last --subunit |
        python tools/count_tests.py "$name" "$status" \
            "$work/skips" "$work/failures" >>"$work/counts"
}

# next_stream: print the number that stestr has for the next run
next_stream() {
    cat "$repository/.stestr/next-stream" 2>/dev/null || echo none
}

summary() {
    local name passed failed skipped seconds
    local all_passed=0 all_failed=0 all_skipped=0
    printf '\n=== summary ===\n'
    while read -r name passed failed skipped; do
        printf '%-12s %s passed, %s failed, %s skipped\n' \
            "$name" "$passed" "$failed" "$skipped"
        all_passed=$((all_passed + passed))
        all_failed=$((all_failed + failed))
        all_skipped=$((all_skipped + skipped))
    done <"$work/counts"
    printf '\nSeconds:\n'
    while read -r name seconds; do
        printf '%-12s %5d\n' "$name" "$seconds"
    done <"$work/times"
    printf '%-12s %5d\n' total "$SECONDS"
    if [ -s "$work/skips" ]; then
        printf '\nSkipped:\n'
        cat "$work/skips"
    fi
    # Far above, among a thousand others, nobody finds them.
    if [ -s "$work/failures" ]; then
        printf '\nFailed:\n'
        cat "$work/failures"
    fi
    printf '\n%s passed, %s failed, %s skipped\n' \
        "$all_passed" "$all_failed" "$all_skipped"
    [ "$all_failed" -eq 0 ]
}

main "$@"
