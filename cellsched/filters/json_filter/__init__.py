# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that a query of the requester fits."""

import functools
import operator
from typing import Any

import numpy as np

from cellsched.filters import attributes
from cellsched.filters import base
from cellsched.filters.json_filter import operands
from cellsched.filters.json_filter import ordering
from cellsched.filters.json_filter import query
from cellsched.hosts import view
from cellsched import objects


class JsonFilter(base.Filter):
    """Reject a host that the scheduler hint ``query`` does not fit.

    The query is a JSON list of an operator and its arguments: numbers, texts,
    ``true``, ``false``, or such lists. ``["and", [">=", "$free_ram_mb",
    4096], ["=", "$stats.ssd", "yes"]]`` is one. ``$name`` is a column of the
    host table, ``$name.key`` what is in it as JSON. What a host does not have
    is left out of the arguments.

    ``=``, ``<``, ``>``, ``<=`` and ``>=`` compare the first argument with all
    others, ``in`` asks whether it equals one of them; with fewer than two
    they are false. ``and`` and ``or`` ask whether all or any are true,
    ``not`` whether any is false, wherever it stands.

    Numbers and texts are in no order: a query that puts them in one is
    refused, where it shows that, and else is false.

    A query has at most 16384 characters, 64 values, and lists up to 8 deep;
    a text in it has at most 255 characters.
    """

    reason = 'does not fit the query'
    local = True
    hints = frozenset({'query'})

    def applies(self, request: objects.RequestSpec) -> bool:
        # A bad query is refused whatever hosts are left to look at.
        return any(request.hint('query')) and bool(_query(request))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        fits = _Evaluation(hosts).call(_query(request))
        return np.array(np.broadcast_to(fits, len(hosts)))


class _Evaluation:
    """A query about these hosts; what it names is looked up once."""

    def __init__(self, hosts: view.Hosts) -> None:
        self._find = functools.cache(
            functools.partial(attributes.find, hosts))

    def call(self, call: query.QueryCall) -> Any:
        """Return a mask, or one truth for all hosts."""
        arguments = [found for argument in call.arguments
                     if (found := self._operand(argument)) is not None]
        if call.operator in operands.COMPARES:
            return operands.compare(call.operator, arguments)
        truths = list(map(_truth, arguments))
        if call.operator == 'or':
            return functools.reduce(operator.or_, truths, np.False_)
        there = map(operands.present, arguments)
        # A value that is not there is not true either.
        false = functools.reduce(operator.or_, (
            here & ~true for here, true in zip(there, truths)), np.False_)
        return ~false if call.operator == 'and' else false

    def _operand(self, node: Any) -> Any:
        if isinstance(node, query.QueryCall):
            return self.call(node)
        if isinstance(node, query.Name):
            return self._find(node.path)
        return None if node == '' else node


def _query(request: objects.RequestSpec) -> query.QueryCall:
    queries = request.hint('query')
    if len(queries) > 1:
        query.refuse('', f'one query, not {len(queries)}')
    return ordering.read(queries[0])


def _truth(operand: Any) -> Any:
    """Return for which hosts a value counts as true."""
    if isinstance(operand, attributes.Attribute):
        return operand.each(bool)
    return operand if np.ndim(operand) else np.bool_(bool(operand))
