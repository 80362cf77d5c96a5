# SPDX-License-Identifier: Apache-2.0
"""The contract of a resource class."""

from typing import ClassVar


class ResourceClass:
    """A resource class: its name, its unit, and the charge for a demand.

    The name of its entry point is that of the class: one of
    os-resource-classes, or ``CUSTOM_`` and capital letters, digits and ``_``.
    A class needs a plug-in only if it differs from these defaults.

    A plug-in is instantiated once, without arguments, in each process that
    reads requests: schedulers, conductors, the API and ``cellsched-manage``.
    All of them need the same plug-in.
    """

    #: Plural noun in messages, as in "lacks CPUs"; '' for the class name.
    word: ClassVar[str] = ''

    #: The unit of amounts, as in "the nearest by 3 MB"; '' for what its name
    #: ends with, as in ``CUSTOM_CACHE_MB``, or else for its name.
    unit: ClassVar[str] = ''

    def amount_taken(self, amount: int) -> int:
        """Return the amount that a demand takes of an inventory.

        The scheduler looks for a host with this amount available, and within
        its min_unit, max_unit and step_size. The claim and the answer have
        this amount, too. By default a demand takes the requested amount. A
        class that is allocated in whole pieces rounds up.

        It may be called at any time, in any thread, and must return the same
        result for the same amount.

        :param amount: the requested amount, from 1 to 2147483647
        :returns: at least ``amount``; a result above 2147483647 is refused
        """
        return amount
