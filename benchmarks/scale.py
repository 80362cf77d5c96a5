# SPDX-License-Identifier: Apache-2.0
"""Many cells with many agents on one machine, over one RabbitMQ.

Parameters:

* ``cells``, and the number of ``hosts`` in each.
* ``at_once``, the number of cells that start at the same time.
* ``report_interval``, which is also the time in which reports are counted.
* ``callers``, the number of callers, which do not wait for their servers.
* ``servers``, the number of servers in a round.
* ``first``, the number of servers that are built before the measurement.

Each cell has a database and a virtual host. A process for each cell has its
conductor and its agents; see :mod:`scale_cells`. The scheduler and the
conductor above the cells run their own commands with one process each.
PostgreSQL waits for the disk.

``start`` begins with the first process of a cell, and ends when all agents
receive messages. Then the scheduler and the conductor start. ``mapped`` and
``known`` are the seconds from there until all hosts are mapped and until the
scheduler counts all of them as up. Memory is the proportional set size: pages
that processes share count for each of them in part.
"""

import collections
from concurrent import futures
import contextlib
import os
import pathlib
import re
import sys
import threading
import time
from urllib import request

import builds

from cellsched.conf import loader
from cellsched import context
from cellsched.db.api import cell_mappings
from cellsched.objects.cells import CellMapping
from cellsched.wiring import services
from oslo_utils import uuidutils

# The test suite has the code to start servers and processes.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import costs  # noqa: E402
from tests.integration import commands  # noqa: E402
from tests.integration import processes  # noqa: E402
from tests.integration import servers  # noqa: E402
from tests.integration import serving  # noqa: E402

USER = context.member('benchmark', 'benchmark')

#: Connections to PostgreSQL: of all services above the cells, and of a cell.
CONNECTIONS, CONNECTIONS_PER_CELL = 200, 20

#: Seconds after which the start or the discovery fails.
TIMEOUT_S = 400

MIB = 2 ** 20


def run(parameters, repeat):
    """Return the samples of builds, and figures."""
    samples = collections.defaultdict(list)
    figures = {}
    with contextlib.ExitStack() as stack:
        world = World(stack, parameters)
        world.start(figures)
        world.discover(figures)
        world.rest(figures)
        world.build(parameters['first'])
        before = world.active()
        for _ in range(repeat):
            start = time.time()
            accepted = world.build(parameters['servers'])
            ends = {uuid: at for uuid, at in world.launched().items()
                    if uuid in accepted}
            samples['build'].append(
                (max(ends.values()) - start) / parameters['servers'])
            samples['accepted to ACTIVE'] += builds.times(ends, accepted)
        after = world.active()
        figures['cells with builds'] = sum(
            after[cell] > before[cell] for cell in after)
        world.sizes(figures)
    return samples, figures


