# SPDX-License-Identifier: Apache-2.0
"""Results that later decisions repair: verdicts, scores and weights.

Hosts seldom change between two decisions: only those that took a server or
reported since. The results are kept with the columns that they were read from.
A result has a log of the rows in which it changed, so that a result made of it
is repaired in these rows only:

* the columns: verdicts of each filter, and scores of each weigher;
* the verdicts: the hosts that pass all filters of a request;
* the scores: the sum of the weights;
* both: the greatest weight in each block of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import Any
import weakref

import numpy as np

from cellsched.filters import base
from cellsched.hosts import snapshot
from cellsched.hosts.snapshot import ChangeLog
from cellsched.hosts import view
from cellsched.scheduler.decision.ranking import add_up
from cellsched.scheduler.decision.ranking import CHUNK
from cellsched.scheduler.decision.ranking import WeightPart
from cellsched.weighers.base import Weigher

#: With fewer hosts, to ask all of them takes less time than to find out which
#: ones changed.
LARGE = 30_000

#: The results of each kind that are kept for one set of columns.
_MASKS_MAX, _PASSED_MAX, _SUMS_MAX = 64, 16, 4

#: If more than one host in this many changed, all hosts are asked again.
_FEW_CHANGED = 4

#: Asks a plug-in; see ``PluginCalls.mask`` and ``PluginCalls.scores``.
Ask = Callable[[view.Hosts], view.Column | None]


class KeptMask:
    """The verdicts of a filter on all hosts.

    :ivar mask: mask of the hosts that pass; None for all
    :ivar log: the rows whose verdicts changed
    """

    def __init__(
        self, log: ChangeLog, hosts: view.Hosts, ask: Ask,
        valid_until: Callable[[view.Hosts], float] | None,
    ) -> None:
        answer = ask(hosts)
        # A column changes when the hosts do.
        self.mask = None if answer is None or answer.all() else (
            answer if answer.flags.writeable else answer.copy())
        self.log = ChangeLog()
        self._count = len(hosts)
        self._since = hosts.now
        self._until = valid_until(hosts) if valid_until else math.inf
        self._at = log.end

    def repair(
        self, log: ChangeLog, hosts: view.Hosts, ask: Ask,
        valid_until: Callable[[view.Hosts], float] | None,
    ) -> bool:
        """Update the verdicts; return False if it is better to ask again."""
        # 1. Verdicts that depend on the time hold until the first of them
        #    changes; the clock can also go back.
        if not self._since <= hosts.now < self._until:
            return False
        if self._at == log.end:
            return True
        # 2. Ask about the changed rows. If the log does not reach back, or if
        #    they are many, it is cheaper to ask about all hosts.
        rows = _changed(log, self._at, hosts)
        if rows is None:
            return False
        self._at = log.end
        if len(rows):
            some = hosts.at(rows)
            self._set(rows, ask(some))
            if valid_until is not None:
                self._until = min(self._until, valid_until(some))
        return True

    def _set(self, rows: view.Column, passed: view.Column | None) -> None:
        if self.mask is None:
            if passed is None or passed.all():
                return
            self.mask = np.ones(self._count, dtype=bool)
        after = np.ones(len(rows), dtype=bool) if passed is None else passed
        differs = self.mask[rows] != after
        if differs.any():
            self.mask[rows] = after
            self.log.add(rows[differs])


def mask(
    stage: base.Filter, key: Hashable, hosts: view.Hosts, ask: Ask,
    valid_until: Callable[[view.Hosts], float] | None,
) -> KeptMask:
    """Return the current verdicts of a filter on all hosts.

    :param key: what the verdicts depend on besides the columns
    :param valid_until: returns the time at which a verdict on hosts changes
    """
    columns = hosts.columns
    log = (columns.reports if stage.run_filter_once_per_request
           else columns.log)
    masks = columns.kept.setdefault('masks', {})
    found: KeptMask | None = masks.pop((stage, key), None)
    if found is None or not found.repair(log, hosts, ask, valid_until):
        found = KeptMask(log, hosts, ask, valid_until)
    _keep(masks, (stage, key), found, _MASKS_MAX)
    return found


#: The hosts with the best scores that are known, and the most of them.
_LEADERS, _LEADERS_MAX = 512, 4096


class Leaders:
    """The hosts with the greatest scores, best first.

    :param sign: -1 for the least scores
    """

    def __init__(self, values: view.Column, sign: int) -> None:
        self._sign = sign
        signed = np.multiply(values, float(sign))
        rows = np.arange(len(signed))
        if len(rows) > _LEADERS:
            # At least one host in each of enough blocks has this much.
            starts = np.arange(0, len(rows), -(-len(rows) // (4 * _LEADERS)))
            most = np.maximum.reduceat(signed, starts)
            number = min(_LEADERS, len(most))
            least = np.partition(most, -number)[-number]
            rows = np.flatnonzero(signed >= least)
            if len(rows) > _LEADERS_MAX:
                rows = _fewer(rows, signed[rows], least)
        self._bound = -math.inf if len(rows) == len(signed) else float(
            signed[rows].min())
        self._order(rows, signed[rows])

    def _order(self, rows: view.Column, signed: view.Column) -> None:
        order = np.argsort(-signed, kind='stable')
        self._rows, self._signed = rows[order], signed[order]

    def repair(self, rows: view.Column, values: view.Column) -> bool:
        """Update the scores of some rows; return False if few are left."""
        signed = np.multiply(values, float(self._sign))
        stay = (self._rows[:, None] != rows).all(axis=1) if (
            len(rows) < 4) else np.isin(self._rows, rows, invert=True)
        enter = signed >= self._bound
        if stay.all() and not enter.any():
            return True
        self._order(np.concatenate((self._rows[stay], rows[enter])),
                    np.concatenate((self._signed[stay], signed[enter])))
        if len(self._rows) > 2 * _LEADERS_MAX:
            self._rows = self._rows[:_LEADERS_MAX]
            self._signed = self._signed[:_LEADERS_MAX]
            self._bound = float(self._signed[-1])
        return self._bound == -math.inf or len(self._rows) > _LEADERS // 8

    def best(self, mask_: view.Mask | None) -> float | None:
        """Return the best score of the hosts that count, None if unknown."""
        place = 0 if mask_ is None else int(mask_[self._rows].argmax())
        if mask_ is not None and not mask_[self._rows[place]]:
            return None
        return float(self._signed[place]) * self._sign


def _fewer(
    rows: view.Column, signed: view.Column, least: float
) -> view.Column:
    """Return fewer rows, so that no other row has more than any of them."""
    above = rows[signed > least]
    if len(above) > _LEADERS_MAX:
        best = np.argpartition(signed, -_LEADERS)
        return rows[best[-_LEADERS:]]
    # The hosts of a zone or an aggregate are next to each other.
    ties = rows[signed == least]
    return np.concatenate((above, ties[::-(-len(ties) // _LEADERS)]))


class KeptScores:
    """The scores of a weigher for all hosts.

    :ivar values: the scores; None if they do not differ
    :ivar log: the rows whose scores changed
    """

    def __init__(
        self, weigher: Weigher, hosts: view.Hosts, ask: Ask
    ) -> None:
        answer = ask(hosts)
        # Scores can be columns, which change when the hosts do.
        self.values = None if answer is None else np.array(answer)
        self.log = ChangeLog()
        self._weigher = weigher
        self._changes = (
            hosts.columns.reports if weigher.fixed else hosts.columns.log)
        self._at = self._changes.end
        self._leaders: dict[int, Leaders] = {}
        self._is_finite = self._is_inside = True
        if answer is not None:
            self._look_at(answer)

    def _look_at(self, scores: view.Column) -> None:
        low, high = self._weigher.minval, self._weigher.maxval
        self._is_finite &= bool(np.isfinite(scores).all())
        self._is_inside &= (low is None or bool((scores >= low).all())) and (
            high is None or bool((scores <= high).all()))

    def repair(self, hosts: view.Hosts, ask: Ask) -> bool:
        """Update the scores; return False if it is better to ask again."""
        end = self._changes.end
        if self._at == end:
            return True
        rows = _changed(self._changes, self._at, hosts)
        if rows is None or len(rows) and not self._weigher.local:
            return False
        if len(rows) and not self._set(rows, ask(hosts.at(rows))):
            return False
        # A weigher that fails is asked again.
        self._at = end
        return True

    def _set(self, rows: view.Column, scores_: view.Column | None) -> bool:
        if self.values is None:
            return scores_ is None
        if scores_ is None:
            scores_ = np.zeros(len(rows), dtype=self.values.dtype)
        if scores_.dtype != self.values.dtype:
            return False
        differs = self.values[rows] != scores_
        if differs.any():
            rows, scores_ = rows[differs], scores_[differs]
            self.values[rows] = scores_
            self._look_at(scores_)
            self.log.add(rows)
            for sign, leaders in list(self._leaders.items()):
                if not leaders.repair(rows, scores_):
                    del self._leaders[sign]
        return True

    def extrema(self, mask_: view.Mask | None) -> snapshot.Pair | None:
        """Return the least and the greatest score of the hosts that count.

        A bound that the weigher sets is returned instead, or a number beyond
        it if any score is. None means that scores are not finite.
        """
        if not self._is_finite or self.values is None or (
                not len(self.values)):
            return None
        low, high, beyond = (
            self._weigher.minval, self._weigher.maxval, not self._is_inside)
        return (self._end(-1, mask_) if low is None else low - beyond,
                self._end(1, mask_) if high is None else high + beyond)

    def _end(self, sign: int, mask_: view.Mask | None) -> float:
        assert self.values is not None
        leaders = self._leaders.get(sign)
        if leaders is None:
            leaders = self._leaders[sign] = Leaders(self.values, sign)
        found = leaders.best(mask_)
        if found is None:
            assert mask_ is not None
            counted = self.values.take(np.flatnonzero(mask_))
            found = float(counted.max() if sign > 0 else counted.min())
        return found


def scores(weigher: Weigher, hosts: view.Hosts, ask: Ask) -> KeptScores:
    """Return the current scores of a weigher that reads columns alone."""
    known = hosts.columns.kept.setdefault('scores', {})
    found: KeptScores | None = known.get(weigher)
    if found is None or not found.repair(hosts, ask):
        found = known[weigher] = KeptScores(weigher, hosts, ask)
    return found


class PassingHosts:
    """The hosts that pass all filters of a request.

    :param masks: the verdicts of the filters, in order
    :ivar mask: mask of the hosts
    :ivar counts: the number of hosts that passed each filter
    :ivar log: the rows whose verdicts changed
    """

    def __init__(self, masks: Sequence[KeptMask], count: int) -> None:
        self._masks = masks
        self._at = [each.log.end for each in masks]
        self.log = ChangeLog()
        self.mask = np.ones(count, dtype=bool)
        #: The number of filters that each host passed.
        self._number = np.zeros(count, dtype='uint8')
        self.counts = []
        alike = 0
        for each in masks:
            if each.mask is not None:
                self._count(alike)
                self.mask &= each.mask
                count, alike = int(np.count_nonzero(self.mask)), 0
            alike += 1
            self.counts.append(count)
        self._count(alike)
        self._best: weakref.WeakKeyDictionary[WeightSum, BlockMaxima] = (
            weakref.WeakKeyDictionary())

    def _count(self, filters: int) -> None:
        """Count filters that the same hosts passed."""
        self._number += self.mask.view('uint8') * np.uint8(filters)

    def repair(self, masks: Sequence[KeptMask]) -> bool:
        """Update the hosts; return False if a mask was made anew."""
        # 1. The log of a mask that was made anew says nothing about the old
        #    one.
        if any(new is not old for new, old in zip(masks, self._masks)):
            return False
        rows = _union(each.log.since(at) for each, at
                      in zip(masks, self._at))
        if rows is None:
            return False
        self._at = [each.log.end for each in masks]
        # 2. For each filter, correct the count of the hosts that passed it and
        #    all filters before it: subtract the changed rows as they were,
        #    and add them as they are. The refusals show these counts.
        if len(rows):
            passed = np.ones(len(rows), dtype=bool)
            number = np.zeros(len(rows), dtype='uint8')
            before = self._number[rows]
            for place, each in enumerate(masks):
                if each.mask is not None:
                    passed &= each.mask[rows]
                self.counts[place] += int(
                    np.count_nonzero(passed)
                    - np.count_nonzero(before > place))
                number += passed
            self._number[rows], self.mask[rows] = number, passed
            self.log.add(rows)
        return True

    def rejected_by(self, place: int) -> view.Column:
        """Return the rows that a filter rejected, by its place."""
        return np.flatnonzero(self._number == place)

    def best(self, sum_: WeightSum) -> BlockMaxima:
        """Return the greatest weights of these hosts."""
        found = self._best.get(sum_)
        if found is None or not found.repair(self, sum_):
            found = self._best[sum_] = BlockMaxima(self, sum_)
        return found


def passed(
    names: Hashable, masks: Sequence[KeptMask], hosts: view.Hosts
) -> PassingHosts:
    """Return the hosts that currently pass all filters of a request.

    :param names: identifies the filters and what their verdicts depend on
    """
    known = hosts.columns.kept.setdefault('passed', {})
    found: PassingHosts | None = known.pop(names, None)
    if found is None or not found.repair(masks):
        found = PassingHosts(masks, len(hosts))
    _keep(known, names, found, _PASSED_MAX)
    return found


class WeightSum:
    """The weights of all hosts, for one scaling of the scores.

    :param parts: the contributions to the weights
    :param known: their scores
    :ivar log: the rows whose weights changed
    """

    def __init__(
        self, parts: Sequence[WeightPart], known: Sequence[KeptScores]
    ) -> None:
        self.log = ChangeLog()
        self._parts, self._known = parts, known
        self._at = [each.log.end for each in known]
        self.weights = add_up(parts)

    def repair(self, parts: Sequence[WeightPart]) -> bool:
        """Update the weights; return False if it is better to add up again."""
        rows = _union(each.log.since(at) for each, at
                      in zip(self._known, self._at))
        if rows is None or any(
                new.scores is not old.scores
                for new, old in zip(parts, self._parts)):
            return False
        self._at = [each.log.end for each in self._known]
        if len(rows):
            self.weights[rows] = add_up(self._parts, rows)
            self.log.add(rows)
        return True


def weight_sum(
    parts: Sequence[WeightPart], known: Sequence[KeptScores],
    hosts: view.Hosts,
) -> WeightSum:
    """Return the current weights of all hosts, for these parts."""
    sums = hosts.columns.kept.setdefault('sums', {})
    key = tuple(part.key for part in parts)
    found: WeightSum | None = sums.pop(key, None)
    if found is None or not found.repair(parts):
        found = WeightSum(parts, known)
    _keep(sums, key, found, _SUMS_MAX)
    return found


#: The most blocks, and the least rows of one.
_BLOCKS_MAX, _BLOCK_MIN = 2048, 16

#: The greatest weight of a block without a host that counts; any weight is
#: far above it.
_NONE = -1e308

#: With more rows that may be the best ones, all weights are added up.
_CONTENDERS_MAX = 50_000


class BlockMaxima:
    """The greatest weight in each block of rows.

    :param passed_: the hosts that count
    :param sum_: their weights
    """

    def __init__(self, passed_: PassingHosts, sum_: WeightSum) -> None:
        self._size = max(_BLOCK_MIN, -(-len(passed_.mask) // _BLOCKS_MAX))
        self._at = passed_.log.end, sum_.log.end
        step = self._size * -(-CHUNK // self._size)
        buffer, found = np.empty(step), []
        # For many hosts, np.where() takes several times as long.
        for start in range(0, len(passed_.mask), step):
            part = slice(start, start + step)
            weights = buffer[:len(passed_.mask[part])]
            np.subtract(passed_.mask[part], 1, out=weights, dtype='float64')
            weights *= -_NONE
            weights += sum_.weights[part]
            found.append(np.maximum.reduceat(
                weights, np.arange(0, len(weights), self._size)))
        self._most = np.concatenate(found)

    def repair(self, passed_: PassingHosts, sum_: WeightSum) -> bool:
        """Update the blocks; return False if it is better to begin anew."""
        logs = passed_.log, sum_.log
        rows = _union(log.since(at) for log, at in zip(logs, self._at))
        if rows is None:
            return False
        if len(rows):
            blocks = np.unique(rows // self._size).tolist()
            if len(blocks) > _BLOCKS_MAX // 16:
                return False
            for block in blocks:
                part = slice(block * self._size, (block + 1) * self._size)
                self._most[block] = np.where(
                    passed_.mask[part], sum_.weights[part], _NONE).max()
        self._at = logs[0].end, logs[1].end
        return True

    def contenders(
        self, passed_: PassingHosts, sum_: WeightSum, count: int, begin: int
    ) -> view.Column | None:
        """Return the rows that may be among the best ones.

        None means that they are many.

        :param begin: the row that is first among equals
        """
        most = self._most
        if count > len(most):
            return None
        # Each of this many blocks has a host with at least this weight.
        least = most.max() if count == 1 else np.sort(most)[-count]
        if least <= _NONE / 2:
            chosen = np.flatnonzero(most > _NONE / 2)
        else:
            # Of equals in all blocks, only the first ones matter.
            ties = np.flatnonzero(most == least)
            turn = np.searchsorted(ties, begin // self._size)
            ties = np.concatenate((ties[turn:], ties[:turn]))
            chosen = np.concatenate((
                np.flatnonzero(most > least), ties[:count + 1]))
        if len(chosen) * self._size > _CONTENDERS_MAX:
            return None
        rows = (np.sort(chosen)[:, None] * self._size
                + np.arange(self._size)).reshape(-1)
        rows = rows[:np.searchsorted(rows, len(passed_.mask))]
        near = passed_.mask[rows]
        near &= sum_.weights[rows] >= least
        return rows[near]


def _changed(
    log: ChangeLog, position: int, hosts: view.Hosts
) -> view.Column | None:
    """Return the rows that changed since a position in a log.

    None means that they are unknown or many.
    """
    rows = log.since(position)
    if rows is None or len(rows) * _FEW_CHANGED > len(hosts):
        return None
    return rows


def _union(logged: Iterable[view.Column | None]) -> view.Column | None:
    """Return all rows of some logs, ascending; None if any is unknown."""
    some: list[view.Column] = []
    for rows in logged:
        if rows is None:
            return None
        if len(rows):
            some.append(rows)
    if len(some) == 1:
        return some[0]
    return np.unique(np.concatenate(some)) if some else snapshot.NO_ROWS


def _keep(
    known: dict[Any, Any], name: Hashable, result: Any, most: int
) -> None:
    """Keep a result as the latest one; drop the oldest beyond a number."""
    known[name] = result
    if len(known) > most:
        del known[next(iter(known))]
