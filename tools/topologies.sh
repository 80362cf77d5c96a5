#!/usr/bin/env bash
# Starts highly available databases and brokers as the administrator's guide
# shows them, builds servers while parts of them fail, and prints what that
# costs.
#
#   tools/topologies.sh [-f table|csv|json] [-r ROUNDS] [NAME…]
#
# --help lists the names; by default all run. As root it installs the Debian
# packages that are missing. It ends with 1 if a server or a claim is lost,
# something is over its capacity, or a build takes more than 10 seconds.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

make_environment tests
PATH=$environment/bin:$PATH
export PYTHONPATH=$top
export CELLSCHED_TEST_PROFILE=full
exec python -W ignore -m tools.topologies "$@"
