# SPDX-License-Identifier: Apache-2.0
"""Putting sorted sequences together."""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
import heapq
from typing import Any
from typing import TypeVar

Item = TypeVar('Item')


def merge(
    sequences: Iterable[Iterable[Item]], key: Callable[[Item], Any],
    identity: Callable[[Item], Hashable],
) -> Iterator[Item]:
    """Yield the items of sorted sequences as one, the greatest key first.

    Reads no further than it yields. Of several items of one identity only the
    first is yielded; of equal keys that of the earlier sequence comes first.
    """
    seen: set[Hashable] = set()
    for item in heapq.merge(*sequences, key=key, reverse=True):
        name = identity(item)
        if name not in seen:
            seen.add(name)
            yield item
