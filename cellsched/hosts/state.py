# SPDX-License-Identifier: Apache-2.0
"""One row of the host table as an object, for plug-ins that work by rows."""

from collections.abc import Mapping
import datetime
import types
from typing import Any

import numpy as np

from cellsched.hosts import table


class HostState:
    """A host under the names that Nova's host state has.

    A column is an attribute of the same name, and is read when it is asked
    for, so a plug-in costs what it looks at. What the table does not know is
    no attribute. Rows move when hosts come and go: a host state serves one
    request and is not kept.
    """

    def __init__(self, hosts: table.HostTable, row: int) -> None:
        self._hosts = hosts
        self._row = row
        #: What filters allow a build to use here beyond the host's totals.
        self.limits: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_') or name not in self._hosts:
            raise AttributeError(
                f'the host table has no column {name!r}', name=name, obj=self)
        value = self._hosts[name][self._row]
        return value.item() if isinstance(value, np.generic) else value

    def __repr__(self) -> str:
        return (f'({self.host}, {self.nodename}) '
                f'ram: {self.free_ram_mb}MB disk: {self.free_disk_mb}MB '
                f'io_ops: {self.num_io_ops} instances: {self.num_instances}')

    @property
    def hypervisor_hostname(self) -> str:
        """The node's name once more."""
        return self.nodename

    @property
    def cell_uuid(self) -> str:
        return self._text('cell')

    @property
    def availability_zone(self) -> str:
        """The zone's name; the empty text for a host in none."""
        return self._text('availability_zone')

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

    def _text(self, name: str) -> str:
        return self._hosts.text(name, int(self._hosts[name][self._row]))
