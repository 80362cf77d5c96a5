# SPDX-License-Identifier: Apache-2.0
"""The machines that users order, and their store."""

import contextlib
import dataclasses
import sqlite3

#: State of a machine that is not built yet and has not failed.
ORDERED = 'ORDERED'

_TABLE = '''CREATE TABLE IF NOT EXISTS machines (
    uuid TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL,
    cpus INTEGER NOT NULL, memory_mb INTEGER NOT NULL, state TEXT NOT NULL,
    place TEXT, reason TEXT NOT NULL)'''


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine that a user ordered.

    :param state: ``ORDERED``, ``ACTIVE`` or ``ERROR``
    :param place: the name of its host
    :param reason: why the machine is in ``ERROR``
    """

    uuid: str
    name: str
    owner: str
    cpus: int
    memory_mb: int
    state: str = ORDERED
    place: str | None = None
    reason: str = ''


class MachineStore:
    """Stores machines in a SQLite file.

    :param path: the file; it is created if it does not exist
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with self._connection() as connection:
            connection.execute(_TABLE)

    def save(self, machine: Machine) -> None:
        """Store a machine; replace the machine with the same uuid."""
        values = dataclasses.astuple(machine)
        with self._connection() as connection:
            connection.execute(
                f'REPLACE INTO machines VALUES '
                f'({", ".join("?" * len(values))})', values)

    def list_all(self, state: str | None = None) -> list[Machine]:
        """Return the machines, all or in one state, sorted by name."""
        with self._connection() as connection:
            rows = connection.execute(
                'SELECT * FROM machines WHERE state = ? OR ? IS NULL '
                'ORDER BY name', (state, state))
            return [Machine(*row) for row in rows]

    @contextlib.contextmanager
    def _connection(self):
        # Threads must not share a connection, so each call opens its own.
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            with connection:
                yield connection
