#!/usr/bin/env bash
# Changes the product in one place at a time, and sees if a test notices.
#
#   tools/mutation.sh [package|module…] [--sample N] [--seed S]
#
# It makes .venv-mutation and works in temporary copies; --help says more, and
# doc/source/contributor/mutation.rst what it is for.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

environment=$top/.venv-mutation
make_environment mutation
PATH=$environment/bin:$PATH
cd "$top"
exec python -W ignore tools/mutation "$@"
