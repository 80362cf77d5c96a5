# SPDX-License-Identifier: Apache-2.0
"""Limits of the API database, and of the options."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg

from cellsched.db.api import instance_mappings
from cellsched.db.api import quotas
from cellsched import exception
from cellsched import objects
from cellsched.quota import base

#: What the error says of requests that were accepted.
_TOO_LARGE = 413


class DbQuotaDriver(base.Quotas):
    """Limits projects, and users in projects.

    A project's limits are its own, of the table ``quotas``; else those of the
    class ``default``, of the table ``quota_classes``; else ``[quota]
    instances``, ``cores`` and ``ram``. Users have limits where the table
    ``project_user_quotas`` says so, for what is theirs, besides those of the
    project. -1 is no limit.

    With ``[quota] recheck_quota`` off everything is admitted that was
    accepted.
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Any) -> None:
        super().__init__(conf, clock)
        self._defaults = {
            resource: conf.quota[resource] for resource in base.RESOURCES}
        self._recheck = conf.quota.recheck_quota

    def limits(
        self, connection: Any, project_id: str | None,
        user_id: str | None = None,
    ) -> dict[str, int]:
        return self._limits(
            connection, project_id or '', user_id)[user_id is not None]

    def check(
        self, connection: Any, project_id: str | None, user_id: str | None,
        flavor: objects.Flavor, min_count: int, max_count: int,
    ) -> int:
        room = self._room(connection, project_id or '', user_id, self._limits(
            connection, project_id or '', user_id), accepted=True)
        size = _size(flavor.vcpus, flavor.memory_mb)
        count = min((each.times(size, max_count) for each in room),
                    default=max_count)
        if count >= min_count:
            return count
        wanted = {name: amount * min_count for name, amount in size.items()}
        raise _over(room, wanted)

    def admit_all(
        self, connection: Any, batches: Iterable[base.Batch]
    ) -> dict[str, exception.OverQuota]:
        if not self._recheck:
            return {}
        by_project: dict[str, list[base.Batch]] = {}
        for batch in batches:
            if batch.builds:
                by_project.setdefault(batch.project_id or '', []).append(batch)
        refused: dict[str, exception.OverQuota] = {}
        # In one order, or two could wait for each other.
        for project_id, theirs in sorted(by_project.items()):
            refused.update(self._admit_to(connection, project_id, theirs))
        return refused

    def _admit_to(
        self, connection: Any, project_id: str, batches: Sequence[base.Batch]
    ) -> dict[str, exception.OverQuota]:
        limits = {
            user_id: self._limits(connection, project_id, user_id)
            for user_id in dict.fromkeys(batch.user_id for batch in batches)}
        if not any(map(any, limits.values())):
            return {}
        quotas.lock(connection, project_id, self.clock.now())
        of_project, *_ = limits.values()
        shared = self._room(
            connection, project_id, None, (of_project[0], {}))
        room = {
            user_id: shared + self._room(
                connection, project_id, user_id, ({}, of_user))
            for user_id, (_, of_user) in limits.items()}
        refused: dict[str, exception.OverQuota] = {}
        for batch in batches:
            refused.update(_refused(room[batch.user_id], batch))
        return refused

    def _limits(
        self, connection: Any, project_id: str, user_id: str | None
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the limits of the project, and those of the user."""
        project, user = quotas.limits(connection, project_id, user_id)
        return _limited({**self._defaults, **project}), _limited(user)

    def _room(
        self, connection: Any, project_id: str, user_id: str | None,
        limits: tuple[dict[str, int], dict[str, int]], accepted: bool = False,
    ) -> list['_Room']:
        """Count what is used, where there are limits."""
        return [
            _Room(limited, instance_mappings.usage(
                connection, project_id, whose, accepted)._asdict())
            for limited, whose in zip(limits, (None, user_id)) if limited]


class _Room:
    """What a project, or a user, may have and has."""

    def __init__(
        self, limits: Mapping[str, int], used: dict[str, int]
    ) -> None:
        self.limits = limits
        self.used = used

    def lacks(self, wanted: Mapping[str, int]) -> list[str]:
        """Return the resources of which there is too little."""
        return [resource for resource, limit in self.limits.items()
                if wanted[resource]
                and self.used[resource] + wanted[resource] > limit]

    def times(self, size: Mapping[str, int], most: int) -> int:
        """Return how often this much fits, up to a number."""
        return max(0, min([most, *(
            (limit - self.used[resource]) // size[resource]
            for resource, limit in self.limits.items() if size[resource])]))

    def take(self, wanted: Mapping[str, int]) -> None:
        for resource, amount in wanted.items():
            self.used[resource] += amount


def _size(vcpus: int, memory_mb: int) -> dict[str, int]:
    return {'instances': 1, 'cores': vcpus, 'ram': memory_mb}


def _limited(limits: Mapping[str, int]) -> dict[str, int]:
    """Return the limits that are some, of what is counted here."""
    return {resource: limits[resource] for resource in base.RESOURCES
            if limits.get(resource, -1) >= 0}


def _refused(
    room: Sequence[_Room], batch: base.Batch
) -> dict[str, exception.OverQuota]:
    """Take what fits of a batch; return the others, with the reason."""
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
            each.used = used
        if least > 1:
            error = _over(room, _sum(builds[:least]), _TOO_LARGE)
        refused = [build.uuid for build in builds]
    return dict.fromkeys(refused, error)


def _sum(builds: Iterable[base.Build]) -> dict[str, int]:
    total = dict.fromkeys(base.RESOURCES, 0)
    for build in builds:
        for resource, amount in _size(build.vcpus, build.memory_mb).items():
            total[resource] += amount
    return total


def _over(
    room: Iterable[_Room], wanted: Mapping[str, int],
    code: int = exception.OverQuota.code,
) -> exception.OverQuota:
    """Return the error of what does not fit, the project's before a user's."""
    each = next(each for each in room if each.lacks(wanted))
    overs = each.lacks(wanted)

    def listed(amounts: Mapping[str, int]) -> str:
        return ', '.join(str(amounts[resource]) for resource in overs)

    return exception.OverQuota(
        overs=', '.join(overs), req=listed(wanted), used=listed(each.used),
        allowed=listed(each.limits), code=code)
