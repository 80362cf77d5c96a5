# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that match the user's query."""

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
    """Reject a host that does not match the scheduler hint ``query``.

    The query is a JSON list of an operator and its arguments. Arguments are
    numbers, texts, ``true``, ``false`` or nested lists, as in ``["and",
    [">=", "$free_ram_mb", 4096], ["=", "$stats.ssd", "yes"]]``. ``$name`` is
    a column of the host table, and ``$name.key`` a key of its JSON value.
    Values that a host does not have are dropped from the arguments.

    ``=``, ``<``, ``>``, ``<=`` and ``>=`` compare the first argument with
    each further one. ``in`` is true if the first equals one of the further
    ones. With fewer than two arguments all of these are false. ``and`` is
    true if all arguments are true, ``or`` if any is true, and ``not`` if any
    is false.

    Numbers and texts cannot be ordered. A query that always orders a number
    and a text is refused; otherwise the comparison is false.

    A query has at most 16384 characters, 64 values, and 8 levels of lists. A
    text in it has at most 255 characters.
    """

    reason = 'does not fit the query'
    local = True
    hints = frozenset({'query'})

    def applies(self, request: objects.RequestSpec) -> bool:
        # Refuse an invalid query even if no hosts remain.
        return any(request.hint('query')) and bool(_query(request))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        fits = _Evaluation(hosts).call(_query(request))
        return np.array(np.broadcast_to(fits, len(hosts)))


class _Evaluation:
    """Evaluates a query on hosts; each attribute is looked up once."""

    def __init__(self, hosts: view.Hosts) -> None:
        self._find = functools.cache(
            functools.partial(attributes.find, hosts))

    def call(self, call: query.QueryCall) -> Any:
        """Return a mask, or one boolean for all hosts."""
        arguments = [found for argument in call.arguments
                     if (found := self._operand(argument)) is not None]
        if call.operator in operands.COMPARES:
            return operands.compare(call.operator, arguments)
        truths = list(map(_truth, arguments))
        if call.operator == 'or':
            return functools.reduce(operator.or_, truths, np.False_)
        present = map(operands.present, arguments)
        # A missing value is not true.
        false = functools.reduce(operator.or_, (
            here & ~true for here, true in zip(present, truths)), np.False_)
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
