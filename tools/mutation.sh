#!/usr/bin/env bash
# Changes the product in one place at a time, and sees if a test notices.
#
#   tools/mutation.sh [package|module…] [--sample N] [--seed S]
#   tools/mutation.sh guards [text…]
#
# It works in temporary copies, and makes .venv-mutation, which guards do not
# need; --help says more, and doc/source/contributor/mutation.rst what it is
# for.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

if [ "${1:-}" = guards ]; then
    shift
    make_environment tests
    PATH=$environment/bin:$PATH
    cd "$top"
    exec python -W ignore tools/mutation/guards.py "$@"
fi
environment=$top/.venv-mutation
make_environment mutation
PATH=$environment/bin:$PATH
cd "$top"
exec python -W ignore tools/mutation "$@"
