# SPDX-License-Identifier: Apache-2.0
"""The instances of a request as members of its server group."""

from collections.abc import Sequence
import copy

from cellsched import objects

#: The hint that has the instances of a request spread over failure domains.
_SPREAD = 'spread'


def with_members(
    request: objects.RequestSpec, uuids: Sequence[str]
) -> objects.RequestSpec:
    """Return a request whose own instances are members of its server group.

    Instances that are to be spread are a group for the time of the request,
    where they are in none.
    """
    group = request.get('instance_group')
    if group is None and request.hint(_SPREAD):
        group = objects.InstanceGroup(
            policy=None, members=[], hosts=[], rules={})
    if group is None:
        return request
    members = dict.fromkeys([*(group.get('members') or ()), *uuids])
    # What the caller holds stays as it is; a deep copy would cost more than
    # the decision.
    request, group = copy.copy(request), copy.copy(group)
    group.members = list(members)
    request.instance_group = group
    return request
