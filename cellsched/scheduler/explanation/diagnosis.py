# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of NoValidHost: text for users, figures for operators.

Users read counts and short negatives, never the name of a host. A host is
counted once, at the first thing that it failed at, so the counts add up.
"""

from collections.abc import Sequence
import dataclasses
import re
from typing import Any

from cellsched import exception
from cellsched.hosts import view
from cellsched.scheduler.decision import candidates

#: Hosts that are named for each thing that rejected some.
_EXAMPLES_MAX = 10

#: Under which hosts are counted whose claims were refused.
CLAIMS = 'claims'

#: Under which those are that were refused for other members of the group.
GROUP = 'server-group'

_LOST = 'lost its room to another request'
_DENIED = 'was ruled out by another server of the group'
_LEFT = 'was left untried'
_SILENT = 'does not answer'

#: Verbs whose plural is not the singular without its s.
_PLURALS = {'is': 'are', 'was': 'were', 'has': 'have', 'does': 'do'}

_VERB = re.compile(
    r'(?P<adverb>((already|also|only|still) )?)(?P<verb>\w+)')


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The numbers of hosts that a request was decided over, by outcome.

    :param hosts: how many there were
    :param rejections: what the pipeline rejected, in its order
    :param lost: hosts that passed, and whose claim was refused
    :param silent: cells that were not heard in time, so that what is known
        of their hosts is old or nothing
    :param wanted: instances that were asked for
    :param placed: instances that there was a place for
    :param denied: hosts that passed, and that other members of the server
        group, who came just before, keep the request from
    """

    hosts: int
    rejections: Sequence[candidates.Rejection] = ()
    lost: int = 0
    silent: Sequence[str] = ()
    wanted: int = 1
    placed: int = 0
    denied: int = 0

    def text(self) -> str:
        """Return one sentence for users."""
        silent = ''
        if self.silent:
            noun = 'cell' if len(self.silent) == 1 else 'cells'
            silent = (f'; {len(self.silent)} {noun} '
                      f'{_said(len(self.silent), _SILENT)}')
        if not self.hosts:
            return f'No compute hosts are known{silent}.'
        room = 'There are not enough hosts available'
        if self.placed:
            room += f', only for {self.placed} of {self.wanted} servers'
        return f'{room}: {self._counts()}{silent}.'

    def to_list(self) -> list[dict[str, Any]]:
        """Return the figures as plain data, for ``NoValidHost.rejections``.

        Each has ``by``, ``hosts`` and ``reason``. Where the nearest miss is
        known, ``nearest`` has ``hosts``, ``amount`` and ``unit``. Silent cells
        are listed in ``cells``.
        """
        figures = []
        for rejection in self.rejections:
            figure = dataclasses.asdict(rejection)
            if rejection.nearest is None:
                del figure['nearest']
            figures.append(figure)
        if self.lost:
            figures.append({'by': CLAIMS, 'hosts': self.lost,
                            'reason': _LOST})
        if self.denied:
            figures.append({'by': GROUP, 'hosts': self.denied,
                            'reason': _DENIED})
        if self.silent:
            figures.append({'by': 'cells', 'hosts': 0, 'reason': _SILENT,
                            'cells': list(self.silent)})
        return figures

    def error(self) -> exception.NoValidHost:
        """Return the error that ends the request."""
        return exception.NoValidHost(
            reason=self.text(), rejections=self.to_list(),
            placed=self.placed)

    def _counts(self) -> str:
        counts = [(each.hosts, each.reason, _nearest(each))
                  for each in self.rejections]
        counts.append((self.lost, _LOST, ''))
        counts.append((self.denied, _DENIED, ''))
        left = self.hosts - sum(count for count, _, _ in counts)
        counts.append((left, _LEFT, ''))
        said = [(count, _said(count, reason) + nearest)
                for count, reason, nearest in counts if count > 0]
        if self.hosts == 1:
            return f'the only host {said[0][1]}'
        return f'of {self.hosts} hosts ' + ', '.join(
            f'{count} {words}' for count, words in said)


def examples(
    hosts: view.Hosts, found: candidates.Candidates | None,
    lost: Sequence[int] = (), denied: Sequence[int] = (),
) -> dict[str, list[str]]:
    """Return names of hosts that were rejected, a few for each thing.

    :param found: the candidates that there were in the end, if any
    :param lost: rows of those whose claims were refused
    :param denied: rows of those that the server group is kept from
    """
    rows: dict[str, Sequence[int]] = {}
    elsewhere = frozenset(lost)
    if found is not None:
        for stage in found.stages:
            # There may be as many as there are hosts.
            some = found.rejected(stage)[:_EXAMPLES_MAX + len(elsewhere)]
            rows[stage.name] = [
                row for row in some.tolist() if row not in elsewhere]
    rows[CLAIMS], rows[GROUP] = lost, denied
    names = hosts.whole['host']
    return {name: list(dict.fromkeys(names[list(some[:_EXAMPLES_MAX])]))
            for name, some in rows.items() if some}


def plural(reason: str) -> str:
    """Return what is said of one host as it is said of several.

    A reason begins with its verb, as the contract of a filter asks, or with
    an adverb like "already" before it.
    """
    found = _VERB.match(reason)
    if found is None:
        return reason
    verb = found['verb']
    verb = _PLURALS.get(verb, verb.removesuffix('s'))
    rest = re.sub(r'\bits\b', 'their', reason[found.end():])
    return f'{found["adverb"]}{verb}{rest}'


def _said(count: int, reason: str) -> str:
    return reason if count == 1 else plural(reason)


def _nearest(rejection: candidates.Rejection) -> str:
    nearest = rejection.nearest
    if nearest is None:
        return ''
    by = f'by {nearest.amount:.10g} {nearest.unit}'
    if nearest.hosts == rejection.hosts:
        return f' ({by})'
    which = f'nearest {nearest.hosts}' if nearest.hosts > 1 else 'nearest'
    return f' (the {which} {by})'
