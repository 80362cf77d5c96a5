# SPDX-License-Identifier: Apache-2.0
"""The contract of a resource class."""

from typing import ClassVar


class ResourceClass:
    """A class of resources: how they are called, counted and asked for.

    The name of its entry point is that of the class: one of
    os-resource-classes, or ``CUSTOM_`` and capital letters, digits and ``_``.
    A class needs a plug-in only where it has more to say than its name.

    A plug-in is made once, without arguments, in each process that reads
    requests: schedulers, conductors, the API and ``cellsched-manage``. All of
    them need the same one.
    """

    #: What people call it, as in "lacks CPUs"; '' for its name.
    word: ClassVar[str] = ''

    #: The unit of amounts, as in "the nearest by 3 MB"; '' for what its name
    #: ends with, as in ``CUSTOM_CACHE_MB``, or else for its name.
    unit: ClassVar[str] = ''

    def amount_taken(self, amount: int) -> int:
        """Return what a demand takes of an inventory, in the unit.

        This is how a demand compares with an inventory: a host is looked for
        that has so much room, and within whose least amount, most and step it
        is; so much is claimed there, and so much does the answer say. By
        default a demand takes what it says. A class that is given by the
        piece rounds up.

        It may be asked at any time, in any thread, and must always give the
        same answer to the same amount.

        :param amount: what is asked for, from 1 to 2147483647
        :returns: at least as much; more than 2147483647 is refused as too
            much
        """
        return amount
