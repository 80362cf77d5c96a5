# SPDX-License-Identifier: Apache-2.0
"""Two cells of real processes, set up with the product's own commands."""

from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import json
import pathlib
from typing import Any

import fixtures

from cellsched.claims import base
from cellsched.conf import loader
from cellsched.wiring import services
from tests.integration import commands
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving

#: The hosts of each cell, with what they have.
CELLS: dict[str, dict[str, dict[str, int]]] = {
    'cell1': {
        'c1-a': {'vcpus': 16, 'memory_mb': 65536, 'local_gb': 400},
        'c1-b': {'vcpus': 16, 'memory_mb': 65536, 'local_gb': 400},
    },
    'cell2': {
        'c2-a': {'vcpus': 16, 'memory_mb': 65536, 'local_gb': 400},
        # These two have too little memory for anything but servers that are
        # all disk. The one with more of that is chosen first.
        'c2-flaky': {'vcpus': 2, 'memory_mb': 2048, 'local_gb': 4000,
                     'fail_builds': 1},
        'c2-steady': {'vcpus': 2, 'memory_mb': 2048, 'local_gb': 3000},
    },
}

FLAVORS = {
    'small': {'ram': 4096, 'vcpus': 1, 'disk': 20},
    'archive': {'ram': 512, 'vcpus': 1, 'disk': 2000},
    'giant': {'ram': 1048576, 'vcpus': 1, 'disk': 20},
}

#: A virtual host and a database each.
_ABOVE = 'api'


