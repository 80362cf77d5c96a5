# SPDX-License-Identifier: Apache-2.0
"""What a conductor does, and what it may die of."""

from cellsched import exception

#: What a conductor has done when so many steps are behind it.
DONE = ('lease', 'schedule', 'find the cell', 'decide', 'write rows',
        'delete the request', 'cast')

#: From here on the server is in its cell.
REQUEST_GONE = DONE.index('delete the request')


class Death(BaseException):
    """What a process dies of; nothing of it is cleaned up."""


def die():
    raise Death


def fail():
    raise exception.ClaimConflict(consumer='secret')
