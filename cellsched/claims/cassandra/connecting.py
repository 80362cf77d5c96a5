# SPDX-License-Identifier: Apache-2.0
"""Connections to a cluster, and which node is asked for a partition."""

from collections.abc import Iterator
from typing import Any
import warnings

from oslo_config import cfg

from cellsched.claims.cassandra import options
from cellsched.clock import Clock

with warnings.catch_warnings():
    # It speaks of a library that happens to be installed.
    warnings.simplefilter('ignore')
    import cassandra
    from cassandra import auth
    from cassandra import cluster
    from cassandra.io import libevreactor
    from cassandra import policies
    from cassandra import query

#: Seconds for which a node is asked last after it did not answer.
_HANGS_S = 30.0


class AskedNodes(policies.TokenAwarePolicy):
    """The nodes that are asked for a partition, in order.

    Everybody asks the same one first, where they are in nobody's way, and
    those last that hang. The driver itself asks one that hangs until its
    heartbeat is missing, which takes up to a minute.
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        super().__init__(
            policies.DCAwareRoundRobinPolicy(conf.local_datacenter)
            if conf.local_datacenter else policies.RoundRobinPolicy(),
            shuffle_replicas=False)
        self._clock = clock
        self._hangs_until: dict[Any, float] = {}

    def avoid(self, node: Any) -> None:
        """Have a node asked last for some time, as it did not answer."""
        self._hangs_until[node] = self._clock.monotonic() + _HANGS_S

    def make_query_plan(
        self, working_keyspace: Any = None, query: Any = None
    ) -> Iterator[Any]:
        now, hanging = self._clock.monotonic(), []
        for node in super().make_query_plan(working_keyspace, query):
            if now < self._hangs_until.get(node, now):
                hanging.append(node)
            else:
                yield node
        yield from hanging


def make_cluster(
    address: options.Address, conf: cfg.ConfigOpts, nodes: AskedNodes
) -> Any:
    """Return a cluster, which is not connected yet.

    :param conf: the options of ``[cassandra]``
    """
    return cluster.Cluster(
        [cluster.DefaultEndPoint(host, port) for host, port in address.hosts],
        port=address.hosts[0][1],
        connection_class=libevreactor.LibevConnection,
        auth_provider=address.user and auth.PlainTextAuthProvider(
            address.user, address.password),
        execution_profiles={
            cluster.EXEC_PROFILE_DEFAULT: _profile(conf, nodes)},
        # One that hangs would hold up each statement. A node that does not
        # know one says so when it is asked.
        prepare_on_all_hosts=False,
        connect_timeout=conf.timeout,
        control_connection_timeout=conf.timeout,
        reconnection_policy=policies.ConstantReconnectionPolicy(
            1.0, max_attempts=None))


def _profile(conf: cfg.ConfigOpts, nodes: AskedNodes) -> Any:
    level = cassandra.ConsistencyLevel
    return cluster.ExecutionProfile(
        load_balancing_policy=nodes,
        # Others repeat conditional writes that may have been done.
        retry_policy=policies.FallthroughRetryPolicy(),
        consistency_level=getattr(level, conf.consistency),
        serial_consistency_level=getattr(
            level, conf.serial_consistency_level),
        request_timeout=conf.timeout, row_factory=query.dict_factory)
