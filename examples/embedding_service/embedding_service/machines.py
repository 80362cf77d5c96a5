# SPDX-License-Identifier: Apache-2.0
"""Machines, as users of this service know them."""

import contextlib
import dataclasses
import sqlite3

#: A machine that has not come to its fate.
ORDERED = 'ORDERED'

_TABLE = '''CREATE TABLE IF NOT EXISTS machines (
    uuid TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL,
    cpus INTEGER NOT NULL, memory_mb INTEGER NOT NULL, state TEXT NOT NULL,
    place TEXT, reason TEXT NOT NULL)'''


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine that a user ordered.

    :param state: ``ORDERED``, ``ACTIVE`` or ``ERROR``
    :param place: the host that has it
    :param reason: why it is in ``ERROR``
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
    """Keeps machines in a SQLite file.

    :param path: of the file, which is made if there is none
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with self._connection() as connection:
            connection.execute(_TABLE)

    def save(self, machine: Machine) -> None:
        """Keep a machine, in place of what is known by its uuid."""
        values = dataclasses.astuple(machine)
        with self._connection() as connection:
            connection.execute(
                f'REPLACE INTO machines VALUES '
                f'({", ".join("?" * len(values))})', values)

    def list_all(self, state: str | None = None) -> list[Machine]:
        """Return machines by name, all of them or those in a state."""
        with self._connection() as connection:
            rows = connection.execute(
                'SELECT * FROM machines WHERE state = ? OR ? IS NULL '
                'ORDER BY name', (state, state))
            return [Machine(*row) for row in rows]

    @contextlib.contextmanager
    def _connection(self):
        # A connection each time, for threads must not share one.
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            with connection:
                yield connection
