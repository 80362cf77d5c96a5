# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, as filters and weighers read them."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math

from oslo_log import log

LOG = log.getLogger(__name__)

#: The metadata key for the availability zone of an aggregate.
ZONE_KEY = 'availability_zone'


@dataclasses.dataclass(frozen=True, eq=False)
class HostAggregate:
    """A group of hosts with metadata from the operator.

    Equality is identity: two aggregates with the same content are not equal.
    """

    id: int
    uuid: str
    name: str
    metadata: Mapping[str, str]

    #: Numbers parsed from the metadata, by key.
    _numbers: dict[str, float | None] = dataclasses.field(
        default_factory=dict, init=False, repr=False)

    def values(self, key: str) -> frozenset[str]:
        """Return the comma-separated values of a metadata key."""
        if key not in self.metadata:
            return frozenset()
        return frozenset(
            text.strip() for text in self.metadata[key].split(','))

    def number(self, key: str) -> float | None:
        """Return the value of a metadata key as a number, or None.

        A value that is not a number is logged once and ignored.
        """
        if key not in self._numbers:
            self._numbers[key] = self._read_number(key)
        return self._numbers[key]

    def _read_number(self, key: str) -> float | None:
        text = self.metadata.get(key)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
        LOG.warning('Aggregate %s: the metadata %s is ignored, as %.80r is '
                    'no number', self.uuid, key, text)
        return None


def values(aggregates: Iterable[HostAggregate], key: str) -> frozenset[str]:
    """Return the values of a metadata key in any of the aggregates."""
    return frozenset[str]().union(*(each.values(key) for each in aggregates))


def least(aggregates: Iterable[HostAggregate], key: str) -> float | None:
    """Return the least number that the aggregates have for a key, or None.

    As in Nova, no value counts if one of them is no number.
    """
    numbers = [each.number(key) for each in aggregates if key in each.metadata]
    known = [number for number in numbers if number is not None]
    return min(known, default=None) if len(known) == len(numbers) else None
