# SPDX-License-Identifier: Apache-2.0
"""The request context: user, request id, and the targeted cell."""

from collections.abc import Callable
import copy
import dataclasses
import functools
from typing import Any

from oslo_context import context


@dataclasses.dataclass(frozen=True)
class CellTarget:
    """The ways into one cell: its database and its message transport.

    The objects' types are those of :mod:`cellsched.cells.target`.

    :param open_transport: returns the transport; reading needs none
    """

    uuid: str
    name: str
    database: Any
    open_transport: Callable[[], Any]

    @functools.cached_property
    def transport(self) -> Any:
        """The transport; None for cell0, which has no queue."""
        return self.open_transport()


class RequestContext(context.RequestContext):
    """A request's context.

    ``cell`` is the targeted cell; None except in the contexts of
    :meth:`for_cell`. It is not sent in messages: each receiver targets a cell
    by its own configuration or the cell mappings.

    ``deadline`` is the time until which the caller waits, in seconds since
    1970 by the clock of the API database, or None. It is sent with one call,
    and not with the calls that its receiver makes. The receiver's context has
    it as ``answer_by``.
    """

    # Functions that take the context of a cell need no check of this type.
    cell: CellTarget = None  # type: ignore[assignment]
    deadline: float | None = None
    answer_by: float | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault('overwrite', False)
        super().__init__(*args, **kwargs)

    def __copy__(self) -> 'RequestContext':
        # copy.copy without this method takes four times as long.
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def for_cell(self, cell: CellTarget) -> 'RequestContext':
        """Return a new context of the same request that targets a cell.

        The original does not change, so threads may share it.
        """
        cell_context = copy.copy(self)
        cell_context.cell = cell
        return cell_context

    def until(self, deadline: float) -> 'RequestContext':
        """Return a new context of the same request, with a deadline."""
        bound = copy.copy(self)
        bound.deadline = deadline
        return bound

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = super().to_dict()
        if self.deadline is not None:
            values['deadline'] = self.deadline
        return values


def admin() -> RequestContext:
    """Return the context of a task that no user requested."""
    return RequestContext(is_admin=True)


def member(user_id: str, project_id: str) -> RequestContext:
    """Return the context of a user who is a member of a project."""
    return RequestContext(
        user_id=user_id, project_id=project_id, roles=['member', 'reader'])


def of_owner(instance: Any) -> RequestContext:
    """Return the context of a task for a server of a user."""
    return RequestContext(
        is_admin=True, user_id=instance.user_id,
        project_id=instance.project_id)
