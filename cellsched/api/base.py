# SPDX-License-Identifier: Apache-2.0
"""Base of the controllers of the API, and the check of their rules."""

from collections.abc import Callable
import functools
import inspect
from typing import Any
from typing import ClassVar
from typing import Concatenate
from typing import ParamSpec
from typing import TypeVar

from cellsched.api import authorization
from cellsched.api import validation
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.listing import server
from cellsched.listing.servers import ServerListing
from cellsched import objects
from cellsched.validation.uuids import canonical

_F = TypeVar('_F', bound='Controller')
_P = ParamSpec('_P')
_R = TypeVar('_R')

_Call = Callable[Concatenate[_F, RequestContext, _P], _R]


class Controller:
    """A part of the API; :func:`requires` names the rule of each method."""

    #: Whether ids of resources are uuids, which users write in several forms.
    has_uuids: ClassVar[bool] = False

    def __init__(self, authorizer: authorization.Authorizer) -> None:
        self._authorizer = authorizer

    def check_visible(self, context: RequestContext, name: Any) -> None:
        """Make sure that the user may know that a resource exists.

        :raises cellsched.exception.NotFound: it does not exist, or belongs to
            another project
        """

    def _authorize(self, context: RequestContext, rule: str) -> RequestContext:
        """Check one more rule; return the context to continue with."""
        return self._authorizer.authorize(context, rule)


class ServerController(Controller):
    """A part of the API with methods that take the uuid of a server."""

    has_uuids = True

    def __init__(
        self, authorizer: authorization.Authorizer,
        reader: ServerListing,
    ) -> None:
        super().__init__(authorizer)
        self._reader = reader

    def check_visible(self, context: RequestContext, name: Any) -> None:
        validation.check_text('server', 'id', name)
        self._reader.get(context, name, to_delete=True)

    def _read(
        self, context: RequestContext, uuid: str
    ) -> tuple[server.Server, objects.CellMapping | None]:
        """Return a server and its cell, without fields for administrators."""
        validation.check_text('server', 'id', uuid)
        found, cell = self._reader.get(context, uuid)
        if not context.is_admin:
            found = found._replace(host=None, cell=None)
        return found, cell


def requires(
    rule: str, resource_param: str | None = None, of_project: bool = False
) -> Callable[[_Call[_F, _P, _R]], _Call[_F, _P, _R]]:
    """Return a decorator that checks a rule before a method is called.

    :param resource_param: the parameter with the id of a resource. If the
        rule denies the call, and the user may not see the resource, the error
        says that the resource does not exist. The method gets a uuid in the
        form in which it is stored
    :param of_project: whether the resource is a project
    """
    def decorate(method: _Call[_F, _P, _R]) -> _Call[_F, _P, _R]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def authorized(
            self: _F, context: RequestContext,
            *args: _P.args, **kwargs: _P.kwargs,
        ) -> _R:
            name = None
            positional: Any = args
            keywords = dict[str, Any](kwargs)
            if resource_param is not None:
                bound = signature.bind(self, context, *args, **kwargs)
                if resource_param in bound.arguments:
                    name = bound.arguments[resource_param]
                    if self.has_uuids:
                        name = canonical(name) or name
                    bound.arguments[resource_param] = name
                _, _, *positional = bound.args
                keywords = bound.kwargs
            try:
                allowed = self._authorizer.authorize(
                    context, rule, name if of_project else None)
            except exception.PolicyNotAuthorized:
                # Most calls are allowed, so the resource is read only now.
                if name is not None:
                    self.check_visible(context, name)
                raise
            return method(self, allowed, *positional, **keywords)

        authorized.rule = rule  # type: ignore[attr-defined]
        authorized.resource_param = (  # type: ignore[attr-defined]
            resource_param)
        return authorized

    return decorate
