#!/usr/bin/env bash
# Runs a whole cluster on this machine: RabbitMQ, PostgreSQL, cells, schedulers,
# conductors and agents, each a process.
#
#   tools/cluster.sh up [--cells N] [--agents N] [--schedulers N]
#   tools/cluster.sh status
#   tools/cluster.sh down
#
# --directory DIR has all files; several clusters need one each. up starts what
# does not run. status ends with 0 if everything runs, with 1 if something has
# ended, and with 3 if there is no cluster. down removes what up made.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/environment.sh"

make_environment tests
PATH=$environment/bin:$PATH
export PYTHONPATH=$top
exec python -W ignore -m tools.cluster "$@"
