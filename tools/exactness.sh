#!/usr/bin/env bash
# Makes .venv, installs the project and what tests need, and measures how exact
# schedulers are that want the same hosts at a time: those of this project with
# each claim store that is installed, and Nova's with Placement.
#
#   tools/exactness.sh [arguments of benchmarks/exactness.py]
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

make_environment tests
exec "$environment/bin/python" -W ignore "$top/benchmarks/exactness.py" "$@"
