# SPDX-License-Identifier: Apache-2.0
"""The document of a decision: plain data for storage and output.

It has all data that operators need to understand the decision, and no
credentials. Strings of users are cut to a limit.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any

from cellsched import exception
from cellsched import objects
from cellsched.scheduler.explanation import decision_record

VERSION = 1

#: Limits for users' input: characters of a string, values of a hint (and
#: numbered groups), and hints.
_TEXT_MAX = 255
_VALUES_MAX = 20
_HINTS_MAX = 20

#: The most hosts to list of those that a request names.
_HOSTS_MAX = 20

_MORE = '…'


def of(
    decision: decision_record.Decision, request: objects.RequestSpec,
    instances: Sequence[str], request_id: str | None,
    decided_at: datetime.datetime,
) -> dict[str, Any]:
    """Return the document of a decision.

    :param instances: uuids of the instances
    """
    reported = decision.to_dict()
    if decision.way is not None:
        # Reasons contain names of hints and properties from users.
        reported['way']['reasons'] = _texts(decision.way.reasons, _VALUES_MAX)
    return {
        'version': VERSION,
        'decided_at': decided_at.isoformat(timespec='milliseconds') + 'Z',
        'request_id': request_id,
        **reported,
        'request': summary(request, len(instances)),
        'instances': list(instances),
    }


def summary(request: objects.RequestSpec, instances: int) -> dict[str, Any]:
    """Return a summary of the request."""
    flavor, image = request.flavor, request.get('image')
    group = request.get('instance_group')
    found: dict[str, Any] = {
        'project_id': _text(request.get('project_id')),
        'user_id': _text(request.get('user_id')),
        'instances': instances,
        'flavor': _text(flavor.get('name')),
        **_demand(request),
        'image': _text(image.get('id')) if image else None,
        'availability_zone': _text(request.get('availability_zone')),
        'hints': _hints(request.get('scheduler_hints') or {}),
        'group': _text(group.get('uuid')) if group else None,
        'group_policy': _text(group.get('policy')) if group else None,
    }
    for name in ('force_hosts', 'force_nodes', 'ignore_hosts'):
        found[name] = _texts(request.get(name) or (), _HOSTS_MAX)
    target = request.get('requested_destination')
    if target is not None:
        found['destination'] = _destination(target)
    return found


def _demand(request: objects.RequestSpec) -> dict[str, Any]:
    """Return the requested resources, if they are valid."""
    try:
        return {'resources': request.resources(), 'groups': _groups(request)}
    except exception.InvalidField as exc:
        # A scheduler of another package may still accept the request.
        return {'resources': {}, 'groups': [],
                'problem': _text(exc.format_message())}


def _groups(request: objects.RequestSpec) -> list[dict[str, Any]]:
    """Return the first few numbered groups."""
    return [
        {'suffix': group.suffix,
         'resources': dict(group.resources[:_VALUES_MAX]),
         'required': _texts(sorted(group.required), _VALUES_MAX),
         'forbidden': _texts(sorted(group.forbidden), _VALUES_MAX)}
        for group in request.group_demand().groups[:_VALUES_MAX]]


def _destination(target: objects.Destination) -> dict[str, Any]:
    """Return the requested destination without a cell's URLs."""
    cell = target.get('cell')
    return {'host': _text(target.get('host')),
            'node': _text(target.get('node')),
            'cell': _text(cell.get('uuid')) if cell else None}


def _hints(hints: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    names = list(hints)
    kept = {str(_text(name)): _texts(hints[name], _VALUES_MAX)
            for name in names[:_HINTS_MAX]}
    if len(names) > _HINTS_MAX:
        kept[_MORE] = [f'{len(names) - _HINTS_MAX} more']
    return kept


def _texts(values: Sequence[str], most: int) -> list[str]:
    kept = [str(_text(value)) for value in list(values)[:most]]
    if len(values) > most:
        kept.append(f'{_MORE} {len(values) - most} more')
    return kept


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX - 1] + _MORE
