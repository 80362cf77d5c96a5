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
    used: dict[quotas.Owner, dict[str, int]] = {}
    refused: dict[str, exception.OverQuota] = {}
    for batch in sorted(batches, key=_owner):
        limits = batch.limits or {}
        if not any(limits.values()):
            continue
        project_id, user_id = owner = _owner(batch)
        quotas.lock(connection, project_id, now)
        if owner not in used:
            for each, usage in zip(
                    ((project_id, None), owner),
                    instance_mappings.usages(
                        connection, project_id, user_id, False)):
                used.setdefault(each, usage._asdict())
        refused.update(_refused([
            _Room(limited(limits[name]), used[each])
            for name, each in (('project', (project_id, None)),
                               ('user', owner)) if limits.get(name)], batch))
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
        owner = project_id or '', user_id
        room = _of(owner, self._rooms(
            connection, self.limits_of(connection, [owner]), accepted=True))
        size = _size(flavor.vcpus, flavor.memory_mb)
        count = min((each.times(size, max_count) for each in room),
                    default=max_count)
        if count >= min_count:
            return count
        requested = {name: amount * min_count for name, amount in size.items()}
        raise _over(room, requested)

    def admit_all(
        self, connection: Any, batches: Iterable[base.QuotaBatch]
    ) -> dict[str, exception.OverQuota]:
        if not self._recheck:
            return {}
        batches = [batch for batch in batches if batch.builds]
        limits = self.limits_of(connection, map(_owner, batches))
        # Lock the projects in a fixed order to avoid deadlocks.
        for project_id in sorted({project for project, _ in limits}):
            quotas.lock(connection, project_id, self.clock.now())
        rooms = self._rooms(connection, limits)
        refused: dict[str, exception.OverQuota] = {}
        for batch in batches:
            refused.update(_refused(_of(_owner(batch), rooms), batch))
        return refused

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

    def _rooms(
        self, connection: Any,
        limits: Mapping[quotas.Owner, Mapping[str, int]],
        accepted: bool = False,
    ) -> dict[quotas.Owner, '_Room']:
        """Count the usage of each owner with limits."""
        users: dict[str, set[str]] = {}
        for project_id, user_id in limits:
            users.setdefault(project_id, set()).update(
                () if user_id is None else (user_id,))
        used: dict[quotas.Owner, instance_mappings.ProjectUsage] = {}
        for project_id, user_ids in users.items():
            for each in user_ids or (None,):
                owners = (project_id, None), (project_id, each)
                used.update(zip(owners, instance_mappings.usages(
                    connection, project_id, each, accepted)))
        return {owner: _Room(each, used[owner]._asdict())
                for owner, each in limits.items()}


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


def _of(
    owner: quotas.Owner, rooms: Mapping[quotas.Owner, _Room]
) -> list[_Room]:
    """Return the limits for a user: the project's, and the user's."""
    return [rooms[each] for each in dict.fromkeys(((owner[0], None), owner))
            if each in rooms]


def _size(vcpus: int, memory_mb: int) -> dict[str, int]:
    return {'instances': 1, 'cores': vcpus, 'ram': memory_mb}


def _refused(
    room: Sequence[_Room], batch: base.QuotaBatch
) -> dict[str, exception.OverQuota]:
    """Count the builds of a batch that fit; return errors for the rest."""
    builds = batch.builds
    before = [dict(each.used) for each in room]
    error = None
    refused = []
    for build in builds:
        size = _size(build.vcpus, build.memory_mb)
        if any(each.lacks(size) for each in room):
            error = error or _over(room, size, _TOO_LARGE)
            refused.append(build.uuid)
        else:
            for each in room:
                each.take(size)
    if error is None:
        return {}
    least = min(batch.min_count, len(builds))
    if len(builds) - len(refused) < least:
        for each, used in zip(room, before):
            each.used.update(used)
        if least > 1:
            error = _over(room, _sum(builds[:least]), _TOO_LARGE)
        refused = [build.uuid for build in builds]
    return dict.fromkeys(refused, error)


def _sum(builds: Iterable[base.QuotaBuild]) -> dict[str, int]:
    total = dict.fromkeys(base.RESOURCES, 0)
    for build in builds:
        for resource, amount in _size(build.vcpus, build.memory_mb).items():
            total[resource] += amount
    return total


def _over(
    room: Iterable[_Room], requested: Mapping[str, int],
    code: int = exception.OverQuota.code,
) -> exception.OverQuota:
    """Return the error; a project's limit comes before a user's."""
    each = next(each for each in room if each.lacks(requested))
    overs = each.lacks(requested)

    def listed(amounts: Mapping[str, int]) -> str:
        return ', '.join(str(amounts[resource]) for resource in overs)

    return exception.OverQuota(
        overs=', '.join(overs), req=listed(requested), used=listed(each.used),
        allowed=listed(each.limits), code=code)
