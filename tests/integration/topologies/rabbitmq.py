# SPDX-License-Identifier: Apache-2.0
"""A cluster of three nodes of RabbitMQ."""

from tests.integration import processes
from tests.integration import servers
from tests.integration.topologies import example

CONFIGURATION = '/etc/rabbitmq/rabbitmq.conf'
ENVIRONMENT = '/etc/rabbitmq/rabbitmq-env.conf'
DEFINITIONS = '/etc/rabbitmq/definitions.json'


class Cluster(servers.RabbitMQ):
    """A cluster that is configured as a section of the page shows.

    :ivar nodes: the processes of the nodes
    """

    # Nodes of one machine need ports of their own for each other.
    ports = (*servers.RabbitMQ.ports, 'distribution1', 'distribution2')

    machines = ('10.0.0.21', '10.0.0.22', '10.0.0.23')

    def __init__(self, page: example.Example) -> None:
        super().__init__()
        self._page = page

    def prepare(self) -> None:
        super().prepare()
        for machine in self.machines:
            paths = [self._page.write(ENVIRONMENT, machine, self.machines[0]),
                     *(self._page.write(name, machine)
                       for name in (CONFIGURATION, DEFINITIONS))]
            for path in paths:
                path.write_text(self._named(path.read_text()))
            with self._page.path(CONFIGURATION, machine).open('a') as file:
                file.write('disk_free_limit.absolute = 1MB\n')

    def make_processes(self) -> list[processes.Process]:
        addresses = ','.join(map(self._page.address, self.machines))
        self.nodes = [
            processes.Process(
                [self.program['rabbitmq-server']], self.directory,
                name=f'rabbitmq-{machine}', env=self._node(number),
                ready='Server startup complete')
            for number, machine in enumerate(self.machines)]
        return [
            processes.Process(
                [self.program['epmd'], '-address', addresses,
                 '-port', str(self.port['epmd'])],
                self.directory, env=self._node(0), ready=self._has_epmd),
            *self.nodes]

    def start(self) -> None:
        super().start()
        # Nodes that do not find each other are brokers of their own.
        self._evaluate(f"""
            {len(self.machines)} = length(
                mnesia:system_info(running_db_nodes)),
            ok.
        """)

    def most_used(self) -> processes.Process:
        """Return the node with the most connections of clients."""
        connections = [processes.run(
            ['ss', '-Htn', 'state', 'established', 'sport', '=', ':5672',
             'src', self._page.address(machine)], self.directory)
            for machine in self.machines]
        most = max(connections, key=lambda lines: lines.count('\n'))
        return self.nodes[connections.index(most)]

    def _named(self, text: str) -> str:
        """Give the nodes different names, as one machine has one epmd."""
        for number, machine in enumerate(self.machines):
            address = self._page.address(machine)
            text = text.replace(f'rabbit@{address}',
                                f'rabbit{number}@{address}')
        return text

    def _node(self, number: int) -> dict[str, str]:
        """Return the environment of a node."""
        machine = self.machines[number]
        own = self.directory / machine
        address = self._page.address(machine).replace('.', ',')
        env = {
            **self._environment(),
            'RABBITMQ_CONFIG_FILE': str(
                self._page.path(CONFIGURATION, machine)),
            'RABBITMQ_CONF_ENV_FILE': str(
                self._page.path(ENVIRONMENT, machine)),
            'RABBITMQ_DIST_PORT': str(
                self.port[f'distribution{number or ""}']),
            'RABBITMQ_LOG_BASE': f'{own}/log',
            'RABBITMQ_MNESIA_BASE': f'{own}/mnesia',
            'RABBITMQ_PID_FILE': f'{own}.pid',
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                f'-kernel inet_dist_use_interface {{{address}}} '
                '+S 1:1 +sbwt none',
        }
        # The page sets them.
        for name in ('ERL_EPMD_ADDRESS', 'RABBITMQ_NODENAME',
                     'RABBITMQ_NODE_IP_ADDRESS', 'RABBITMQ_NODE_PORT'):
            env.pop(name)
        return env

    def _address(self) -> str:
        return self._page.address(self.machines[0])
