#!/usr/bin/env bash
# Makes .venv and runs the tests; the last line counts them.
#
#   tools/test.sh                  everything
#   tools/test.sh PART…            style, unit, functional, integration or docs
#   tools/test.sh simulation --seed N [--count M]
#                                  one simulation again; --help says more
#
# Integration tests start the servers that they need, and skip where those are
# not installed; with CELLSCHED_REQUIRE_SERVERS=1 that is a failure.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

main() {
    local part parts=''
    [ $# -gt 0 ] || set -- style unit functional integration docs
    for part in "$@"; do
        case $part in
            style) parts="$parts style layers types" ;;
            unit | functional | integration | docs) parts="$parts $part" ;;
            simulation) break ;;
            *) die "no part $part; there are: style unit functional integration docs" ;;
        esac
    done
    make_environment tests
    PATH=$environment/bin:$PATH
    # stestr would run tests by this one.
    unset PYTHON
    # eventlet is installed, because oslo.service wants it, and says at each
    # import that it should not be used.
    export PYTHONWARNINGS=ignore:::futurist._utils
    cd "$top"
    if [ "$1" = simulation ]; then
        shift
        exec python -W ignore -m cellsched.simulator "$@"
    fi
    for part in $parts; do
        printf '\n=== %s ===\n' "$part"
        "run_$part"
    done
    summary
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
    tests unit tests/unit
}

run_functional() {
    tests functional tests/functional
    if [ -n "$(find tests/regressions -name 'test_*.py')" ]; then
        tests regressions tests/regressions
    fi
}

# Servers are heavy: one set of them at a time.
run_integration() {
    tests integration tests/integration --serial
}

# check NAME COMMAND…: one passed or one failed
check() {
    local name=$1
    shift
    if "$@"; then
        printf '%s 1 0 0\n' "$name" >>"$work/counts"
    else
        printf '%s 0 1 0\n' "$name" >>"$work/counts"
    fi
}

# tests NAME DIRECTORY [arguments of stestr run]
tests() {
    local name=$1 directory=$2 before status=0
    shift 2
    before=$(cat .stestr/next-stream 2>/dev/null || echo none)
    stestr --test-path "./$directory" run "$@" || status=$?
    if [ "$(cat .stestr/next-stream 2>/dev/null || echo none)" = "$before" ]
    then
        # stestr keeps no record of a run that found nothing to run.
        printf '%s 0 1 0\n' "$name" >>"$work/counts"
        return
    fi
    stestr last --subunit | python tools/count_tests.py "$name" "$status" \
        "$work/skips" "$work/failures" >>"$work/counts"
}

summary() {
    local name passed failed skipped
    local all_passed=0 all_failed=0 all_skipped=0
    printf '\n=== summary ===\n'
    while read -r name passed failed skipped; do
        printf '%-12s %s passed, %s failed, %s skipped\n' \
            "$name" "$passed" "$failed" "$skipped"
        all_passed=$((all_passed + passed))
        all_failed=$((all_failed + failed))
        all_skipped=$((all_skipped + skipped))
    done <"$work/counts"
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
