# SPDX-License-Identifier: Apache-2.0
"""One server, as its user sees it."""

from collections.abc import Iterable
import dataclasses
import datetime
from typing import Self

from cellsched import objects

#: What users call the states of a server.
_STATUSES = {'active': 'ACTIVE', 'building': 'BUILD', 'deleted': 'DELETED',
             'error': 'ERROR'}


@dataclasses.dataclass(frozen=True)
class Server:
    """A server.

    :param status: ``BUILD``, ``ACTIVE``, ``ERROR`` or ``DELETED``
    :param cell: name of its cell; None as long as it has none
    :param attempts: hosts that its build was tried on
    :param reason: why it is in ERROR, or is going to be when cell0 can take
        it; empty otherwise
    :param tags: sorted
    """

    uuid: str
    name: str | None
    project_id: str | None
    status: str
    task_state: str | None
    cell: str | None
    host: str | None
    availability_zone: str | None
    attempts: int
    reason: str
    created_at: datetime.datetime | None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, instance: objects.Instance,
        cell: objects.CellMapping | None = None, reason: str = '',
        tags: Iterable[str] = (),
    ) -> Self:
        """Return the record of an instance.

        :param cell: where it was read; None for a build request
        """
        state = instance.get('vm_state') or 'building'
        return cls(
            uuid=instance.uuid, name=instance.get('display_name'),
            project_id=instance.get('project_id'),
            status=_STATUSES.get(state, state.upper()),
            task_state=instance.get('task_state'),
            cell=(cell.get('name') or cell.uuid) if cell else None,
            host=instance.get('host'),
            availability_zone=instance.get('availability_zone'),
            attempts=instance.get('build_attempts', 0),
            reason=reason, created_at=instance.get('created_at'),
            tags=tuple(sorted(tags)))

    @classmethod
    def requested(cls, request: objects.BuildRequest) -> Self:
        """Return the record of a server that is to be built."""
        return cls.of(request.instance, reason=request.get('failure') or '',
                      tags=request.tag_names)

    def deleted(self) -> Self:
        """Return the record of a server that was this one and is gone."""
        return dataclasses.replace(self, status='DELETED', task_state=None)
