# SPDX-License-Identifier: Apache-2.0
"""Connections to a cluster, and which node is asked for a partition."""

from typing import Any
import warnings

from oslo_config import cfg

from cellsched.claims.cassandra import options

with warnings.catch_warnings():
    # It speaks of a library that happens to be installed.
    warnings.simplefilter('ignore')
    import cassandra
    from cassandra import auth
    from cassandra import cluster
    from cassandra.io import libevreactor
    from cassandra import policies
    from cassandra import query

#: Profiles: everybody asks the same node for a partition, where they are in
#: nobody's way; or any node that has it, as that one may hang.
SAME, ANY = cluster.EXEC_PROFILE_DEFAULT, 'any'


def make_cluster(address: options.Address, conf: cfg.ConfigOpts) -> Any:
    """Return a cluster, which is not connected yet.

    :param conf: the options of ``[cassandra]``
    """
    return cluster.Cluster(
        [cluster.DefaultEndPoint(host, port) for host, port in address.hosts],
        port=address.hosts[0][1],
        connection_class=libevreactor.LibevConnection,
        auth_provider=address.user and auth.PlainTextAuthProvider(
            address.user, address.password),
        execution_profiles={SAME: _profile(conf, shuffle=False),
                            ANY: _profile(conf, shuffle=True)},
        connect_timeout=conf.timeout,
        control_connection_timeout=conf.timeout,
        reconnection_policy=policies.ConstantReconnectionPolicy(
            1.0, max_attempts=None))


def _profile(conf: cfg.ConfigOpts, shuffle: bool) -> Any:
    nearest = (policies.DCAwareRoundRobinPolicy(conf.local_datacenter)
               if conf.local_datacenter else policies.RoundRobinPolicy())
    level = cassandra.ConsistencyLevel
    return cluster.ExecutionProfile(
        load_balancing_policy=policies.TokenAwarePolicy(
            nearest, shuffle_replicas=shuffle),
        # Others repeat conditional writes that may have been done.
        retry_policy=policies.FallthroughRetryPolicy(),
        consistency_level=getattr(level, conf.consistency),
        serial_consistency_level=getattr(
            level, conf.serial_consistency_level),
        request_timeout=conf.timeout, row_factory=query.dict_factory)
