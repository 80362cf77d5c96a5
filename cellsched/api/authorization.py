# SPDX-License-Identifier: Apache-2.0
"""Authorization of calls of the API."""

import abc

from cellsched.context import RequestContext


class Authorizer(abc.ABC):
    """Says who may call what."""

    @abc.abstractmethod
    def authorize(
        self, context: RequestContext, rule: str,
        project_id: str | None = None,
    ) -> RequestContext:
        """Return the context to go on with, where a rule allows the call.

        It may be another one than was given, of the same request: whether
        its user is an administrator is said by the authorizer alone, and
        ``is_admin`` is set by then. Must not block on the network unless the
        operator's rules ask for that. May be called by several threads.

        :param rule: the name of one that :mod:`cellsched.policies` lists
        :param project_id: whose it is that the call is about; by default the
            project of the context, and what is not of that project is then
            not found by the call
        :raises cellsched.exception.PolicyNotAuthorized: the rule does not
            allow it
        """


class LocalOperator(Authorizer):
    """Allows everything to whoever has the passwords of the databases.

    That is who runs commands where the services' configuration is.
    """

    def authorize(
        self, context: RequestContext, rule: str,
        project_id: str | None = None,
    ) -> RequestContext:
        return context
