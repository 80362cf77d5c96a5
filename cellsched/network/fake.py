# SPDX-License-Identifier: Apache-2.0
"""A plug-in that records calls and can be configured to fail."""

import collections
from collections.abc import Iterator
import contextlib
import fcntl
import json
import os
import threading
from typing import Any

from oslo_config import cfg
from oslo_config import types
from oslo_log import log

from cellsched import exception
from cellsched.network import base
from cellsched.validation import files

LOG = log.getLogger(__name__)


class FakeNetworks(base.NetworkAPI):
    """Records the networks of servers, for tests and demonstrations.

    Each change is a record with ``call`` (``allocate``, ``setup``, ``cleanup``
    or ``deallocate``), ``instance``, ``host`` and ``requested_networks``. A
    call that changes nothing makes no record. ``[fake_network] records`` names
    a file with the records as lines of JSON; processes with the same file
    share the state.
    """

    group = 'fake_network'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.StrOpt('records', help="""
File for the records of changes, one line of JSON each.

If unset, each process keeps its own records in memory.
"""),
            cfg.Opt('segment_aggregates', default={},
                    type=types.Dict(types.List(bounds=True)), help="""
Host aggregates of the segments of routed networks.

Format: ``NETWORK:[AGGREGATE,AGGREGATE]``, all uuids.
"""),
            cfg.ListOpt('remote_managed_ports', default=[], help="""
Uuids of ports with ``vnic_type`` remote-managed.
"""),
            cfg.IntOpt('fail_allocations', default=0, min=0, help="""
Number of allocations that fail in each process, from its start.
"""),
            cfg.IntOpt('fail_setups', default=0, min=0, help="""
Number of network setups on another host that fail in each process.
"""),
            cfg.IntOpt('fail_cleanups', default=0, min=0, help="""
Number of network cleanups on a host that fail in each process.
"""),
            cfg.IntOpt('fail_deallocations', default=0, min=0, help="""
Number of deallocations that fail in each process, from its start.
"""),
        ]

    def __init__(self, conf):
        super().__init__(conf)
        options = conf.fake_network
        self._path = options.records
        if self._path and os.path.exists(self._path):
            files.check('[fake_network] records', self._path)
        self._lock = threading.Lock()
        self._to_fail = collections.Counter({
            'allocate': options.fail_allocations,
            'setup': options.fail_setups, 'cleanup': options.fail_cleanups,
            'deallocate': options.fail_deallocations})
        #: The records, oldest first.
        self.records: list[dict[str, Any]] = []
        self._hosts: dict[str, set[str]] = {}
        self._read_up_to = 0

    def fail(self, call: str, count: int) -> None:
        """Make the next calls of a kind fail."""
        with self._lock:
            self._to_fail[call] = count

    def allocated(self) -> dict[str, set[str]]:
        """Return the hosts with networks set up, by instance."""
        with self._current():
            return {uuid: set(hosts) for uuid, hosts in self._hosts.items()}

    def allocate_for_instance(
        self, context, instance, requested_networks, host
    ):
        with self._current():
            self._check('allocate', instance.uuid)
            if instance.uuid not in self._hosts:
                self._record('allocate', instance.uuid, host,
                             requested_networks)

    def setup_instance_network_on_host(self, context, instance, host):
        with self._current():
            self._check('setup', instance.uuid)
            if host not in self._hosts.get(instance.uuid, {host}):
                self._record('setup', instance.uuid, host)

    def cleanup_instance_network_on_host(self, context, instance, host):
        with self._current():
            self._check('cleanup', instance.uuid)
            if host in self._hosts.get(instance.uuid, ()):
                self._record('cleanup', instance.uuid, host)

    def deallocate_for_instance(self, context, instance):
        with self._current():
            self._check('deallocate', instance.uuid)
            if instance.uuid in self._hosts:
                self._record('deallocate', instance.uuid, None)

    def segment_aggregates(self, context, requested_networks):
        known = self.conf.fake_network.segment_aggregates
        return [frozenset(known[network]) for network, _
                in base.requested(requested_networks) if network in known]

    def has_remote_managed_port(self, context, requested_networks):
        managed = self.conf.fake_network.remote_managed_ports
        return any(port in managed for _, port
                   in base.requested(requested_networks))

    def _check(self, call: str, uuid: str) -> None:
        if self._to_fail[call]:
            self._to_fail[call] -= 1
            raise exception.NetworkError(
                uuid=uuid, reason=f'{call} is configured to fail')

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """Lock the records, and read those of other processes."""
        with self._lock:
            if self._path is None:
                yield
                return
            with open(self._path, 'a+b') as self._file:
                # Closing the file releases the lock.
                fcntl.flock(self._file, fcntl.LOCK_EX)
                self._file.seek(self._read_up_to)
                for line in self._file:
                    try:
                        record = json.loads(line)
                    except ValueError:
                        # Its writer was killed.
                        LOG.warning('File %s: record %.80r cannot be read and '
                                    'is ignored', self._path, line)
                    else:
                        self._apply(record)
                    if not line.endswith(b'\n'):
                        self._file.write(b'\n')
                self._read_up_to = self._file.tell()
                yield

    def _record(
        self, call: str, uuid: str, host: str | None,
        requested_networks: Any = None,
    ) -> None:
        record = {'call': call, 'instance': uuid, 'host': host,
                  'requested_networks': requested_networks}
        if self._path is not None:
            self._read_up_to += self._file.write(
                json.dumps(record).encode() + b'\n')
        self._apply(record)

    def _apply(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        uuid, host = record['instance'], record['host']
        match record['call']:
            case 'allocate':
                self._hosts[uuid] = {host}
            case 'setup':
                self._hosts[uuid].add(host)
            case 'cleanup':
                self._hosts[uuid].discard(host)
            case 'deallocate':
                del self._hosts[uuid]