class World:
    """The servers, the services and the callers.

    :param stack: the exit stack that ends them
    """

    def __init__(self, stack, parameters):
        self._stack = stack
        self._cells = [
            f'cell{number + 1}' for number in range(parameters['cells'])]
        self._parameters = parameters
        self._hosts = parameters['cells'] * parameters['hosts']
        self._broker = stack.enter_context(servers.RabbitMQ())
        self._database = stack.enter_context(servers.PostgreSQL(
            durable=True, connections=CONNECTIONS
            + CONNECTIONS_PER_CELL * parameters['cells']))
        self._directory = processes.make_directory(serving.ROOT)
        stack.callback(processes.remove_directory, self._directory)
        self._port = stack.enter_context(serving.Port()).number
        self._kinds = {'RabbitMQ': self._broker.processes,
                       'PostgreSQL': self._database.processes}
        self._accepted = threading.local()
        self._set_up()

    def start(self, figures):
        """Start the cells."""
        before, start = self._cpu_s(), time.time()
        cells = self._run('cells', [
            sys.executable, '-W', 'ignore',
            str(pathlib.Path(__file__).with_name('scale_cells.py')),
            str(self._directory), str(len(self._cells)),
            str(self._parameters['hosts']),
            str(self._parameters['at_once'])])

        def started():
            if not cells.running:
                raise RuntimeError(
                    cells.log.read_text(errors='replace')[-2000:])
            found = re.findall(r'has started at (.*)', cells.log.read_text())
            return len(found) == len(self._cells) and max(map(float, found))

        end = processes.wait_until(started, 'the cells to start', TIMEOUT_S)
        figures['start, s'] = end - start
        self._spend(figures, 'start', before)

    def discover(self, figures):
        """Start the services above the cells; wait until hosts are known."""
        before, start = self._cpu_s(), time.time()
        for name in 'scheduler', 'conductor':
            self._run(name, [
                f'cellsched-{name}',
                f'--config-file={self._directory / "api.conf"}'])

        def mapped():
            [[count]] = self._ask('api', 'SELECT count(*) FROM host_mappings')
            return count == self._hosts

        def known():
            with contextlib.suppress(OSError):
                return self._up() == self._hosts

        for name, condition in ('mapped', mapped), ('known', known):
            processes.wait_until(condition, f'hosts to be {name}', TIMEOUT_S)
            figures[f'{name}, s'] = time.time() - start
        self._spend(figures, 'known', before)
        conf = loader.load(
            files=[str(self._directory / 'api.conf')], dirs=[])
        self.api = services.api(
            conf, services.Components(conf, reached=self._reached))
        self._stack.callback(self.api.close)
        self.api.flavors.create(context.admin(), 'least', 1, 512, 1)
        self._callers = self._stack.enter_context(
            futures.ThreadPoolExecutor(self._parameters['callers']))

    def rest(self, figures):
        """Count the reports, and the CPU time without builds."""
        query = "SELECT sum(report_count) FROM services " \
            "WHERE topic = 'compute'"
        before, start = self._cpu_s(), time.time()
        first = self._sum(query)
        time.sleep(self._parameters['report_interval'])
        wall_s = time.time() - start
        reports = self._sum(query) - first
        figures['reports per second'] = reports / wall_s
        for name, spent_s in self._cpu_s().items():
            spent_s -= before.get(name, 0)
            figures[f'at rest, CPUs of {name}'] = spent_s / wall_s
            if name in ('cells', 'PostgreSQL'):
                figures[f'at rest, CPU ms of {name} for each report'] = (
                    1000 * spent_s / reports)

    def build(self, number):
        """Build servers; return the time of acceptance of each."""
        before, start = sum(self.active().values()), time.time()
        accepted = dict(self._callers.map(self._create, range(number)))
        builds.wait_for(
            number, lambda: sum(self.active().values()) - before, start)
        return accepted

    def active(self):
        """Return the number of ACTIVE servers by cell."""
        return {cell: self._ask(cell, 'SELECT count(*) FROM instances WHERE '
                                "vm_state = 'active'")[0][0]
                for cell in self._cells}

    def launched(self):
        return builds.launched(self)

    def sizes(self, figures):
        """Add memory, connections and threads."""
        cells = len(self._cells)
        pids = self._pids()
        for name, some in pids.items():
            size = sum(map(pss, some)) / MIB
            figures[f'memory, MiB of {name}'] = size
            if name == 'cells':
                figures['memory, MiB of a cell'] = size / cells
                figures['memory, MiB of an agent'] = size / self._hosts
        figures['threads of a cell'] = sum(
            len(os.listdir(f'/proc/{pid}/task'))
            for pid in pids['cells']) / cells
        remote = remote_ports()
        for server, port in (('RabbitMQ', self._broker.port['amqp']),
                             ('PostgreSQL', self._database.port['sql'])):
            for name in 'cells', 'scheduler', 'conductor':
                count = sum(remote.get(inode) == port for pid in pids[name]
                            for inode in sockets(pid))
                if name == 'cells':
                    count, name = count / cells, 'a cell'
                figures[f'connections to {server} of {name}'] = count
        for name, count in self._broker.counts().items():
            figures[f'RabbitMQ, {name}'] = count

    def _set_up(self):
        """Create the databases and virtual hosts, and map the cells."""
        directory = self._directory
        self._urls = {name: servers.by_psycopg(self._database.url(name))
                      for name in ('api', 'claims', 'cell0', 'cell')}
        self._write('api', {
            'DEFAULT': {'host': 'control',
                        'transport_url': self._broker.url('api')},
            'api_database': {'connection': self._urls['api']},
            'scheduler': {'workers': 1}, 'conductor': {'workers': 1},
            'monitoring': {'scheduler_port': self._port},
            'quota': {'instances': -1, 'cores': -1, 'ram': -1}})
        self._write('cell', {'database': {'connection': self._urls['cell']}})
        with commands.Commands() as run:
            for name, *args in (
                    ('api', 'api_db', 'sync'), ('api', 'claims_db', 'sync'),
                    ('api', 'cell_v2', 'map_cell0', '--database_connection',
                     self._urls['cell0']),
                    ('api', 'db', 'sync'), ('cell', 'db', 'sync')):
                run.run(['cellsched-manage',
                         f'--config-file={directory / name}.conf', *args],
                        directory)
        conf = loader.load(files=[str(directory / 'api.conf')], dirs=[])
        parts = services.Components(conf)
        with (contextlib.closing(parts),
              parts.database.writer() as connection):
            for cell in self._cells:
                cell_mappings.create(
                    connection, self._set_up_cell(cell), parts.clock.now())
        self._connections = {
            name: self._stack.enter_context(contextlib.closing(
                costs.connect(self._database, name)))
            for name in ('api', *self._cells)}

    def _set_up_cell(self, cell):
        # A copy of an empty database takes less time than its migrations.
        self._database.execute('CREATE DATABASE {} TEMPLATE {}', cell, 'cell')
        transport = self._broker.url(cell)
        connection = servers.by_psycopg(self._database.url(cell))
        self._write(cell, {
            'DEFAULT': {'host': f'{cell}-control', 'transport_url': transport},
            'database': {'connection': connection}})
        return CellMapping(
            uuid=uuidutils.generate_uuid(), name=cell,
            transport_url=transport, database_connection=connection,
            disabled=False)

    def _write(self, name, groups):
        interval_s = self._parameters['report_interval']
        shared = {'DEFAULT': {'report_interval': interval_s,
                              'service_down_time': 6 * interval_s},
                  'claims': {'connection': self._urls['claims']}}
        lines = []
        for group in {**shared, **groups}:
            options = {**shared.get(group, {}), **groups.get(group, {})}
            lines += [f'[{group}]', *(f'{option} = {value}' for option, value
                                      in options.items())]
        (self._directory / f'{name}.conf').write_text('\n'.join(lines) + '\n')

    def _run(self, name, args):
        process = self._stack.enter_context(processes.Process(
            args, self._directory, name=name))
        self._kinds[name] = [process]
        return process

    def _up(self):
        """Return the number of hosts that the scheduler counts as up."""
        with request.urlopen(
                f'http://{serving.ADDRESS}:{self._port}/metrics',
                timeout=60) as answer:
            text = answer.read().decode()
        return sum(map(float, re.findall(
            r'^cellsched_hosts\{[^}]*state="up"[^}]*\} (\S+)', text, re.M)))

    def _pids(self):
        """Return all processes by kind."""
        return descendants({name: [each.pid for each in some]
                            for name, some in self._kinds.items()})

    def _cpu_s(self):
        return costs.cpu_s({name: [each.pid for each in some]
                            for name, some in self._kinds.items()})

    def _spend(self, figures, what, before):
        for name, spent_s in self._cpu_s().items():
            figures[f'{what}, CPU s of {name}'] = (
                spent_s - before.get(name, 0))

    def _create(self, number):
        [uuid] = self.api.servers.create(USER, f'server{number}', 'least')
        return uuid, self._accepted.at

    def _reached(self, step):
        # The time of the commit, not the time when the caller receives it.
        if step == 'Accept':
            self._accepted.at = time.time()

    def _sum(self, query):
        return sum(self._ask(cell, query)[0][0] or 0 for cell in self._cells)

    def _ask(self, name, query):
        with self._connections[name].cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()


def descendants(pids):
    """Return processes and their descendants, by name."""
    children = collections.defaultdict(list)
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(')')[2].split()
            children[int(fields[1])].append(int(path.parent.name))

    def whole(pid):
        return [pid, *(each for child in children[pid]
                       for each in whole(child))]

    return {name: [each for pid in some for each in whole(pid)]
            for name, some in pids.items()}


def pss(pid):
    """Return the proportional set size of a process in bytes."""
    text = pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text()
    return int(re.search(r'^Pss: +(\d+) kB', text, re.M)[1]) * 1024


def remote_ports():
    """Return the remote port of each connection, by the inode."""
    lines = pathlib.Path('/proc/net/tcp').read_text().splitlines()[1:]
    return {fields[9]: int(fields[2].rpartition(':')[2], 16)
            for fields in map(str.split, lines) if fields[3] == '01'}


def sockets(pid):
    """Return the inodes of the sockets of a process."""
    for path in pathlib.Path(f'/proc/{pid}/fd').iterdir():
        with contextlib.suppress(OSError):
            kind, _, inode = os.readlink(path).partition(':')
            if kind == 'socket':
                yield inode.strip('[]')
