# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, in a form that can be kept and told."""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.filters import base
from cellsched.hosts import view
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision.candidates import Candidates
from cellsched.scheduler.decision.candidates import FilterStep
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision.ranking import WeightShare


@dataclasses.dataclass
class Count:
    """The numbers of hosts that came to a stage and that passed it."""

    by: str
    entered: int
    left: int
    reason: str


@dataclasses.dataclass
class Place:
    """A host with its weight and what it is made of.

    :param providers: what its providers give, where others than the host
        itself give something; see :func:`providers`
    """

    host: str
    node: str
    cell: str
    weight: float
    shares: Sequence[WeightShare] = ()
    providers: Sequence[dict[str, Any]] = ()


@dataclasses.dataclass
class Pick:
    """The choice made for one instance.

    :param candidates: how many hosts there were to choose from
    :param second: the host that would have been chosen without the first
    """

    instance: str
    candidates: int
    first: Place
    second: Place | None = None


@dataclasses.dataclass
class Way:
    """The way that a request went, of several that there are.

    :param name: what it was decided on
    :param reasons: what of the request has it go that way; none where it is
        the usual one
    """

    name: str
    reasons: Sequence[str] = ()


@dataclasses.dataclass
class Decision:
    """A decision on one request.

    :param hosts: how many hosts there were
    :param stages: what the hosts were asked
    :param picks: what was chosen, by instance; only the first one has the
        shares of its weights
    :param reason: why there was no host, in words for users
    :param rejections: why, in figures
    :param examples: where there was no host, names of some that were
        rejected, by what rejected them; not for users
    :param way: the way that it went, if there are several
    """

    hosts: int
    stages: Sequence[Count]
    picks: Sequence[Pick]
    reason: str | None = None
    rejections: Sequence[dict[str, Any]] = ()
    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    way: Way | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        # By hand, as dataclasses' own way costs more than the decision did.
        return {
            **vars(self),
            'stages': [dict(vars(stage)) for stage in self.stages],
            'picks': [{**vars(pick), 'first': _told(pick.first),
                       'second': _told(pick.second)} for pick in self.picks],
            'rejections': list(self.rejections),
            'examples': dict(self.examples),
            'way': None if self.way is None else {
                'name': self.way.name, 'reasons': list(self.way.reasons)}}


def _told(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {
        **vars(place),
        'shares': [dict(vars(share)) for share in place.shares],
        'providers': list(place.providers)}


def of(
    hosts: view.Hosts, found: Candidates | None,
    picks: Sequence[Pick],
) -> Decision:
    """Return what was decided, to be told later.

    :param found: the candidates that there were in the end, if there were
        any; none of them is left where all were rejected
    """
    # Candidates that are empty have rejected something all the same.
    steps = () if found is None else found.filtered.steps
    stages = () if found is None else found.stages
    return Decision(len(hosts), counts(len(hosts), stages, steps), picks)


def pick(
    hosts: view.Hosts, ranking: Ranking, row: int, instance: str,
    detailed: bool,
) -> Pick:
    """Return what is to be told of a choice."""
    other = ranking.second(row) if detailed else None
    return Pick(
        instance, len(ranking), _place(hosts, ranking, row, detailed),
        None if other is None else _place(hosts, ranking, other, detailed))


def providers(
    hosts: view.Hosts, row: int, allocated: allocation.ProviderAllocations
) -> list[dict[str, Any]]:
    """Return what the providers of a host give, to be told.

    Each has ``group``, the suffix, which is empty for what has no number;
    ``provider``, a uuid; ``name``, or None where it is not known here, as of
    what is below a host; and ``resources``. What has no number comes first,
    the host's own before others'. Nothing is told where the host itself gives
    all.
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
    """Return what each stage left, in order.

    Where it was asked several times, what it rejected is added up.

    :param hosts: how many hosts came to the first stage
    """
    rejected: dict[base.Filter, int] = {}
    for step in steps:
        rejected[step.stage] = (
            rejected.get(step.stage, 0) + step.entered - step.left)
    found = []
    for stage in stages:
        left = hosts - rejected.get(stage, 0)
        found.append(Count(stage.name, hosts, left, stage.reason))
        hosts = left
    return found


def _place(
    hosts: view.Hosts, ranking: Ranking, row: int, detailed: bool
) -> Place:
    host, nodename, cell = hosts.values_at(row, 'host', 'nodename', 'cell')
    return Place(host, nodename, cell, *ranking.weighed(row, detailed))
