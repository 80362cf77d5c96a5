# SPDX-License-Identifier: Apache-2.0
"""Server groups: create, get, list, delete."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import instance_groups
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.objects import requests
from cellsched.validation import json_schema

_WHERE = 'server group'


class ServerGroups(base.Controller):
    """Manages server groups, which place servers together or apart.

    A project sees its own groups, an administrator all groups.

    :param limit_max: the largest number of groups of a listing
    """

    has_uuids = True

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        clock: Clock, limit_max: int,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._clock = clock
        self._limit_max = limit_max
        self._new_uuid = new_uuid

    @base.requires('os_compute_api:os-server-groups:create')
    def create(
        self, context: RequestContext, name: str,
        policy: str | None = None, rules: Mapping[str, Any] | None = None,
    ) -> objects.InstanceGroup:
        """Create a group without members.

        :param policy: ``affinity``, ``anti-affinity``, ``soft-affinity`` or
            ``soft-anti-affinity``; optional with the rule ``spread``
        :param rules: ``max_server_per_host``, only for ``anti-affinity``;
            ``spread``, which is ``cell``, ``az`` or ``host``; and
            ``max_skew``, the largest difference between the members in two
            of these
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        """
        rules = {} if rules is None else rules
        validation.check_text(_WHERE, 'name', name)
        _check_rules(policy, rules)
        group = objects.InstanceGroup(
            uuid=self._new_uuid(), name=name, policy=policy, rules=rules,
            project_id=context.project_id or '', user_id=context.user_id)
        with self._database.writer() as connection:
            instance_groups.create(connection, group, self._clock.now())
            return instance_groups.get(connection, group.uuid)

    @base.requires(
        'os_compute_api:os-server-groups:show', resource_param='uuid')
    def get(self, context: RequestContext, uuid: str) -> objects.InstanceGroup:
        """Return a group, with its members in the order they joined.

        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceGroupNotFound: it does not exist
        """
        return self._get(context, uuid)

    @base.requires('os_compute_api:os-server-groups:index')
    def list_all(
        self, context: RequestContext, limit: int | None = None
    ) -> list[objects.InstanceGroup]:
        """Return groups without their members, the newest first.

        :raises cellsched.exception.InvalidField: the limit is out of range
        """
        limit = self._limit_max if limit is None else limit
        validation.check_count(
            'server group list', 'limit', limit, self._limit_max, least=0)
        with self._database.reader() as connection:
            return instance_groups.list_all(connection, _owner(context), limit)

    @base.requires(
        'os_compute_api:os-server-groups:delete', resource_param='uuid')
    def delete(self, context: RequestContext, uuid: str) -> None:
        """Delete a group; its servers do not change.

        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceGroupNotFound: it does not exist
        """
        validation.check_text(_WHERE, 'id', uuid)
        with self._database.writer() as connection:
            instance_groups.delete(connection, uuid, _owner(context))

    def check_visible(self, context: RequestContext, name: Any) -> None:
        self._get(context, name)

    def _get(
        self, context: RequestContext, uuid: str
    ) -> objects.InstanceGroup:
        validation.check_text(_WHERE, 'id', uuid)
        with self._database.reader() as connection:
            return instance_groups.get(connection, uuid, _owner(context))


def _owner(context: RequestContext) -> str | None:
    """Return the project of the visible groups; None for all."""
    return None if context.is_admin else context.project_id or ''


def _check_rules(policy: Any, rules: Any) -> None:
    json_schema.check(_WHERE, rules, validation.RULES, 'rules')
    if policy is not None or 'spread' not in rules:
        validation.check_choice(_WHERE, 'policy', policy, requests.POLICIES)
    for name, needed, present in (
            ('max_server_per_host', 'the policy anti-affinity',
             policy == 'anti-affinity'),
            ('max_skew', 'the rule spread', 'spread' in rules)):
        if name in rules and not present:
            raise exception.InvalidField(
                where=_WHERE, field=f'rules.{name}',
                problem=f'the rule needs {needed}',
                expected=f'{needed}, or no {name}')
