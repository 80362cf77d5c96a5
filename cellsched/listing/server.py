# SPDX-License-Identifier: Apache-2.0
"""The record of one server, as users see it."""

from collections.abc import Iterable
import datetime
from typing import Any
from typing import NamedTuple
from typing import Self

from cellsched import objects

#: Statuses of the API by ``vm_state``.
_STATUSES = {'active': 'ACTIVE', 'building': 'BUILD', 'deleted': 'DELETED',
             'error': 'ERROR'}
_VM_STATES = {status: vm_state for vm_state, status in _STATUSES.items()}

#: All statuses, of the states that this project and Nova write.
STATUSES = frozenset({
    *_VM_STATES, 'PAUSED', 'RESCUED', 'RESIZED', 'SHELVED',
    'SHELVED_OFFLOADED', 'SOFT-DELETE', 'STOPPED', 'SUSPENDED'})

#: Status of a server whose cell does not answer.
UNKNOWN = 'UNKNOWN'


def status_of(vm_state: str | None) -> str:
    """Return the status for a ``vm_state``."""
    state = vm_state or 'building'
    return _STATUSES.get(state) or state.upper()


def name_of(cell: objects.CellMapping) -> str:
    """Return the name of a cell, or its uuid."""
    return cell.get('name') or cell.uuid


def vm_state_of(status: str) -> str:
    """Return the ``vm_state`` for a status."""
    return _VM_STATES.get(status.upper(), status.lower())


class Server(NamedTuple):
    """A server; a tuple because pages have thousands of them.

    :param status: ``BUILD``, ``ACTIVE``, ``ERROR`` or ``DELETED``, or
        :data:`UNKNOWN` if its cell does not answer
    :param cell: name of its cell; None before the decision, and for users who
        are not administrators
    :param host: None before a host starts the build, and for users who are not
        administrators
    :param attempts: hosts that its build was tried on
    :param reason: reason of ERROR, also before cell0 can be written; else
        empty
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
    user_id: str | None = None
    image_ref: str | None = None
    updated_at: datetime.datetime | None = None

    @classmethod
    def requested(cls, request: objects.BuildRequest) -> Self:
        """Return the record of a server that is being built."""
        instance = request.instance
        return cls(
            uuid=instance.uuid, name=instance.get('display_name'),
            project_id=instance.get('project_id'),
            status=status_of(instance.get('vm_state')),
            task_state=instance.get('task_state'), cell=None,
            host=instance.get('host'),
            availability_zone=instance.get('availability_zone'),
            attempts=instance.get('build_attempts', 0),
            reason=request.get('failure') or '',
            created_at=instance.get('created_at'),
            tags=tuple(sorted(request.tag_names)),
            user_id=instance.get('user_id'),
            image_ref=instance.get('image_ref'),
            updated_at=request.get('updated_at'))

    @classmethod
    def of_row(
        cls, row: Any, cell: str | None, reason: str = '',
        tags: Iterable[str] = (), shows_host: bool = True,
    ) -> Self:
        """Return the record of a server in a cell.

        :param row: ``db.cell.instance_list.SHOWN``, and further columns
        :param cell: name of the cell, or None to hide it
        :param tags: sorted
        """
        # By position: access by name takes ten times as long.
        (uuid, name, project_id, user_id, vm_state, task_state, host, zone,
         image_ref, attempts, created_at, updated_at, deleted, *_) = row
        return cls(
            uuid, name, project_id,
            'DELETED' if deleted else status_of(vm_state), task_state, cell,
            host if shows_host else None, zone, attempts, reason,
            created_at, tuple(tags), user_id, image_ref, updated_at)

    @classmethod
    def unknown(cls, row: Any, cell: str | None) -> Self:
        """Return the record of a server whose cell does not answer.

        :param row: its instance mapping
        """
        return cls(
            uuid=row.uuid, name=None, project_id=row.project_id,
            status=UNKNOWN, task_state=None, cell=cell, host=None,
            availability_zone=None, attempts=0, reason='',
            created_at=row.created_at, user_id=row.user_id)

    def deleted(self) -> Self:
        """Return the record of this server after its deletion."""
        return self._replace(status='DELETED', task_state=None)
