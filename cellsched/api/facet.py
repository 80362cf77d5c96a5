# SPDX-License-Identifier: Apache-2.0
"""Parts of the API, each call of which names the rule that it asks."""

from collections.abc import Callable
import functools
import inspect
from typing import Any
from typing import Concatenate
from typing import ParamSpec
from typing import TYPE_CHECKING
from typing import TypeVar

from cellsched.api import authorization
from cellsched.api import validation
from cellsched.context import RequestContext
from cellsched import exception
from cellsched import objects

if TYPE_CHECKING:
    # Parts that have no servers read none.
    from cellsched.listing import server
    from cellsched.listing import servers as listing

_F = TypeVar('_F', bound='Facet')
_P = ParamSpec('_P')
_R = TypeVar('_R')

_Call = Callable[Concatenate[_F, RequestContext, _P], _R]


class Facet:
    """A part of the API, whose calls name rules; see :func:`requires`."""

    def __init__(self, authorizer: authorization.Authorizer) -> None:
        self._authorizer = authorizer

    def check_visible(
        self, context: RequestContext, name: Any
    ) -> None:
        """Make sure that what a call names is there for who calls.

        :raises cellsched.exception.NotFound: it is not, or it is another
            project's
        """

    def _authorize(
        self, context: RequestContext, rule: str
    ) -> RequestContext:
        """Return the context to go on with, where one more rule allows it."""
        return self._authorizer.authorize(context, rule)


class ServerFacet(Facet):
    """A part of the API whose calls name servers."""

    def __init__(
        self, authorizer: authorization.Authorizer,
        reader: 'listing.ServerListing',
    ) -> None:
        super().__init__(authorizer)
        self._reader = reader

    def check_visible(
        self, context: RequestContext, name: Any
    ) -> None:
        validation.check_text('server', 'id', name)
        self._reader.get(context, name, to_delete=True)

    def _read(
        self, context: RequestContext, uuid: str
    ) -> 'tuple[server.Server, objects.CellMapping | None]':
        """Return a server as who asks may see it, and its cell."""
        validation.check_text('server', 'id', uuid)
        found, cell = self._reader.get(context, uuid)
        if not context.is_admin:
            found = found._replace(host=None)
        return found, cell


def requires(
    rule: str, names: str | None = None, of_project: bool = False
) -> Callable[[_Call[_F, _P, _R]], _Call[_F, _P, _R]]:
    """Return a decorator: who calls this method of a facet needs a rule.

    :param names: the parameter that names something of a project. Who may
        not call, and does not see that, is told that it is not there, and
        not that there is a rule
    :param of_project: whether what it names is the project itself
    """
    def decorate(method: _Call[_F, _P, _R]) -> _Call[_F, _P, _R]:
        signature = inspect.signature(method)

        def named(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            return given.get(names) if names else None

        @functools.wraps(method)
        def authorized(
            self: _F, context: RequestContext,
            *args: _P.args, **kwargs: _P.kwargs,
        ) -> _R:
            project_id = (named(self, context, *args, **kwargs)
                          if of_project else None)
            try:
                allowed = self._authorizer.authorize(
                    context, rule, project_id)
            except exception.PolicyNotAuthorized:
                # It is looked for only now, as most calls are allowed.
                name = named(self, context, *args, **kwargs)
                if name is not None:
                    self.check_visible(context, name)
                raise
            return method(self, allowed, *args, **kwargs)

        authorized.rule = rule  # type: ignore[attr-defined]
        authorized.names = names  # type: ignore[attr-defined]
        return authorized

    return decorate
