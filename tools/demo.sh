#!/usr/bin/env bash
# Makes .venv, installs the project, and runs its main job: cellsched demo.
#
#   tools/demo.sh [arguments of cellsched demo]
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

make_environment project
exec "$environment/bin/cellsched" demo "$@"
