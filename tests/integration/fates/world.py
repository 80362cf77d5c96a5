# SPDX-License-Identifier: Apache-2.0
"""Two cells of real processes, each of which can be killed at any step."""

from collections.abc import Callable
from collections.abc import Mapping
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from cellsched.conf import loader
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched import exception
from cellsched import objects
from cellsched.wiring import services
from tests.integration import deployment
from tests.integration.fates import zygote
from tests.integration import processes

USER = zygote.USER

#: In which what was left lying is found soon.
SOON: Mapping[str, Mapping[str, Any]] = {
    'DEFAULT': {'report_interval': 1, 'service_down_time': 8,
                'rpc_response_timeout': 2, 'long_rpc_timeout': 10},
    'conductor': {
        'build_lease': 1, 'recovery_interval': 0.3, 'cast_timeout': 1,
        'cast_check_interval': 0.3, 'cast_attempts': 2, 'retry_delay': 0.3,
        'scheduling_timeout': 2},
    'api': {'send_timeout': 2},
    'cells': {'timeout': 5},
    # Who was started just now is known to be up.
    'scheduler': {'refresh_interval': 0},
    # A host that failed is as good to the next test; a cell that fails is to
    # be turned away from, as it is usually.
    'filter_scheduler': {'build_failure_weight_multiplier': 0},
}


def again(function: Callable[[], Any]) -> Any:
    """Return what a function returns, by way of a connection that is whole.

    Those that were cut off are found out when they are used.
    """
    for left in reversed(range(4)):
        try:
            return function()
        except (exception.CellUnreachable, exception.DatabaseUnreachable):
            if not left:
                raise


class Child:
    """A service that was ordered, and what became of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.heard: dict[str, dict[str, Any]] = {}

    def wait(self, what: str, timeout_s: float = 600.0) -> dict[str, Any]:
        return processes.wait_until(
            lambda: self.heard.get(what), f'process {self.number} to have '
            f'{what}; it has {list(self.heard)}', timeout_s)

    @property
    def is_stopped(self) -> bool:
        with open(f'/proc/{self.pid}/stat', encoding='ascii') as stat:
            return stat.read().rpartition(')')[2].split()[0] == 'T'

    def kill(self) -> None:
        if 'ended' not in self.heard:
            os.kill(self.pid, signal.SIGKILL)
            self.wait('ended')


class World(deployment.Deployment):
    """A deployment whose services are forked, one for each host and above."""

    #: Options of ``[filter_scheduler]``.
    filters: Mapping[str, Any] = {}

    def _start_services(self) -> None:
        self._numbers = itertools.count(1)
        self._children: dict[int, Child] = {}
        self._zygote = subprocess.Popen(
            [sys.executable, '-m', 'tests.integration.fates.zygote'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=processes.environment())
        self.addCleanup(self._end)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.scheduler = self.start('scheduler', 'api')
        started = [self.scheduler]
        #: The agents, by their hosts.
        self.agents: dict[str, Child] = {}
        for cell, hosts in self._cells.items():
            started.append(self.start('conductor', cell))
            for host in hosts:
                self.agents[host] = self.start('compute', cell, host)
        for child in [*started, *self.agents.values()]:
            child.wait('started')
        conf = loader.load(files=self._paths('api'), dirs=[])
        self.parts = services.Components(conf)
        self.api = services.api(conf, self.parts)
        self.addCleanup(self.api.close)

    def _stop_services(self) -> None:
        pass

    def start(
        self, service: str, *files: str, **order: Any
    ) -> Child:
        """Have a service forked; it dies ``die_at`` a step if that is given.

        :param files: configuration files, by their names
        """
        child = Child(next(self._numbers))
        self._children[child.number] = child
        line = json.dumps({
            'number': child.number, 'service': service,
            'files': self._paths(*files),
            'log': str(self.directory / f'{service}-{files[-1]}.log'),
            **order})
        self._zygote.stdin.write(line.encode() + b'\n')
        self._zygote.stdin.flush()
        child.pid = child.wait('forked')['pid']
        return child

    # What is there of a server.

    def status(self, uuid: str) -> str | None:
        """Return what a user sees of a server; None where it is not there."""
        try:
            return again(lambda: self.api.servers.get(USER, uuid).status)
        except exception.InstanceNotFound:
            return None

    def listed(self, name: str) -> list[str]:
        """Return the servers of one request, by their name."""
        return [each.uuid for each in
                self.api.servers.list(USER).servers
                if each.name == name or each.name.startswith(f'{name}-')]

    def rows(self, uuid: str) -> dict[str, Any]:
        """Return the rows that are not deleted, by the cells."""
        found = {}
        for cell in self.parts.cells.all():
            row = self._row(cell, uuid)
            if row is not None:
                found[cell.name] = row
        return found

    def delete(self, uuid: str) -> None:
        """Delete a server, if it is there."""
        if self.status(uuid) is not None:
            again(lambda: self.api.servers.delete(USER, uuid))

    def _row(self, cell: objects.CellMapping, uuid: str) -> Any:
        def read() -> Any:
            with self.parts.targets.database(cell).reader() as connection:
                return instances.get(connection, uuid)
        return again(read)

    def status_in(self, uuid: str, cell: str) -> str | None:
        """Return the state of a server in one cell, which alone is asked."""
        mapping = next(each for each in self.parts.cells.all()
                       if each.name == cell)
        row = self._row(mapping, uuid)
        return row and row.vm_state

    def describe(self, uuid: str) -> dict[str, Any]:
        """Return all that there is of a server."""
        return {'status': self.status(uuid), 'mapped': self.mapped(uuid),
                'rows': self.rows(uuid), 'request': self._request(uuid),
                'held': self.held(uuid)}

    def failure(self, uuid: str) -> str | None:
        """Return what a request says of why it failed."""
        request = self._request(uuid)
        return request and request.failure

    def _request(self, uuid: str) -> Any:
        def read() -> Any:
            with self.parts.database.reader() as connection:
                return build_requests.get(connection, uuid)
        return again(read)

    def mapped(self, uuid: str) -> str | None:
        def read() -> Any:
            with self.parts.database.reader() as connection:
                return instance_mappings.get_many(connection, [uuid])[uuid]
        mapping = again(read)
        return mapping.cell_mapping and mapping.cell_mapping.name

    def requested(self, uuid: str) -> bool:
        return self._request(uuid) is not None

    def held(self, uuid: str) -> list[Any]:
        return again(lambda: self.parts.claims.claims_of([uuid])).get(uuid, [])

    def _paths(self, *files: str) -> list[str]:
        return [str(self.directory / f'{name}.conf') for name in files]

    def _write(
        self, name: str, groups: Mapping[str, Mapping[str, Any]]
    ) -> None:
        groups = {**groups, 'filter_scheduler': self.filters}
        super()._write(name, {
            group: {**SOON.get(group, {}), **groups.get(group, {})}
            for group in {**SOON, **groups}})

    def _listen(self) -> None:
        for line in self._zygote.stdout:
            said = json.loads(line)
            self._children[said['number']].heard[said['what']] = said

    def _end(self) -> None:
        self._zygote.stdin.close()
        self._zygote.wait(300)
        self._listener.join(300)
        self._zygote.stdout.close()
