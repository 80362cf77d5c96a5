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

    Which types they have is the business of who made them and who uses them.

    :param open_transport: returns the transport; many a reader needs none
    """

    uuid: str
    name: str
    database: Any
    open_transport: Callable[[], Any]

    @functools.cached_property
    def transport(self) -> Any:
        """The transport; None of a cell without a queue, which is cell0."""
        return self.open_transport()


class RequestContext(context.RequestContext):
    """A request's context.

    ``cell`` is where it is aimed, or None. It never travels: each receiver
    aims anew, by what its own configuration or the cell mappings say.

    ``deadline`` is the time until which somebody waits for what is called, in
    seconds since 1970 by the clock of the API database, or None. It travels
    with one call, and not on to what is called from there.
    """

    deadline: float | None = None

    def __init__(self, *args: Any, cell: CellTarget | None = None,
                 **kwargs: Any) -> None:
        kwargs.setdefault('overwrite', False)
        super().__init__(*args, **kwargs)
        self.cell = cell

    def __copy__(self) -> 'RequestContext':
        # What copies anything takes four times as long.
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def aimed_at(self, cell: CellTarget | None) -> 'RequestContext':
        """Return a new context of the same request, aimed at a cell.

        The original is left as it is, so threads may share it.
        """
        aimed = copy.copy(self)
        aimed.cell = cell
        return aimed

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
    """Return the context of what a service does of its own accord."""
    return RequestContext(is_admin=True)


def member(user_id: str, project_id: str) -> RequestContext:
    """Return the context of a user who is a member of a project."""
    return RequestContext(
        user_id=user_id, project_id=project_id, roles=['member', 'reader'])


def of_owner(instance: Any) -> RequestContext:
    """Return the context of what a service does for a server of a user."""
    return RequestContext(
        is_admin=True, user_id=instance.user_id,
        project_id=instance.project_id)
