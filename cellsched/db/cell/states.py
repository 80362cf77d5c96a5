# SPDX-License-Identifier: Apache-2.0
"""The one table of the states of servers and their transitions.

A server in a cell is in a state, which is its ``vm_state`` and its
``task_state``. Each change of a state has a name here, and is made by
:func:`cellsched.db.cell.instances.transit`, or by ``transit_all`` beside it,
which sets the new state on the condition that the server is in one of those
before it. So whoever comes late, twice or in the wrong order changes nothing.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple


class State(NamedTuple):
    """Of a row; both are columns of ``instances``."""

    vm_state: str
    task_state: str | None = None


@dataclasses.dataclass(frozen=True)
class Transition:
    """A change of state.

    :param before: where it may begin; None, wherever the server is
    :param after: where it ends; with no ``vm_state``, that one stays
    """

    before: frozenset[State] | None
    after: State


#: Waits for a host to begin; on a host; waits for the next host.
SCHEDULING = State('building', 'scheduling')
SPAWNING = State('building', 'spawning')
WAITING = State('building')

ACTIVE = State('active')
ERROR = State('error')
DELETED = State('deleted')

REBUILDING = State('active', 'rebuilding')
REBUILD_SPAWNING = State('active', 'rebuild_spawning')
RESIZE_PREP = State('active', 'resize_prep')
RESIZE_MIGRATING = State('active', 'resize_migrating')
OFFLOADING = State('active', 'shelving_offloading')
OFFLOADED = State('shelved_offloaded')
UNSHELVING = State('shelved_offloaded', 'unshelving')
UNSHELVE_SPAWNING = State('shelved_offloaded', 'spawning')

#: In which rows are made: in a cell, and in cell0.
FIRST = frozenset({SCHEDULING, ERROR})

#: Of a server that is being built for the first time.
OF_BUILD = frozenset({SCHEDULING, SPAWNING, WAITING})


def _transition(*before: State, to: State) -> Transition:
    return Transition(frozenset(before), to)


TRANSITIONS: Mapping[str, Transition] = {
    # A build.
    'begin': _transition(SCHEDULING, to=SPAWNING),
    'finish': _transition(SPAWNING, to=ACTIVE),
    'hand_on': _transition(SCHEDULING, SPAWNING, to=WAITING),
    'try_next': _transition(WAITING, to=SCHEDULING),
    'fail': Transition(OF_BUILD, ERROR),
    # A server that is built anew, here or on another host of its cell.
    'rebuild': _transition(ACTIVE, ERROR, to=REBUILDING),
    'begin_rebuild': _transition(REBUILDING, to=REBUILD_SPAWNING),
    'finish_rebuild': _transition(REBUILD_SPAWNING, to=ACTIVE),
    'revert_rebuild': _transition(REBUILDING, to=ACTIVE),
    'fail_rebuild': _transition(REBUILDING, REBUILD_SPAWNING, to=ERROR),
    # A server that goes to another host of its cell.
    'migrate': _transition(ACTIVE, to=RESIZE_PREP),
    'begin_migrate': _transition(RESIZE_PREP, to=RESIZE_MIGRATING),
    'finish_migrate': _transition(RESIZE_MIGRATING, to=ACTIVE),
    'revert_migrate': _transition(RESIZE_PREP, RESIZE_MIGRATING, to=ACTIVE),
    # A server that leaves its host, and comes back to some host.
    'offload': _transition(ACTIVE, to=OFFLOADING),
    'finish_offload': _transition(OFFLOADING, to=OFFLOADED),
    'revert_offload': _transition(OFFLOADING, to=ACTIVE),
    'unshelve': _transition(OFFLOADED, to=UNSHELVING),
    'begin_unshelve': _transition(UNSHELVING, to=UNSHELVE_SPAWNING),
    'finish_unshelve': _transition(UNSHELVE_SPAWNING, to=ACTIVE),
    'revert_unshelve': _transition(
        UNSHELVING, UNSHELVE_SPAWNING, to=OFFLOADED),
    # The user's wish, which goes before everything.
    'mark_deleting': Transition(None, State('', 'deleting')),
    'delete': Transition(None, DELETED),
}

#: After which no host has to be told of a build any more.
ENDS_OF_BUILD = frozenset({'finish', 'fail', 'delete'})


def is_allowed(before: State | None, after: State | None) -> bool:
    """Return whether a server may go from one state to another at once.

    :param before: None, where there was no row
    :param after: None, where there is none any more: what was written for a
        build is taken back
    """
    if before == after:
        return True
    if before is None:
        # A deletion goes before the row that it is to keep away.
        return after in FIRST or after == DELETED
    if after is None:
        return before in OF_BUILD or before in (ERROR, DELETED)
    return any(
        (each.before is None or before in each.before)
        and after == State(each.after.vm_state or before.vm_state,
                           each.after.task_state)
        for each in TRANSITIONS.values())
