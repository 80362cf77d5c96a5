# SPDX-License-Identifier: Apache-2.0
"""Merge of sorted sequences that are read in batches."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import operator
from typing import Any
from typing import TypeVar


class Source:
    """A sorted sequence that is read in batches.

    :ivar more: whether unread items may exist
    :ivar pending: number of items that were read and not yielded yet
    """

    def __init__(self) -> None:
        self.more = True
        self.pending = 0


AnySource = TypeVar('AnySource', bound=Source)
Item = TypeVar('Item')

#: An item with its sort key and its source.
Placed = tuple[Any, AnySource | None, Item]


def merged(
    sources: Sequence[AnySource],
    read: Callable[[Sequence[AnySource]], Iterable[Placed[AnySource, Item]]],
    known: Iterable[Placed[AnySource, Item]] = (), descends: bool = False,
    ahead: int = 0,
) -> Iterator[Item]:
    """Yield the items of all sources in order.

    A source is read again when all of its items are yielded. All exhausted
    sources are read in one call. So at most one batch of each source is read
    in vain.

    :param read: returns the next items of some sources, sorted; sets ``more``
        to False for a source without further items
    :param known: items of no source, in any order
    :param descends: whether the greatest key comes first
    :param ahead: also read a source with this many items or fewer, when
        another source must be read
    """
    waiting = [*known]
    while True:
        # 1. The next item is known only if each source with unread items has
        #    at least one item here: its unread items sort after that one.
        while any(source.more and not source.pending for source in sources):
            for placed in read([source for source in sources if source.more
                                and source.pending <= ahead]):
                waiting.append(placed)
                if placed[1] is not None:
                    placed[1].pending += 1
        # 2. Sort. Timsort recognises the sorted runs of the sources.
        waiting.sort(key=operator.itemgetter(0), reverse=descends)
        # 3. Yield until a source with unread items is exhausted.
        done = 0
        for _, source, item in waiting:
            yield item
            done += 1
            if source is not None:
                source.pending -= 1
                if source.more and not source.pending:
                    break
        del waiting[:done]
        if not waiting and not any(source.more for source in sources):
            return