class Deployment(fixtures.Fixture):
    """A scheduler, a super conductor, and two cells with their services.

    Each service is a process with a configuration file. Each cell and what is
    above them have a virtual host of the broker and a database each, and a
    cell's files do not name what is above it.

    :param cells: the hosts of each cell, with what they have
    :param workers: processes of what is above the cells, of each service
    :param above: further options of ``[DEFAULT]`` there
    :param directory: for all files, and kept; by default a new one
    :param controls: schedulers, and conductors above the cells, each with a
        host name of its own; by default one of both
    """

    def __init__(
        self, broker: servers.Part, database: servers.Part,
        cells: Mapping[str, Mapping[str, Mapping[str, int]]] = CELLS,
        workers: int = 2, above: Mapping[str, str] | None = None,
        directory: pathlib.Path | None = None, controls: int = 0,
    ) -> None:
        self._broker = broker
        self._database = database
        self._cells = cells
        self._workers = workers
        self._above = above or {}
        self._directory = directory
        self._controls = controls
        self.services: list[processes.Process] = []

    def _setUp(self) -> None:
        if self._directory:
            self.directory = self._directory
        else:
            self.directory = processes.make_directory(serving.ROOT)
            self.addCleanup(processes.remove_directory, self.directory)
        self._commands = self.useFixture(commands.Commands())
        self._write_configuration()
        self._set_up_databases()
        self._start_services()
        self.addCleanup(self._stop_services)
        self.manage([_ABOVE], 'cell_v2', 'discover_hosts', '--verbose')
        for name, size in FLAVORS.items():
            self.shell('flavor', 'create', name, *(
                f'--{what}={amount}' for what, amount in size.items()))

    def manage(
        self, files: Sequence[str], *args: str, expected: int = 0
    ) -> str:
        """Run a command for operators; return what it prints."""
        return self._run(files, 'cellsched-manage', args, expected)

    def shell(self, *args: str, expected: int = 0) -> str:
        """Run a command for users; return what it prints."""
        return self._run([_ABOVE], 'cellsched', args, expected)

    def create(self, *args: str, expected: int = 0) -> list[dict[str, Any]]:
        """Create servers, and return them once their fate is known."""
        return self._json('server', 'create', *args, '--wait',
                          expected=expected)

    def list_servers(self) -> list[dict[str, Any]]:
        return self._json('server', 'list')

    def show(self, uuid: str) -> dict[str, Any]:
        return self._json('server', 'show', uuid)

    def held_by(self, uuid: str) -> list[base.Claim]:
        """Return what a server holds, as the claim store says."""
        conf = loader.load(
            files=[str(self.directory / f'{_ABOVE}.conf')], dirs=[])
        parts = services.Components(conf)
        try:
            return parts.claims.claims_of([uuid]).get(uuid, [])
        finally:
            parts.close()

    def _json(self, *args: str, expected: int = 0) -> Any:
        return json.loads(
            self.shell(*args, '-f', 'json', expected=expected))

    def _run(
        self, files: Sequence[str], program: str, args: Sequence[str],
        expected: int = 0,
    ) -> str:
        return self._commands.run(
            [program, *self._files(files), *args], self.directory, expected)

    def _files(self, names: Sequence[str]) -> list[str]:
        return [f'--config-file={self.directory / name}.conf'
                for name in names]

    def _write_configuration(self) -> None:
        claims = {'connection': self._database.url('claims')}
        self._write(_ABOVE, {
            'DEFAULT': {'host': 'control', **self._transport(_ABOVE),
                        **self._above},
            'api_database': {'connection': self._database.url(_ABOVE)},
            'claims': claims,
            'scheduler': {'workers': self._workers},
            # A cell in which one story's build fails is as good to the next.
            'filter_scheduler': {'cell_failure_weight_multiplier': 0},
            'conductor': {'workers': self._workers},
            'quota': {'instances': -1, 'cores': -1, 'ram': -1},
        })
        for cell, hosts in self._cells.items():
            self._write(cell, {
                'DEFAULT': {'host': f'{cell}-control',
                            **self._transport(cell)},
                'database': {'connection': self._database.url(cell)},
                'claims': claims,
                'conductor': {'workers': 1},
            })
            for host, behaviour in hosts.items():
                self._write(host, {
                    'DEFAULT': {
                        'host': host,
                        'state_path': self.directory / 'state' / host},
                    'fake_virt': behaviour})

    def _transport(self, name: str) -> dict[str, str]:
        return {'transport_url': self._broker.url(name)}

    def _write(
        self, name: str, groups: Mapping[str, Mapping[str, Any]]
    ) -> None:
        lines = [line for group, options in groups.items() for line in (
            f'[{group}]', *(f'{option} = {value}'
                            for option, value in options.items()))]
        (self.directory / f'{name}.conf').write_text('\n'.join(lines) + '\n')

    def _set_up_databases(self) -> None:
        self.manage([_ABOVE], 'api_db', 'sync')
        self.manage([_ABOVE], 'claims_db', 'sync')
        self.manage([_ABOVE], 'cell_v2', 'map_cell0',
                    '--database_connection', self._database.url('cell0'))
        self.manage([_ABOVE], 'db', 'sync')
        for cell in self._cells:
            self.manage([cell], 'db', 'sync')
            self.manage([_ABOVE, cell], 'cell_v2', 'create_cell',
                        '--name', cell)

    def _start_services(self) -> None:
        controls = [[_ABOVE, f'control{number + 1}']
                    for number in range(self._controls)] or [[_ABOVE]]
        for files in controls:
            if len(files) > 1:
                self._write(files[-1], {'DEFAULT': {'host': files[-1]}})
            self._start('cellsched-scheduler', files)
            self._start('cellsched-conductor', files)
        for cell, hosts in self._cells.items():
            self._start('cellsched-conductor', [cell])
            for host in hosts:
                self._start('cellsched-compute', [cell, host])
        for service in self.services:
            service.wait_for(r'has started as .*\n')

    def _stop_services(self) -> None:
        """Stop all at once: one that is idle may take seconds to notice."""
        with futures.ThreadPoolExecutor(len(self.services)) as pool:
            stopped = [pool.submit(service.stop) for service in self.services]
        for each in stopped:
            each.result()

    def _start(self, program: str, files: Sequence[str]) -> None:
        service = processes.Process(
            [program, *self._files(files)], self.directory,
            name=f'{program}-{files[-1]}')
        self.services.append(self.useFixture(service))
