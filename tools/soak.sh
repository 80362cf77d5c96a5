#!/usr/bin/env bash
# Builds servers at a steady rate in a cluster of its own, and fails if memory
# or connections grow, a server fails, or the audit finds anything.
#
#   tools/soak.sh [--minutes N] [--rate N] [--cells N] [--agents N]
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

make_environment tests
PATH=$environment/bin:$PATH
export PYTHONPATH=$top
exec python -W ignore -m tools.soak "$@"
