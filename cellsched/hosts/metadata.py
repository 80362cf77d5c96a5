# SPDX-License-Identifier: Apache-2.0
"""Aggregate metadata of hosts, evaluated once for each distinct set."""

from collections.abc import Callable
from collections.abc import Iterable

import numpy as np

from cellsched.hosts import aggregate
from cellsched.hosts import view

#: A predicate on the values that a host's aggregates have for a key: the
#: comma-separated values of all its aggregates, or none without the key.
Verdict = Callable[[frozenset[str]], bool]

_NOTHING = frozenset[str]()


def agree(
    hosts: view.Hosts, requested: Iterable[tuple[str, Verdict]]
) -> view.Mask | None:
    """Return a mask of the hosts whose aggregates pass all these predicates.

    None means all hosts.

    :param requested: predicates with their metadata keys
    """
    present = keys(hosts)
    by_code: view.Column | None = None
    for key, verdict in requested:
        if key in present:
            texts, kinds = hosts.memo(
                ('texts of aggregates', key), lambda all_: _texts(all_, key))
            answers = np.fromiter(
                map(verdict, texts), bool, len(texts)).take(kinds)
            by_code = answers if by_code is None else by_code & answers
        elif not verdict(_NOTHING):
            return np.zeros(len(hosts), dtype=bool)
    if by_code is None or by_code.all():
        return None
    return by_code.take(hosts['aggregates'])


def keys(hosts: view.Hosts) -> frozenset[str]:
    """Return the keys that the aggregates of any host have."""
    return hosts.memo('keys of aggregates', _keys)


def _keys(hosts: view.Hosts) -> frozenset[str]:
    return frozenset(
        key for code in np.unique(hosts['aggregates']).tolist()
        for each in hosts.value('aggregates', code) for key in each.metadata)


def _texts(
    hosts: view.Hosts, key: str
) -> tuple[list[frozenset[str]], view.Column]:
    """Return the distinct sets of values, and the index of each code's set."""
    codes = np.unique(hosts['aggregates'])
    kinds = np.zeros(codes.max(initial=0) + 1, dtype='int64')
    numbers: dict[frozenset[str], int] = {}
    for code in codes.tolist():
        texts = aggregate.values(hosts.value('aggregates', code), key)
        kinds[code] = numbers.setdefault(texts, len(numbers))
    return list(numbers), kinds
