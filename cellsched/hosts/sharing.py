# SPDX-License-Identifier: Apache-2.0
"""Providers that the hosts of an aggregate share, such as storage pools."""

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True)
class SharingProvider:
    """A sharing provider, of which every host of its aggregate may take.

    :param name: what people call it
    :param aggregate: uuid of the aggregate
    :param traits: names of what it can do
    :param available: what is left to claim, by resource class
    :param units: bounds on what one server may take, as the column ``units``
        has them
    """

    name: str
    aggregate: str
    traits: frozenset[str] = frozenset()
    available: Mapping[str, float] = dataclasses.field(default_factory=dict)
    units: tuple[tuple[str, int, int, int], ...] = ()
