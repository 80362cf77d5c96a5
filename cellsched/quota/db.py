# SPDX-License-Identifier: Apache-2.0
"""The driver with limits in the API database and in options."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any

from oslo_config import cfg

from cellsched.db.api import instance_mappings
from cellsched.db.api import quotas
from cellsched import exception
from cellsched import objects
from cellsched.quota import base

#: HTTP status of the error if an accepted request exceeds a quota.
_TOO_LARGE = 413


def limited(limits: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of counted resources, without unlimited ones."""
    return {resource: limits[resource] for resource in base.RESOURCES
            if limits.get(resource, -1) >= 0}


def admit_recorded(
    connection: Any, batches: Iterable[base.QuotaBatch],
    now: datetime.datetime,
) -> dict[str, exception.OverQuota]:
    """Admit builds within the limits that their batches name.

    Otherwise it is as :meth:`cellsched.quota.base.QuotaDriver.admit_all`.
    """
    by_project: dict[str, list[base.QuotaBatch]] = {}
    for batch in batches:
        if any((batch.limits or {}).values()):
            by_project.setdefault(batch.project_id or '', []).append(batch)
    refused: dict[str, exception.OverQuota] = {}
    # Lock the projects in a fixed order to avoid deadlocks.
    for project_id in sorted(by_project):
        quotas.lock(connection, project_id, now)
        limited_batches = by_project[project_id]
        for batch, rooms in zip(limited_batches, _rooms(
                connection, project_id, limited_batches)):
            refused.update(_refused(rooms, batch))
    return refused


class DbQuotaDriver(base.QuotaDriver):
    """Limits projects, and users in projects.

    The limits of a project are in the table ``quotas``; otherwise those of the
    class ``default`` in the table ``quota_classes``; otherwise ``[quota]
    instances``, ``cores`` and ``ram``. The table ``project_user_quotas`` adds
    limits for the servers of a user in a project. -1 means no limit.

    With ``[quota] recheck_quota`` off, every accepted build is admitted.
    """

    keeps_limits = True

    def __init__(self, conf: cfg.ConfigOpts, clock: base.QuotaClock) -> None:
        super().__init__(conf, clock)
        self._defaults = {
            resource: conf.quota[resource] for resource in base.RESOURCES}
        self._recheck = conf.quota.recheck_quota

    def limits(
        self, connection: Any, project_id: str | None,
        user_id: str | None = None,
    ) -> dict[str, int]:
        owner = project_id or '', user_id
        return self.limits_of(connection, [owner]).get(owner, {})

    def check(
        self, connection: Any, project_id: str | None, user_id: str | None,
        flavor: objects.Flavor, min_count: int, max_count: int,
    ) -> int:
        rooms = _rooms(connection, project_id or '', self._limited(
            connection, [base.QuotaBatch(project_id, user_id, ())]), True)[0]
        size = _size(flavor)
        count = min((each.times(size, max_count) for each in rooms),
                    default=max_count)
        if count >= min_count:
            return count
        requested = {name: amount * min_count for name, amount in size.items()}
        raise _over(rooms, requested)

    def admit_all(
        self, connection: Any, batches: Iterable[base.QuotaBatch]
    ) -> dict[str, exception.OverQuota]:
        if not self._recheck:
            return {}
        return admit_recorded(connection, self._limited(
            connection, [batch for batch in batches if batch.builds]),
            self.clock.now())

    def _limited(
        self, connection: Any, batches: Iterable[base.QuotaBatch]
    ) -> list[base.QuotaBatch]:
        """Return batches with the limits of now."""
        limits = self.limits_of(connection, map(_owner, batches))
        return [batch._replace(limits={
            'project': limits.get((batch.project_id or '', None), {}),
            'user': {} if batch.user_id is None else limits.get(
                _owner(batch), {})}) for batch in batches]

    def limits_of(
        self, connection: Any, owners: Iterable[quotas.Owner]
    ) -> dict[quotas.Owner, dict[str, int]]:
        """Return the limits, without unlimited owners.

        :param owners: projects, and users in projects; the project of each
            user is included
        """
        found = {
            (project_id, user_id): limited(
                limits if user_id is not None else
                {**self._defaults, **limits})
            for (project_id, user_id), limits in quotas.limits(
                connection, owners).items()}
        return {owner: limits for owner, limits in found.items() if limits}


