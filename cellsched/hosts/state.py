# SPDX-License-Identifier: Apache-2.0
"""One host as an object, for plug-ins that work by rows."""

from collections.abc import Mapping
import datetime
import functools
import json
import types
from typing import Any

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import view


class HostState:
    """A host with the attribute names of Nova's host state.

    Each column is an attribute, read on access, so that a plug-in pays only
    for the columns that it reads. A fact that is not in the table is not an
    attribute. A host state serves one request and must not be kept.

    :param place: index of the host in the view
    """

    def __init__(self, hosts: view.Hosts, place: int) -> None:
        self._hosts = hosts
        self._place = place
        #: Limits above the host's totals, which filters set for the build.
        self.limits: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_'):
            raise AttributeError(name, name=name, obj=self)
        if name not in self._hosts:
            near = columns.near(name, tuple(self._hosts.names))
            raise AttributeError(
                f'the host table has no column {name!r}{near}', name=name,
                obj=self)
        value = self._hosts[name][self._place]
        kind = self._hosts.kind(name)
        if kind == columns.CODED:
            return self._hosts.value(name, int(value))
        if kind == columns.WHOLE:
            return int(value)
        return value.item() if isinstance(value, np.generic) else value

    def __repr__(self) -> str:
        return (f'({self.host}, {self.nodename}) '
                f'ram: {self.free_ram_mb}MB disk: {self.free_disk_mb}MB '
                f'io_ops: {self.num_io_ops} instances: {self.num_instances}')

    @property
    def hypervisor_hostname(self) -> str:
        """The name of the node."""
        return self.nodename

    @property
    def cell_uuid(self) -> str:
        return self.cell

    @property
    def aggregates(self) -> list[Any]:
        """The host's aggregates, each with ``name`` and ``metadata``."""
        return list(self.__getattr__('aggregates'))

    @property
    def stats(self) -> Mapping[str, Any]:
        return parsed(self.__getattr__('stats')) or {}

    @property
    def metrics(self) -> list[Any]:
        """Metrics, each a mapping with ``name`` and ``value``."""
        return parsed(self.__getattr__('metrics')) or []

    @property
    def instances(self) -> Mapping[str, Any]:
        """The known instances on this host, by uuid.

        Only the instances of the request's server group and of its scheduler
        hints are known.
        """
        return {uuid: types.SimpleNamespace(uuid=uuid)
                for uuid in self._hosts.instances_on(self.uuid)}

    @property
    def service(self) -> Mapping[str, Any]:
        """The compute service of this host."""
        seen = datetime.datetime.fromtimestamp(
            self.last_seen_up, datetime.UTC).replace(tzinfo=None)
        return types.MappingProxyType({
            'host': self.host,
            'disabled': self.service_disabled,
            'forced_down': self.forced_down,
            'last_seen_up': seen,
        })


@functools.lru_cache(4096)
def parsed(text: str) -> Any:
    """Return the value of a JSON text, or None if it is not JSON.

    Hosts share texts, so each text is parsed once. The result is shared and
    must not be changed.
    """
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None


#: The maximum valid value of a metric.
_METRIC_MAX = 1e300

#: Metrics that hosts report as fractions, and that count as whole percents.
_PERCENTAGES = frozenset({
    'cpu.idle.percent', 'cpu.iowait.percent', 'cpu.kernel.percent',
    'cpu.percent', 'cpu.user.percent'})


def metric_values(text: str) -> dict[str, float]:
    """Return the metrics in a report that are valid numbers, by name.

    As in Nova, fractions of the processor time are whole percents.
    """
    metrics = parsed(text) if text else None
    return {each['name']: (int(each['value'] * 100)
                           if each['name'] in _PERCENTAGES else each['value'])
            for each in (metrics if isinstance(metrics, list) else ())
            if isinstance(each, dict) and isinstance(each.get('name'), str)
            and _is_number(each.get('value'))}


def _is_number(value: Any) -> bool:
    # NaN and integers that no float can represent are out of range.
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and abs(value) <= _METRIC_MAX)
