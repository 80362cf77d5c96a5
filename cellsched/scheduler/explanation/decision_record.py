# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, and its document for storage and output.

The document is plain data. It has all data that operators need to understand
the decision, and no credentials. Strings of users are cut to a limit.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.pipeline import FilterStep
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision.ranking import WeightShare


@dataclasses.dataclass
class Count:
    """The numbers of hosts that reached a stage and that passed it."""

    by: str
    entered: int
    left: int
    reason: str


@dataclasses.dataclass
class Place:
    """A host with its weight and the shares of the weight.

    :param providers: the parts of its providers, if other providers than the
        host serve any; see :func:`providers`
    """

    host: str
    node: str
    cell: str
    weight: float
    shares: Sequence[WeightShare] = ()
    providers: Sequence[dict[str, Any]] = ()


@dataclasses.dataclass
class Pick:
    """The host selected for one instance.

    :param candidates: number of candidates
    :param second: the host that would have been selected without the first
    """

    instance: str
    candidates: int
    first: Place
    second: Place | None = None


@dataclasses.dataclass
class Way:
    """The decision path of a request, where several exist.

    :param name: name of the path
    :param reasons: why the request took this path; empty for the default path
    """

    name: str
    reasons: Sequence[str] = ()


@dataclasses.dataclass
class Decision:
    """A decision on one request.

    :param hosts: number of hosts
    :param stages: number of hosts before and after each stage
    :param picks: the selected hosts by instance; only the first has the
        shares of its weights
    :param reason: why no host was found, for users
    :param rejections: the same in figures
    :param examples: names of some rejected hosts by stage, if no host was
        found; not for users
    :param way: the decision path, if there are several
    :param slow: kind, name and seconds of each slow plug-in of a plan; not
        part of the record
    """

    hosts: int
    stages: Sequence[Count]
    picks: Sequence[Pick]
    reason: str | None = None
    rejections: Sequence[dict[str, Any]] = ()
    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    way: Way | None = None
    slow: Sequence[tuple[str, str, float]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        # dataclasses.asdict() takes longer than the decision.
        record = {
            **vars(self),
            'stages': [dict(vars(stage)) for stage in self.stages],
            'picks': [{**vars(pick), 'first': _as_dict(pick.first),
                       'second': _as_dict(pick.second)}
                      for pick in self.picks],
            'rejections': list(self.rejections),
            'examples': dict(self.examples),
            'way': None if self.way is None else {
                'name': self.way.name, 'reasons': list(self.way.reasons)}}
        del record['slow']
        return record


def _as_dict(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {
        **vars(place),
        'shares': [dict(vars(share)) for share in place.shares],
        'providers': list(place.providers)}


def of(
    hosts: view.Hosts, found: Candidates | None,
    picks: Sequence[Pick],
) -> Decision:
    """Return the record of a decision.

    :param found: the final candidates, which are empty if all hosts were
        rejected; None without a pipeline run
    """
    # Compare with None: empty candidates still have rejections.
    steps = () if found is None else found.filtered.steps
    stages = () if found is None else found.stages
    return Decision(len(hosts), counts(len(hosts), stages, steps), picks)


def pick(
    hosts: view.Hosts, ranking: Ranking, row: int, instance: str,
    detailed: bool,
) -> Pick:
    """Return the record of one selected host."""
    other = ranking.second(row) if detailed else None
    return Pick(
        instance, len(ranking), _place(hosts, ranking, row, detailed),
        None if other is None else _place(hosts, ranking, other, detailed))


def providers(
    hosts: view.Hosts, row: int, allocated: allocation.ProviderAllocations
) -> list[dict[str, Any]]:
    """Return the parts of an allocation by provider, as plain data.

    Each has ``group``, the suffix, which is empty for unnumbered amounts;
    ``provider``, a uuid; ``name``, or None for a child provider, whose name is
    unknown here; and ``resources``. Unnumbered amounts come first, with the
    host before other providers. The list is empty if the host serves all.
    """
    root, nodename = hosts.values_at(row, 'uuid', 'nodename')
    found: dict[tuple[str, str], dict[str, int]] = {}
    for part in allocated.parts:
        found.setdefault((part.suffix, part.provider), {}).update(
            part.resources)
    if {*found} <= {('', root)}:
        return []
    names = {root: nodename, **{
        uuid: each.name for uuid, each in hosts.sharing.items()}}
    return [
        {'group': suffix, 'provider': uuid, 'name': names.get(uuid),
         'resources': found[suffix, uuid]} for suffix, uuid in sorted(
            found, key=lambda key: (key[0] != '', key[1] != root))]


def counts(
    hosts: int, stages: Sequence[base.Filter],
    steps: Iterable[FilterStep],
) -> list[Count]:
    """Return the number of hosts before and after each stage, in order.

    The rejections of a stage that ran several times are added.

    :param hosts: number of hosts that reached the first stage
    """
    rejected: dict[base.Filter, int] = {}
    for step in steps:
        rejected[step.stage] = (
            rejected.get(step.stage, 0) + step.entered - step.left)
    found = []
    for stage in stages:
        remaining = hosts - rejected.get(stage, 0)
        found.append(Count(stage.name, hosts, remaining, stage.reason))
        hosts = remaining
    return found


def _place(
    hosts: view.Hosts, ranking: Ranking, row: int, detailed: bool
) -> Place:
    host, nodename, cell = hosts.values_at(row, 'host', 'nodename', 'cell')
    return Place(host, nodename, cell, *ranking.weighed(row, detailed))


#: The version of the document.
VERSION = 1

#: Limits for users' input: characters of a string, values of a hint (and
#: numbered groups), and hints.
_TEXT_MAX = 255
_VALUES_MAX = 20
_HINTS_MAX = 20

#: The most hosts to list of those that a request names.
_HOSTS_MAX = 20

_MORE = '…'


def document_of(
    decision: Decision, request: objects.RequestSpec,
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
