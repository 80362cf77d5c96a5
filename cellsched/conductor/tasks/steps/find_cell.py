# SPDX-License-Identifier: Apache-2.0
"""The step that looks up the cells of the chosen hosts."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import alternates
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import saga
from cellsched.db.api import host_mappings
from cellsched.db import session
from cellsched import exception
from cellsched import objects

LOG = log.getLogger(__name__)


class FindCell(saga.Step):
    """Look the chosen hosts up: the scheduler answers hosts, not cells.

    A host may have left its cell since it was chosen. Then the first of the
    alternates is claimed that is there and has room; if there is none, a
    scheduler is asked again later, which knows by then.
    """

    joint = True

    def __init__(
        self, database: session.Database, claims: claims_base.ClaimStore
    ) -> None:
        self._database = database
        self._alternates = alternates.Alternates(claims)

    def do(self, builds: Sequence[Build]) -> None:
        cells = self._cells(
            build.selections[0].service_host for build in builds)
        for build in builds:
            build.cell = cells.get(build.selections[0].service_host)
        lost = [build for build in builds if build.cell is None]
        if lost:
            cells = self._cells(
                each.service_host for build in lost
                for each in build.selections[1:])
            for build in lost:
                self._take_alternate(build, cells)

    def _take_alternate(
        self, build: Build, cells: Mapping[str, objects.CellMapping]
    ) -> None:
        gone, *others = build.selections
        left = [each for each in others if each.service_host in cells]
        chosen = self._alternates.claim_first(
            build.instance, left, build.spec.get('instance_group'))
        if chosen is None:
            build.end(Outcome.PUT_OFF, exception.HostMappingNotFound(
                host=gone.service_host))
            return
        LOG.warning('%s, which was chosen for %s, is not mapped to any cell; '
                    '%s is tried', gone.service_host, build.uuid,
                    chosen.service_host)
        build.selections = [chosen, *left]
        build.cell = cells[chosen.service_host]

    def _cells(
        self, hosts: Iterable[str]
    ) -> dict[str, objects.CellMapping]:
        with self._database.reader() as connection:
            return host_mappings.get_many(connection, hosts)
