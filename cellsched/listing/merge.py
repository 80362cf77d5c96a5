# SPDX-License-Identifier: Apache-2.0
"""Putting sorted sequences together that are read in batches."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import operator
from typing import Any
from typing import TypeVar


class Source:
    """A sorted sequence that is read in batches.

    :ivar more: whether there may be more than was read
    :ivar left: how many items were read and not yielded yet
    """

    def __init__(self) -> None:
        self.more = True
        self.left = 0


AnySource = TypeVar('AnySource', bound=Source)
Item = TypeVar('Item')

#: An item, with its place in the order and the source that it is from.
Placed = tuple[Any, AnySource | None, Item]


def merged(
    sources: Sequence[AnySource],
    read: Callable[[Sequence[AnySource]], Iterable[Placed[AnySource, Item]]],
    known: Iterable[Placed[AnySource, Item]] = (), descends: bool = False,
    ahead: int = 0,
) -> Iterator[Item]:
    """Yield the items of all sources in order.

    A source is read again when none of its items is left, and all of those
    together; so no more is read than is yielded, but for one batch of each.

    :param read: returns the next items of some sources, sorted; where it
        returns none of a source it sets ``more`` to False
    :param known: items of no source, in any order
    :param descends: whether the greatest place comes first
    :param ahead: read a source too when so few are left and another one has
        to be read
    """
    waiting = [*known]
    while True:
        while any(source.more and not source.left for source in sources):
            for placed in read([source for source in sources if source.more
                                and source.left <= ahead]):
                waiting.append(placed)
                if placed[1] is not None:
                    placed[1].left += 1
        # What was sorted before is found so, and takes no time.
        waiting.sort(key=operator.itemgetter(0), reverse=descends)
        done = 0
        for _, source, item in waiting:
            yield item
            done += 1
            if source is not None:
                source.left -= 1
                if source.more and not source.left:
                    break
        del waiting[:done]
        if not waiting and not any(source.more for source in sources):
            return
