# SPDX-License-Identifier: Apache-2.0
"""Quotas: get, by cell, set, unset."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from cellsched.api import authorization
from cellsched.api.base import Controller
from cellsched.api.base import requires
from cellsched.api import validation
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import instance_mappings
from cellsched.db.api import quotas
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.listing.server import name_of
from cellsched.listing import servers as listing
from cellsched.quota import base
from cellsched.validation import json_schema

_WHERE = 'quota'


@dataclasses.dataclass(frozen=True)
class Quota:
    """The limit and the usage of a resource.

    :param limit: -1 means no limit
    :param used: the usage of built servers
    :param pending: the usage of servers that are accepted and not yet built
    """

    resource: str
    limit: int
    used: int
    pending: int


@dataclasses.dataclass(frozen=True)
class CellUsage:
    """The usage of a project's servers in one cell.

    The usage is read from the API database.

    :param answers: whether the database of the cell answers now
    """

    cell: str
    answers: bool
    usage: instance_mappings.ProjectUsage


class Quotas(Controller):
    """Shows the limits and the usage of projects, and sets limits.

    Limits can be set only if the driver stores them in the API database.
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        cells: registry.CellRegistry, gatherer: gather.Gatherer,
        driver: base.QuotaDriver, clock: Clock,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._driver = driver
        self._clock = clock

    @requires(
        'os_compute_api:os-quota-sets:show', resource_param='project_id',
        of_project=True)
    def get(
        self, context: RequestContext, project_id: str,
        user_id: str | None = None,
    ) -> list[Quota]:
        """Return limit and usage of each resource.

        :param user_id: the user in the project, if not all
        :raises cellsched.exception.InvalidField: the id is invalid
        """
        _check_owner(project_id, user_id)
        with self._database.reader() as connection:
            limits = self._driver.limits(connection, project_id, user_id)
            used, accepted = (
                instance_mappings.usage(
                    connection, project_id, user_id, accepted)._asdict()
                for accepted in (False, True))
        return [Quota(resource, limits.get(resource, -1), used[resource],
                      max(0, accepted[resource] - used[resource]))
                for resource in base.RESOURCES]

    @requires(
        'cellsched:quotas:by_cell',
        resource_param='project_id', of_project=True)
    def by_cell(
        self, context: RequestContext, project_id: str
    ) -> list[CellUsage]:
        """Return the usage of a project in each cell, by name.

        :raises cellsched.exception.InvalidField: the id is invalid
        """
        _check_owner(project_id, None)
        with self._database.reader() as connection:
            usages = instance_mappings.usage_by_cell(connection, project_id)
        cells = self._cells.real()
        answered = self._gatherer.gather(context, cells, _ask).results
        return [
            CellUsage(name_of(cell), cell.uuid in answered,
                      usages.get(cell.uuid, instance_mappings.ProjectUsage()))
            for cell in sorted(cells, key=lambda cell: cell.name or '')]

    @requires(
        'os_compute_api:os-quota-sets:update', resource_param='project_id',
        of_project=True)
    def set(
        self, context: RequestContext, project_id: str,
        limits: Mapping[str, int], user_id: str | None = None,
    ) -> None:
        """Set limits by resource; -1 means no limit.

        Existing servers stay.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.ConfigurationInvalid: the limits of the
            driver cannot be set here
        """
        _check_owner(project_id, user_id)
        if not self._driver.keeps_limits:
            raise exception.ConfigurationInvalid(
                field='[quota] driver',
                problem='the limits of this driver are set elsewhere',
                expected='a driver with limits of its own, such as '
                         'DbQuotaDriver')
        json_schema.check(
            _WHERE, limits, validation.limits(base.RESOURCES), 'limits')
        with self._database.writer() as connection:
            quotas.set_limits(connection, project_id, user_id, limits,
                              self._clock.now())

    @requires(
        'os_compute_api:os-quota-sets:delete', resource_param='project_id',
        of_project=True)
    def unset(
        self, context: RequestContext, project_id: str,
        user_id: str | None = None,
    ) -> None:
        """Reset a project, or a user in it, to the default limits.

        Without a user, the limits of the users of the project are reset too.

        :raises cellsched.exception.InvalidField: the id is invalid
        """
        _check_owner(project_id, user_id)
        with self._database.writer() as connection:
            quotas.delete_limits(connection, project_id, user_id)

    def check_visible(self, context: RequestContext, name: Any) -> None:
        _check_owner(name, None)
        if not listing.visible(context, name):
            raise exception.ProjectQuotaNotFound(project_id=name)


def _check_owner(project_id: Any, user_id: Any) -> None:
    validation.check_text(_WHERE, 'project', project_id)
    if user_id is not None:
        validation.check_text(_WHERE, 'user', user_id)


def _ask(cell_context: RequestContext) -> None:
    """Run a cheap query, to see whether the cell answers."""
    with cell_context.cell.database.reader() as connection:
        services.lowest_version(connection, services.COMPUTE)