class _Room:
    """The limits and the usage of a project or a user."""

    def __init__(
        self, limits: Mapping[str, int], used: dict[str, int]
    ) -> None:
        self.limits = limits
        self.used = used

    def lacks(self, requested: Mapping[str, int]) -> list[str]:
        """Return the resources that are exhausted."""
        return [resource for resource, limit in self.limits.items()
                if requested[resource]
                and self.used[resource] + requested[resource] > limit]

    def times(self, size: Mapping[str, int], most: int) -> int:
        """Return how often a size fits, up to a maximum."""
        return max(0, min([most, *(
            (limit - self.used[resource]) // size[resource]
            for resource, limit in self.limits.items() if size[resource])]))

    def take(self, requested: Mapping[str, int]) -> None:
        for resource, amount in requested.items():
            self.used[resource] += amount


def _owner(batch: base.QuotaBatch) -> quotas.Owner:
    return batch.project_id or '', batch.user_id


def _rooms(
    connection: Any, project_id: str, batches: Sequence[base.QuotaBatch],
    accepted: bool = False,
) -> list[list[_Room]]:
    """Return the rooms of a project and of its user, for each batch.

    The batches share the rooms. Without a limit the usage is not counted.
    """
    limits = [batch.limits or {} for batch in batches]
    users = {batch.user_id: None for batch, each in zip(batches, limits)
             if each.get('user')}
    if not users and any(any(each.values()) for each in limits):
        users = {None: None}
    used: dict[str | None, dict[str, int]] = {}
    for user_id in users:
        for owner, usage in zip((None, user_id), instance_mappings.usages(
                connection, project_id, user_id, accepted)):
            used[owner] = usage._asdict()
    return [[_Room(limited(each[name]), used[owner])
             for name, owner in (('project', None), ('user', batch.user_id))
             if each.get(name)] for batch, each in zip(batches, limits)]


def _size(*servers: objects.Flavor | base.QuotaBuild) -> dict[str, int]:
    return {'instances': len(servers),
            'cores': sum(each.vcpus for each in servers),
            'ram': sum(each.memory_mb for each in servers)}


def _refused(
    rooms: Sequence[_Room], batch: base.QuotaBatch
) -> dict[str, exception.OverQuota]:
    """Count the builds of a batch that fit; return errors for the rest."""
    builds = batch.builds
    before = [dict(each.used) for each in rooms]
    error = None
    refused = []
    for build in builds:
        size = _size(build)
        if any(each.lacks(size) for each in rooms):
            error = error or _over(rooms, size, _TOO_LARGE)
            refused.append(build.uuid)
        else:
            for each in rooms:
                each.take(size)
    if error is None:
        return {}
    least = min(batch.min_count, len(builds))
    if len(builds) - len(refused) < least:
        for each, used in zip(rooms, before):
            each.used.update(used)
        if least > 1:
            error = _over(rooms, _size(*builds[:least]), _TOO_LARGE)
        refused = [build.uuid for build in builds]
    return dict.fromkeys(refused, error)


def _over(
    rooms: Iterable[_Room], requested: Mapping[str, int],
    code: int = exception.OverQuota.code,
) -> exception.OverQuota:
    """Return the error; a project's limit comes before a user's."""
    each = next(each for each in rooms if each.lacks(requested))
    overs = each.lacks(requested)

    def listed(amounts: Mapping[str, int]) -> str:
        return ', '.join(str(amounts[resource]) for resource in overs)

    return exception.OverQuota(
        overs=', '.join(overs), req=listed(requested), used=listed(each.used),
        allowed=listed(each.limits), code=code)
