# SPDX-License-Identifier: Apache-2.0
"""The agents of several hosts in one process.

Thousands of hosts fit into one machine so, for a demonstration or a trial of
what is above them: what they are in their cell and in the claim store is what
they would be each in a process of its own.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from futurist import ThreadPoolExecutor
from oslo_log import log
import oslo_messaging

from cellsched import exception
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import local_pool
from cellsched.wiring import compute
from cellsched.wiring import service

LOG = log.getLogger(__name__)


def agent_group(
    parts: compute.AgentParts, hosts: Iterable[compute.AgentParts],
    started: Callable[[], None] = lambda: None,
) -> tuple[service.Service, list[compute.HostAgent]]:
    """Return the agents of hosts of one cell, as one service.

    They share what ``parts`` has, and threads; their transport has to be the
    in-process one. Hosts are reported before this returns.

    :param parts: of the process
    :param hosts: parts of each host, with databases, transports and claims
        of the process
    :param started: is called when a host was reported
    :returns: the service, and the agents in their order
    """
    compute.check_stores(parts)
    agents = []
    for each in hosts:
        agents.append(compute.HostAgent(each))
        agents[-1].prepare()
        started()
    conf = parts.conf
    pool = ThreadPoolExecutor(conf.executor_thread_pool_size)
    return _AgentGroup(
        pool, parts,
        [local_pool.PooledServer(
            each.parts.transports.get(), oslo_messaging.Target(
                topic=compute_rpc.TOPIC, server=each.parts.conf.host),
            each.server.dispatcher, pool) for each in agents],
        [(_each([each.report for each in agents]), conf.report_interval),
         (_each([each.resume_soon for each in agents]), compute.RESUMED_S)],
        [(_each([each.resume for each in agents]), conf.resume_interval)],
    ), agents


class _AgentGroup(service.Service):

    def __init__(self, pool: ThreadPoolExecutor, *args: Any) -> None:
        super().__init__(*args)
        self._pool = pool

    def stop(self) -> None:
        super().stop()
        self._pool.shutdown()


def _each(functions: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Return a function that calls others in turn.

    What one host fails of the others do not, unless the process is done for.
    The first failure is raised at the end, and others are logged.
    """
    def each() -> None:
        failures = []
        for function in functions:
            try:
                function()
            except exception.HostNameTaken:
                raise
            except Exception as exc:
                failures.append(exc)
        for failure in failures[1:]:
            LOG.error('It failed for another host too: %s', failure)
        if failures:
            raise failures[0]
    return each
