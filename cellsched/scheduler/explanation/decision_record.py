# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, in a form for storage and output."""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.filters import base
from cellsched.hosts import view
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
    """

    hosts: int
    stages: Sequence[Count]
    picks: Sequence[Pick]
    reason: str | None = None
    rejections: Sequence[dict[str, Any]] = ()
    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    way: Way | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        # dataclasses.asdict() takes longer than the decision.
        return {
            **vars(self),
            'stages': [dict(vars(stage)) for stage in self.stages],
            'picks': [{**vars(pick), 'first': _as_dict(pick.first),
                       'second': _as_dict(pick.second)}
                      for pick in self.picks],
            'rejections': list(self.rejections),
            'examples': dict(self.examples),
            'way': None if self.way is None else {
                'name': self.way.name, 'reasons': list(self.way.reasons)}}


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
