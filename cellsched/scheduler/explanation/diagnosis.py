# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of NoValidHost: text for users, figures for operators.

Users see counts and short reasons, never the name of a host. A host is counted
once, for the first stage that rejected it, so the counts add up.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
import operator
import re
from typing import Any

from cellsched import exception
from cellsched.hosts import view
from cellsched.scheduler.decision import pipeline

#: The most example hosts for each stage.
_EXAMPLES_MAX = 10

#: The name under which refused claims are counted.
CLAIMS = 'claims'

#: The name under which refusals because of the server group are counted.
GROUP = 'server-group'

_LOST = 'lost its room to another request'
_DENIED = 'was ruled out by another server of the group'
_LEFT = 'was left untried'
_SILENT = 'does not answer'

#: Verbs with an irregular plural.
_PLURALS = {'is': 'are', 'was': 'were', 'has': 'have', 'does': 'do'}

_VERB = re.compile(r'(?P<adverb>((already|also|only|still) )?)(?P<verb>\w+)')


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The numbers of hosts by outcome of a decision.

    :param hosts: number of hosts
    :param rejections: rejections of the pipeline, in order
    :param lost: hosts that passed but whose claim was refused
    :param silent: cells that did not answer in time, so that the data on their
        hosts is old or missing
    :param requested: number of requested instances
    :param placed: number of instances that could be placed
    :param denied: hosts that passed but that concurrent members of the server
        group exclude
    """

    hosts: int
    rejections: Sequence[pipeline.Rejection] = ()
    lost: int = 0
    silent: Sequence[str] = ()
    requested: int = 1
    placed: int = 0
    denied: int = 0

    def with_left_out(
        self, left_out: Sequence[pipeline.Rejection]
    ) -> 'Diagnosis':
        """Return the diagnosis with known hosts that were not evaluated."""
        return dataclasses.replace(
            self, hosts=self.hosts + sum(each.hosts for each in left_out),
            rejections=[*left_out, *self.rejections])

    def text(self, marked: bool = False) -> str:
        """Return one sentence for users.

        :param marked: whether to mark the places of internals
        """
        silent = ''
        if self.silent:
            noun = 'cell' if len(self.silent) == 1 else 'cells'
            silent = (f'; {len(self.silent)} {noun} '
                      f'{_sentence(len(self.silent), _SILENT)}')
        if not self.hosts:
            return f'No compute hosts are known{silent}.'
        room = 'There are not enough hosts available'
        if self.placed:
            room += f', only for {self.placed} of {self.requested} servers'
        return f'{room}: {self._counts(marked)}{silent}.'

    def to_list(self) -> list[dict[str, Any]]:
        """Return the figures as plain data, for ``NoValidHost.rejections``.

        Each has ``by``, ``hosts`` and ``reason``. If the nearest miss is
        known, ``nearest`` has ``hosts``, ``amount`` and ``unit``. Silent cells
        are listed in ``cells``.
        """
        figures = [
            {name: value for name, value in dataclasses.asdict(
                dataclasses.replace(each, rows=None)).items()
             if value is not None} for each in self._all]
        if self.silent:
            figures.append({'by': 'cells', 'hosts': 0, 'reason': _SILENT,
                            'cells': list(self.silent)})
        return figures

    @property
    def _all(self) -> list[pipeline.Rejection]:
        """The rejections of the pipeline and of the claim store."""
        return [*self.rejections, *(
            pipeline.Rejection(by, hosts, reason) for by, hosts, reason in (
                (CLAIMS, self.lost, _LOST), (GROUP, self.denied, _DENIED))
            if hosts)]

    def error(self) -> exception.NoValidHost:
        """Return the error that ends the request."""
        return exception.NoValidHost(
            reason=self.text(marked=True), rejections=self.to_list(),
            placed=self.placed, internals={
                each.by: f' ({each.internals})' for each in self.rejections
                if each.internals})

    def _counts(self, marked: bool) -> str:
        counts = [(each.hosts, each.reason, _nearest(each) + (
            f'%({each.by})s' if marked and each.internals else ''))
            for each in self._all]
        remaining = self.hosts - sum(count for count, _, _ in counts)
        counts.append((remaining, _LEFT, ''))
        value = [(count, _sentence(count, reason) + nearest)
                 for count, reason, nearest in counts if count > 0]
        if self.hosts == 1:
            return f'the only host {value[0][1]}'
        return f'of {self.hosts} hosts ' + ', '.join(
            f'{count} {words}' for count, words in value)


def examples(
    hosts: view.Hosts, rejections: Iterable[pipeline.Rejection],
    lost: Sequence[int] = (), denied: Sequence[int] = (),
) -> dict[str, list[str]]:
    """Return a few names of rejected hosts for each stage.

    If a stage has several reasons, each reason has examples, too.

    :param lost: rows of hosts whose claims were refused
    :param denied: rows of hosts that the server group excludes
    """
    rows: dict[str, list[int]] = {}
    for by, of_stage in itertools.groupby(
            rejections, operator.attrgetter('by')):
        reasons = {each.reason: _some(each.rows) for each in of_stage}
        rows[by] = [row for some in reasons.values() for row in some]
        if len(reasons) > 1:
            rows |= reasons
    rows[CLAIMS], rows[GROUP] = [*lost], [*denied]
    names = hosts.whole['host']
    return {name: list(dict.fromkeys(names[some[:_EXAMPLES_MAX]]))
            for name, some in rows.items() if some}


def _some(rows: view.Column | None) -> list[int]:
    # A stage may have rejected all hosts; convert only a few rows.
    return [] if rows is None else rows[:_EXAMPLES_MAX].tolist()


def plural(reason: str) -> str:
    """Return a reason for one host in the plural.

    A reason begins with a verb, as the contract of a filter demands, or with
    an adverb like "already" before the verb.
    """
    found = _VERB.match(reason)
    if found is None:
        return reason
    verb = found['verb']
    verb = _PLURALS.get(verb, verb.removesuffix('s'))
    rest = re.sub(r'\bits\b', 'their', reason[found.end():])
    return f'{found["adverb"]}{verb}{rest}'


def _sentence(count: int, reason: str) -> str:
    return reason if count == 1 else plural(reason)


def _nearest(rejection: pipeline.Rejection) -> str:
    nearest = rejection.nearest
    if nearest is None:
        return ''
    by = f'by {nearest.amount:.10g} {nearest.unit}'
    if nearest.hosts == rejection.hosts:
        return f' ({by})'
    which = f'nearest {nearest.hosts}' if nearest.hosts > 1 else 'nearest'
    return f' (the {which} {by})'
