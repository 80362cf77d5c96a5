# SPDX-License-Identifier: Apache-2.0
"""Outcomes of concurrent claims, and checks of their correctness."""

import bisect
import collections
import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one attempt to claim a place.

    :param start: seconds of the machine's clock, like ``end``
    :param provider: the provider of the claimed or requested place; None if
        the request was refused on every provider
    """

    start: float
    end: float
    provider: str | None
    taken: bool
    consumer: str = ''


@dataclasses.dataclass(frozen=True)
class Round:
    """The outcomes of clients that claimed the last places concurrently.

    :param places: the number of free places at the start, by provider
    :param conflicts: the number of failed attempts because another claim was
        faster
    :param oversold: units in use above the capacity, in the worst observed
        state
    :param gave_up: how often the store reported that it did not finish in
        time; the client then asked again
    """

    outcomes: list
    places: dict
    conflicts: int
    oversold: int
    gave_up: int = 0

    def judged(self):
        """Return the numbers of errors by kind, from outcomes and states."""
        return {
            'oversold': max(self.oversold,
                            oversold(self.outcomes, self.places)),
            'refused_although_it_fitted':
            wrongly_refused(self.outcomes, self.places)}


def wrongly_refused(outcomes, places):
    """Return the number of claims refused although a place was free.

    No place is released during a round. A refusal is correct if the
    successful claims that had begun before its end could have used all
    places, in any order. Otherwise a place was certainly free.

    :param places: the number of free places at the start, by provider
    """
    begun = collections.defaultdict(list)
    for each in outcomes:
        if each.taken:
            begun[each.provider].append(each.start)
    for starts in begun.values():
        starts.sort()

    def had_place(provider, when):
        return (bisect.bisect_right(begun[provider], when)
                < places[provider])

    return sum(
        any(had_place(provider, each.end) for provider in (
            places if each.provider is None else [each.provider]))
        for each in outcomes if not each.taken)


def oversold(outcomes, places):
    """Return the number of granted claims above the number of places."""
    taken = collections.Counter(
        each.provider for each in outcomes if each.taken)
    return sum(max(count - places[provider], 0)
               for provider, count in taken.items())
