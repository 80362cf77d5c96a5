# SPDX-License-Identifier: Apache-2.0
"""A scheduler for callers of Nova, and a caller."""

import pathlib

import fixtures

from cellsched.claims import base as claims
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.integration.nova import caller
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving

#: The size of each host, large enough for all tests together.
_SIZE = {'vcpus': 64, 'memory_mb': 65536, 'disk_gb': 1000}

CELLS = [
    deployment.DeployedCell('cell1', [deployment.DeployedHost('c1-a', **_SIZE),
                                      deployment.DeployedHost(
                                          'c1-b', **_SIZE)]),
    deployment.DeployedCell('cell2', [
        deployment.DeployedHost(name, availability_zone='east', **_SIZE)
        for name in ('c2-a', 'c2-b', 'c2-c')]),
]

#: The zone of each cell.
ZONES = {'cell1': 'nova', 'cell2': 'east'}

#: The cell of each host.
HOSTS = {host.name: cell.name for cell in CELLS for host in cell.hosts}

FILTERS = ('AvailabilityZoneFilter', 'ComputeFilter', 'DifferentHostFilter',
           'SameHostFilter', 'ServerGroupAffinityFilter',
           'ServerGroupAntiAffinityFilter')


class SchedulerFixture(fixtures.Fixture):
    """The process of a scheduler, and a process with Nova's client.

    The services of the cells run in the process of the tests. They share only
    their databases with the scheduler. ``caller`` is the client, ``scheduler``
    the process, and ``cells`` has the uuids of the cells by their names.

    :param python: the python of Nova's environment
    :param broker: the broker between client and scheduler
    :param quorum: whether to use quorum queues instead of classic queues
    """

    def __init__(
        self, python: pathlib.Path, broker: servers.Part, quorum: bool
    ) -> None:
        self._python = python
        self._broker = broker
        self._quorum = quorum

    def _setUp(self) -> None:
        self.directory = processes.make_directory(serving.ROOT)
        self.addCleanup(processes.remove_directory, self.directory)
        self._url = self._broker.url('nova')
        self.caller = self.useFixture(caller.Caller(
            self._python, self._write('nova', self._of_nova())))
        world = deployment.Deployment(self.directory, CELLS)
        self.addCleanup(world.stop)
        world.start()
        self._parts = services.Components(world.conf('api'))
        self.addCleanup(self._parts.close)
        self.cells = {cell.name: cell.uuid
                      for cell in self._parts.cells.all()}
        self.scheduler = self.useFixture(processes.Process(
            ['cellsched-scheduler', '--config-file', str(
                self._write('scheduler', self._of_scheduler(world)))],
            self.directory))
        self.scheduler.wait_for(r'has started as .*\n')
        self.caller.wait()

    def held_by(self, uuid: str) -> list[claims.Claim]:
        """Return the claims of a server in the claim store."""
        return self._parts.claims.claims_of([uuid]).get(uuid, [])

    def check_queue(self) -> None:
        """Check the type of the scheduler's queue."""
        servers.shared(servers.RabbitMQ).check_queue(
            self._url.rpartition('/')[2], 'scheduler', self._quorum)

    def _of_nova(self) -> deployment.Options:
        return {'DEFAULT': {'transport_url': self._url,
                            'rpc_response_timeout': 30,
                            'long_rpc_timeout': 30,
                            'state_path': self.directory},
                'oslo_messaging_rabbit': self._queues()}

    def _of_scheduler(
        self, world: deployment.Deployment
    ) -> deployment.Options:
        conf = world.conf('api')
        return {
            'DEFAULT': {'host': 'control', 'transport_url': self._url,
                        'control_exchange': 'nova'},
            'api_database': {'connection': conf.api_database.connection},
            'claims': {'connection': conf.claims.connection},
            'filter_scheduler': {'enabled_filters': ','.join(FILTERS)},
            'scheduler': {'remote_exceptions': 'nova', 'workers': 2},
            'oslo_messaging_rabbit': self._queues(),
        }

    def _queues(self) -> dict[str, int]:
        """Return options that both must have, because they share exchanges."""
        return {'rabbit_quorum_queue': self._quorum,
                'rabbit_transient_quorum_queue': self._quorum,
                'rabbit_stream_fanout': self._quorum,
                'rabbit_qos_prefetch_count': 10}

    def _write(self, name: str, options: deployment.Options) -> pathlib.Path:
        lines = []
        for group, values in options.items():
            lines.append(f'[{group}]')
            lines += [f'{name} = {value}' for name, value in values.items()]
        path = self.directory / f'{name}.conf'
        path.write_text('\n'.join(lines) + '\n')
        return path
