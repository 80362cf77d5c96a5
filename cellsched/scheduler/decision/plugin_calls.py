# SPDX-License-Identifier: Apache-2.0
"""Calls of plug-ins, with timing, checks and errors that name them."""

from collections.abc import Callable
from collections.abc import Iterable
import math
import numbers
from typing import Any
from typing import TypeVar

import numpy as np

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import snapshot
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import ranking
from cellsched.weighers.base import Weigher

#: Plug-ins.
Plugin = base.Filter | Weigher
_Kind = TypeVar('_Kind', base.Filter, Weigher)
_Answer = TypeVar('_Answer')

#: Scores, with their minimum and maximum if these are cached.
Scores = tuple[view.Column, snapshot.Pair | None]

#: Default methods, which return True and need not be called.
_DEFAULTS = (base.Filter.applies, Weigher.applies)


class PluginCalls:
    """Calls plug-ins for a decision.

    :param now: returns monotonic seconds to time plug-ins; None for no timing
    :ivar seconds: total time of the calls by plug-in
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.seconds: dict[Plugin, float] = {}

    def ask(
        self, plugin: Plugin, question: Callable[..., _Answer],
        *arguments: Any,
    ) -> _Answer:
        """Call a plug-in and return its result.

        :raises cellsched.exception.Invalid: the plug-in refused the input
        :raises cellsched.exception.PluginFailed: the plug-in failed otherwise;
            its exception, even ``SystemExit``, is the cause
        """
        now = self._now
        if now is None:
            return _ask(plugin, question, *arguments)
        began = now()
        try:
            return _ask(plugin, question, *arguments)
        finally:
            self.seconds[plugin] = (
                self.seconds.get(plugin, 0.0) + now() - began)

    def applying(
        self, plugins: Iterable[_Kind], request: objects.RequestSpec
    ) -> list[_Kind]:
        """Return the plug-ins that apply to a request.

        A plug-in with the default method applies and is not called.
        """
        return [each for each in plugins if type(each).applies in _DEFAULTS
                or self.ask(each, each.applies, request)]

    def located(
        self, plugins: Iterable[Plugin], request: objects.RequestSpec
    ) -> set[str]:
        """Return the instances whose hosts the plug-ins need."""
        instances: set[str] = set()
        for each in plugins:
            if self.ask(each, each.applies, request):
                named = self.ask(each, each.located, request)
                self.ask(each, instances.update, named)
        return instances

    def mask(
        self, stage: base.Filter, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> view.Mask | None:
        """Return the mask of a filter; None if it keeps all hosts."""
        answer = self.ask(stage, stage.keep, hosts, request)
        if answer is None:
            return None
        if not _is_column(answer, 'b', len(hosts)):
            raise _wrong(
                stage, f'its mask is not an array of {len(hosts)} booleans')
        return answer

    def scores(
        self, weigher: Weigher, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> view.Column | None:
        """Return the scores of a weigher; None if they do not differ."""
        answer = self.ask(weigher, weigher.score, hosts, request)
        if answer is None:
            return None
        if not _is_column(answer, 'biuf', len(hosts)):
            raise _wrong(
                weigher, f'its scores are not an array of {len(hosts)} '
                         'numbers')
        return answer

    def kept_scores(
        self, weighers: Iterable[Weigher], hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> dict[Weigher, Scores | None]:
        """Return the scores of weighers with their cached extremes."""
        found: dict[Weigher, Scores | None] = {}
        for weigher in weighers:
            scores = self.scores(weigher, hosts, request)
            found[weigher] = None if scores is None else (
                scores, snapshot.extrema_of(scores))
        return found

    def parts(
        self,
        weighed: Iterable[tuple[
            Weigher, float | view.Column, Scores]],
        mask: view.Mask | None,
    ) -> list[ranking.WeightPart]:
        """Return the contribution of each weigher to the weights.

        :param weighed: weighers with their multipliers and scores
        :param mask: mask of the hosts that count; None for all
        """
        return [self.ask(
            weigher, ranking.WeightPart, weigher, scores, multiplier, mask,
            extrema if mask is None else None)
            for weigher, multiplier, (scores, extrema) in weighed]

    def multipliers(
        self, weighers: Iterable[Weigher], hosts: view.Hosts
    ) -> dict[Weigher, float | view.Column]:
        """Return the weighers with a multiplier other than zero."""
        found = {}
        for weigher in weighers:
            multiplier = self.multiplier(weigher, hosts)
            if isinstance(multiplier, np.ndarray) or multiplier:
                found[weigher] = multiplier
        return found

    def multiplier(
        self, weigher: Weigher, hosts: view.Hosts
    ) -> float | view.Column:
        """Return a weigher's multiplier, one for all hosts or one per host."""
        answer = self.ask(weigher, weigher.multiplier, hosts)
        if type(answer) is float or isinstance(answer, numbers.Real):
            finite = math.isfinite(answer)
        elif _is_column(answer, 'iuf', len(hosts)):
            finite = bool(np.isfinite(answer).all())
        else:
            raise _wrong(
                weigher, 'its multiplier is neither a number nor an array of '
                         f'{len(hosts)} numbers')
        if not finite:
            raise _wrong(weigher, 'its multiplier is not finite')
        return answer


def kind_of(plugin: Plugin) -> str:
    """Return the kind of a plug-in in messages."""
    return 'Weigher' if isinstance(plugin, Weigher) else 'Filter'


def _ask(
    plugin: Plugin, question: Callable[..., _Answer], *arguments: Any
) -> _Answer:
    try:
        return question(*arguments)
    except (*exception.STOPS, exception.Invalid, exception.PluginFailed):
        raise
    except BaseException as exc:
        raise _failure(plugin) from exc


def _failure(plugin: Plugin) -> exception.PluginFailed:
    return exception.PluginFailed(kind=kind_of(plugin), plugin=plugin.name)


def _wrong(plugin: Plugin, problem: str) -> exception.PluginFailed:
    """Return the error for an invalid result of a plug-in."""
    failure = _failure(plugin)
    failure.__cause__ = TypeError(problem)
    return failure


def _is_column(answer: Any, kinds: str, length: int) -> bool:
    return (isinstance(answer, np.ndarray) and answer.dtype.kind in kinds
            and answer.shape == (length,))
