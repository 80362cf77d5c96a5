# SPDX-License-Identifier: Apache-2.0
"""Authorization of calls of the API."""

import abc

from cellsched.context import RequestContext


class Authorizer(abc.ABC):
    """Decides whether a user may call a method of the API."""

    @abc.abstractmethod
    def authorize(
        self, context: RequestContext, rule: str,
        project_id: str | None = None,
    ) -> RequestContext:
        """Check a rule; return the context to continue with.

        The authorizer decides whether the user is an administrator, so the
        result may be a copy of the context with another ``is_admin``. Must
        not block on the network unless a rule of the operator requires it.
        May be called by several threads.

        :param rule: a name that :mod:`cellsched.policies` lists
        :param project_id: the project of the resource; by default that of the
            context, and the call then finds only resources of that project
        :raises cellsched.exception.PolicyNotAuthorized: the rule denies the
            call
        """


class LocalOperator(Authorizer):
    """Allows every call, for an operator with access to the databases.

    The commands use it: to run them, an operator needs the configuration of
    the services, with its passwords.
    """

    def authorize(
        self, context: RequestContext, rule: str,
        project_id: str | None = None,
    ) -> RequestContext:
        return context
