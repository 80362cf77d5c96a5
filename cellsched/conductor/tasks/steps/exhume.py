# SPDX-License-Identifier: Apache-2.0
"""The step that takes builds out of cell0 which are tried again."""

from collections.abc import Sequence

from cellsched.cells.cell0 import Cell0
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.steps import ownership
from cellsched.db.api import build_requests
from cellsched.db import session
from cellsched import exception


class Exhume(saga.Step):
    """Remove what lies in cell0 of servers that their users have retried.

    It goes before they can have another cell, or they would be in two. Their
    requests say that nothing lies there any more in the transaction in which
    it is done: while that is open nobody else can take them up and bury them
    again, so that no later record is removed.

    :param lease_s: seconds to lease the requests for from now on
    """

    def __init__(
        self, database: session.Database, cell0: Cell0, lease_s: float
    ) -> None:
        self._database = database
        self._cell0 = cell0
        self._lease_s = lease_s

    def do(self, builds: Sequence[Build]) -> None:
        buried = [build for build in builds if build.request.get('buried')]
        if not buried:
            return
        try:
            self._exhume(buried)
        except exception.TransactionLost:
            raise
        except Exception as exc:
            self._cell0.explain(
                [build.uuid for build in buried], exc, buried[0].owner)
            raise

    def _exhume(self, buried: Sequence[Build]) -> None:
        cell0 = self._cell0.database()
        with self._database.writer() as connection:
            mine = ownership.renew(
                connection, buried,
                self._database.timestamp() + self._lease_s)
            if mine:
                uuids = [build.uuid for build in mine]
                self._cell0.exhume(cell0, uuids)
                build_requests.mark_exhumed(connection, uuids)
            lost = [build for build in buried if build not in mine]
            if lost:
                ownership.end_lost(connection, lost)
