# SPDX-License-Identifier: Apache-2.0
"""The CPU time of processes and the commits of a database server."""

import collections
import contextlib
import os
import pathlib
import re
import subprocess

import psycopg2

from tests.integration import servers
from tests.integration import serving

#: The unit of the system's CPU times, in seconds.
TICK_S = 1 / os.sysconf('SC_CLK_TCK')

#: The smallest object id that does not belong to PostgreSQL itself.
FIRST_OURS = 16384

_RECORD = re.compile(r'^rmgr: (\w+) .* tx: +(\d+), lsn: .* desc: (.*)$')
_RELATION = re.compile(r'rel \d+/(\d+)/(\d+)')
_PARTS = re.compile(r'subxacts: ([\d ]+)')
_RATE = re.compile(r'^tps = ([\d.]+)', re.MULTILINE)


def cpu_s(pids):
    """Return the CPU seconds of processes with all their descendants.

    :param pids: lists of process ids by name
    """
    spent, started = {}, collections.defaultdict(list)
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            fields = path.read_text().rpartition(')')[2].split()
        except OSError:
            # The process has ended.
            continue
        pid = int(path.parent.name)
        started[int(fields[1])].append(pid)
        # The time of ended children is included in their parent's.
        spent[pid] = sum(map(int, fields[11:15])) * TICK_S

    def whole(pid):
        return spent.get(pid, 0) + sum(map(whole, started[pid]))

    return {name: sum(map(whole, some)) for name, some in pids.items()}


def machine_s():
    """Return the CPU seconds of all processes on the machine."""
    line = pathlib.Path('/proc/stat').read_text().splitlines()[0]
    user, nice, system, _, _, *rest = map(int, line.split()[1:9])
    return (user + nice + system + sum(rest)) * TICK_S


class Commits:
    """Durable commits of a database server, counted in its log.

    Transactions without writes are not counted, nor are those of the server's
    own maintenance.

    :param server: a :class:`tests.integration.servers.PostgreSQL`
    """

    def __init__(self, server):
        self._server = server
        # After a checkpoint the server keeps its log for minutes.
        self._query('CHECKPOINT')

    def now(self):
        """Return the current position in the log."""
        # A commit flushes the log, so that it can be read up to this position.
        [[place]] = self._query(
            "SELECT pg_logical_emit_message(true, 'benchmark', '')")
        return place

    def between(self, begin, end):
        """Return the number of commits between two positions, by database."""
        names = dict(self._query('SELECT oid, datname FROM pg_database'))
        lines = subprocess.run(
            [program(self._server, 'pg_waldump'), '--path',
             self._server.directory / 'data' / 'pg_wal', '--start', begin,
             '--end', end],
            capture_output=True, text=True, check=True).stdout.splitlines()
        wrote, found = {}, collections.Counter()
        for line in lines:
            record = _RECORD.match(line)
            if record is None:
                if line.startswith('rmgr:'):
                    raise RuntimeError(
                        f'unexpected output of pg_waldump: {line!r}')
                # Other lines are not records.
                continue
            kind, transaction, what = record.groups()
            if kind == 'Transaction' and what.startswith('COMMIT'):
                parts = _PARTS.search(what)
                transactions = [
                    transaction, *(parts[1].split() if parts else ())]
                # A transaction writes to one database only.
                found.update([wrote[each] for each in transactions
                              if each in wrote][:1])
                continue
            for database, relation in _RELATION.findall(what):
                if int(relation) >= FIRST_OURS:
                    wrote[transaction] = names.get(int(database), database)
        return found

    def _query(self, statement):
        with (contextlib.closing(connect(self._server)) as connection,
              connection.cursor() as cursor):
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else None


class Floor:
    """The time that a database server takes to commit a row.

    :param name: a database for this purpose
    :param directory: the directory for the script
    """

    def __init__(self, server, name, directory):
        self._script = directory / 'commit.sql'
        self._script.write_text(
            "INSERT INTO rows VALUES (repeat('x', 500));\n")
        self._program = [
            program(server, 'pgbench'), '-h', serving.ADDRESS, '-p',
            str(server.port['sql']), '-U', 'postgres', '-n', '-M', 'prepared']
        self._name = name
        with (contextlib.closing(connect(server, name)) as connection,
              connection.cursor() as cursor):
            cursor.execute('CREATE TABLE rows (row text)')

    def commit_s(self, connections, seconds):
        """Return the seconds per commit with this number of connections."""
        output = subprocess.run(
            [*self._program, '-c', str(connections), '-T', str(seconds),
             '-f', self._script, self._name],
            capture_output=True, text=True, check=True).stdout
        return 1 / float(_RATE.search(output)[1])


def connect(server, name='postgres'):
    """Return a connection to a database in autocommit mode."""
    connection = psycopg2.connect(
        host=serving.ADDRESS, port=server.port['sql'], user='postgres',
        dbname=name)
    connection.autocommit = True
    return connection


def program(server, name):
    """Return the path of a program of the database server."""
    path = pathlib.Path(server.program['postgres']).with_name(name)
    if not path.exists():
        raise FileNotFoundError(
            f'{path} is not installed; it is in the Debian package '
            f'{servers.PostgreSQL.package}')
    return path
