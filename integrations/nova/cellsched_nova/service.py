# SPDX-License-Identifier: Apache-2.0
"""Nova's own service, which runs the manager of this package."""

from collections.abc import Sequence
import sys

import nova.conf
from nova import objects
from nova.scheduler import rpcapi
from nova import service
from nova import thread_pool_factory
from nova import version
from oslo_concurrency import processutils
from oslo_log import log
from oslo_reports import guru_meditation_report
from oslo_reports import opts as report_opts

from cellsched import exception
from cellsched_nova import configuration
from cellsched_nova import errors
from cellsched_nova import manager
from cellsched_nova import options

CONF = nova.conf.CONF

#: Under which Nova's commands and the other services know a scheduler.
_BINARY = 'nova-scheduler'


def run(argv: Sequence[str]) -> int:
    """Run the service until it is stopped; return an exit code.

    :param argv: as nova-scheduler's
    """
    options.register_opts(CONF)
    try:
        configuration.read(argv)
    except exception.ConfigurationInvalid as exc:
        print(f'cannot be honoured: {exc}', file=sys.stderr)
        return 1
    problems = configuration.problems(
        CONF, 'api_database', 'database', 'placement')
    if problems:
        for problem in problems:
            print(f'cannot be honoured: {problem}', file=sys.stderr)
        return 1
    log.setup(CONF, 'nova')
    objects.register_all()
    report_opts.set_defaults(CONF)
    objects.Service.enable_min_version_cache()
    guru_meditation_report.TextGuruMeditation.setup_autorun(
        version, conf=CONF)
    put_in_place()
    try:
        with errors.translated():
            server = service.Service.create(
                binary=_BINARY, topic=rpcapi.RPC_TOPIC)
    except exception.CellschedException as exc:
        print(f'cannot start: {exc}', file=sys.stderr)
        return 1
    # A worker is a copy of this process, and cannot use its threads.
    thread_pool_factory.reset_all_executors()
    service.serve(server, workers=CONF.scheduler.workers
                  or processutils.get_worker_count())
    service.wait()
    return 0


def put_in_place() -> None:
    """Have Nova make the manager of this package for its scheduler."""
    kind = manager.ColumnSchedulerManager
    service.SERVICE_MANAGERS[_BINARY] = f'{kind.__module__}.{kind.__name__}'
