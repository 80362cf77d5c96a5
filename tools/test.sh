#!/usr/bin/env bash
# Makes .venv and runs the tests; the last line counts them.
#
#   tools/test.sh                  each fact once, in about ten minutes
#   tools/test.sh full             second proofs too: before a release, and when
#                                  a store, the saga or the simulation changes
#   tools/test.sh [full] PART…     style, unit, functional, integration, docs,
#                                  smoke or lowest
#   tools/test.sh unit PATH…       the unit tests of modules, and those of the
#                                  modules that import them
#   tools/test.sh --times FILE …   adds a line to FILE for each test module:
#                                  CPU of its process and of its children,
#                                  duration, all in seconds, and its name
#   tools/test.sh simulation --seed N [--count M]
#                                  one simulation again; --help says more
#
# lowest makes .venv-lowest, which has each library in the lowest version that
# requirements.txt allows, and runs unit and functional tests there; smoke does
# what finds most of the same in a minute.
#
# Integration tests start the servers that they need, and skip where those are
# not installed; with CELLSCHED_REQUIRE_SERVERS=1 that is a failure. They and
# functional tests wait most of the time, so the other parts run beside them;
# unit tests last, which use both processors to the end.
#
# CELLSCHED_TEST_PROFILE=full selects the full profile, too.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

main() {
    local part all='style docs smoke unit functional integration'
    if [ "${1:-}" = --times ]; then
        export CELLSCHED_TEST_TIMES
        CELLSCHED_TEST_TIMES=$(realpath "$2")
        shift 2
    fi
    if [ "${1:-}" = full ]; then
        export CELLSCHED_TEST_PROFILE=full
        shift
    fi
    [ $# -gt 0 ] || set -- $all
    for part in "$@"; do
        case $part in
            style | unit | functional | integration | docs | smoke | lowest) ;;
            simulation) break ;;
            */* | *.py) [ "$1" = unit ] || die "a path follows the part unit" ;;
            *) die "no part $part; there are: $all lowest" ;;
        esac
    done
    make_environment tests
    PATH=$environment/bin:$PATH
    # The environment of the lowest versions has the interpreter of this one.
    unset PYTHON
    # Hundreds of processes start; each would compile all that it imports.
    unset PYTHONDONTWRITEBYTECODE
    cd "$top"
    if [ "$1" = simulation ]; then
        shift
        exec python -W ignore -m cellsched.simulator "$@"
    fi
    exec python -W ignore -m tools.run_tests --environment-s "$SECONDS" "$@"
}

main "$@"
