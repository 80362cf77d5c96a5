# SPDX-License-Identifier: Apache-2.0
"""Outcomes of claims that many made at the same time, and their judgement."""

import bisect
import collections
import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one attempt to have a place.

    :param start: seconds of the machine's clock, as is ``end``
    :param provider: where the place is, or was asked for; None if it was
        refused wherever it could have been
    """

    start: float
    end: float
    provider: str | None
    taken: bool
    consumer: str = ''


@dataclasses.dataclass(frozen=True)
class Round:
    """The outcomes of clients that wanted the last places at a time.

    :param places: how many there were at first, by provider
    :param conflicts: how often somebody asked for a place in vain, because
        others were faster
    :param oversold: units above what there is, in the worst state that was
        seen
    :param gave_up: how often a client was told that the store did not come to
        an end in its time; it asked again
    """

    outcomes: list
    places: dict
    conflicts: int
    oversold: int
    gave_up: int = 0

    def judged(self):
        """Return what is wrong, by what clients were told and by states."""
        return {
            'oversold': max(self.oversold,
                            oversold(self.outcomes, self.places)),
            'refused_although_it_fitted':
            wrongly_refused(self.outcomes, self.places)}


def wrongly_refused(outcomes, places):
    """Return how many were refused although there was a place.

    Nobody gives a place back meanwhile. Who was refused had all reason to be
    if those that had begun by then and got a place, in whatever order, may
    have had the last ones. If they cannot have, there was one for sure.

    :param places: how many there were at first, by provider
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
    """Return how many got a place that there was not."""
    taken = collections.Counter(
        each.provider for each in outcomes if each.taken)
    return sum(max(count - places[provider], 0)
               for provider, count in taken.items())
