# SPDX-License-Identifier: Apache-2.0
"""The table of the states of servers and their transitions.

The state of a server is its ``vm_state`` and its ``task_state``. Each change
of a state is a named transition. ``transit`` and ``transit_all`` in
:mod:`cellsched.db.cell.instances` apply it only if the server is in one of the
states before it. A late, repeated or reordered message changes nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple


class State(NamedTuple):
    """The state of a server: two columns of ``instances``."""

    vm_state: str
    task_state: str | None = None


class Transition(NamedTuple):
    """A change of state.

    :param before: allowed states before; None for any state
    :param after: the state after; without a ``vm_state``, that is kept
    """

    before: frozenset[State] | None
    after: State


#: Waiting for a host to start; building on a host; waiting for the next host.
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

#: States of new rows: in a cell, and in cell0.
FIRST = frozenset({SCHEDULING, ERROR})

#: States of a server during its first build.
OF_BUILD = frozenset({SCHEDULING, SPAWNING, WAITING})


#: The ``vm_state`` of servers that can be evacuated.
EVACUABLE = (ACTIVE.vm_state, ERROR.vm_state)

#: Tasks that only Nova's services do, on the host of a server.
NOVA_TASKS = (
    'image_backup', 'image_pending_upload', 'image_snapshot',
    'image_snapshot_pending', 'image_uploading', 'migrating', 'pausing',
    'powering-off', 'powering-on', 'reboot_pending', 'reboot_pending_hard',
    'reboot_started', 'reboot_started_hard', 'rebooting', 'rebooting_hard',
    'rebuild_block_device_mapping', 'rescuing', 'resize_finish',
    'resize_migrated', 'restoring', 'shelving',
    'shelving_image_pending_upload', 'shelving_image_uploading', 'suspending',
    'updating_password')


def _each(*tasks: str) -> list[State]:
    return [State(vm_state, task) for vm_state in EVACUABLE for task in tasks]


#: The states of servers on a host with a task that an evacuation replaces.
_BUSY = (RESIZE_PREP, RESIZE_MIGRATING, OFFLOADING,
         *_each('rebuilding', 'rebuild_spawning', *NOVA_TASKS))


def _transition(*before: State, to: State) -> Transition:
    return Transition(frozenset(before), to)


TRANSITIONS: Mapping[str, Transition] = {
    # A build.
    'begin': _transition(SCHEDULING, to=SPAWNING),
    'finish': _transition(SPAWNING, to=ACTIVE),
    'hand_on': _transition(SCHEDULING, SPAWNING, to=WAITING),
    'try_next': _transition(WAITING, to=SCHEDULING),
    'fail': Transition(OF_BUILD, ERROR),
    # A rebuild on the same host.
    'rebuild': _transition(ACTIVE, ERROR, to=REBUILDING),
    'begin_rebuild': _transition(REBUILDING, to=REBUILD_SPAWNING),
    'finish_rebuild': _transition(REBUILD_SPAWNING, to=ACTIVE),
    'revert_rebuild': _transition(REBUILDING, to=ACTIVE),
    'fail_rebuild': _transition(REBUILDING, REBUILD_SPAWNING, to=ERROR),
    # An evacuation keeps the vm_state until it has succeeded. It replaces any
    # task that a host that is down cannot end; 'end_task' ends such a task.
    'evacuate': _transition(
        ACTIVE, ERROR, *_BUSY, to=State('', 'rebuilding')),
    'begin_evacuate': _transition(
        *_each('rebuilding'), to=State('', 'rebuild_spawning')),
    'finish_evacuate': _transition(*_each('rebuild_spawning'), to=ACTIVE),
    'fail_evacuate': _transition(
        *_each('rebuilding', 'rebuild_spawning'), to=State('')),
    'end_task': _transition(*_BUSY, to=State('')),
    # A migration to another host of the cell.
    'migrate': _transition(ACTIVE, to=RESIZE_PREP),
    'begin_migrate': _transition(RESIZE_PREP, to=RESIZE_MIGRATING),
    'finish_migrate': _transition(RESIZE_MIGRATING, to=ACTIVE),
    'revert_migrate': _transition(RESIZE_PREP, RESIZE_MIGRATING, to=ACTIVE),
    # Shelving and unshelving.
    'offload': _transition(ACTIVE, to=OFFLOADING),
    'finish_offload': _transition(OFFLOADING, to=OFFLOADED),
    'revert_offload': _transition(OFFLOADING, to=ACTIVE),
    'unshelve': _transition(OFFLOADED, to=UNSHELVING),
    'begin_unshelve': _transition(UNSHELVING, to=UNSHELVE_SPAWNING),
    'finish_unshelve': _transition(UNSHELVE_SPAWNING, to=ACTIVE),
    'revert_unshelve': _transition(
        UNSHELVING, UNSHELVE_SPAWNING, to=OFFLOADED),
    # A deletion, which the user can request in any state.
    'mark_deleting': Transition(None, State('', 'deleting')),
    'delete': Transition(None, DELETED),
    # An administrator corrects the state of a server on a host.
    'reset_active': Transition(None, ACTIVE),
    'reset_error': Transition(None, ERROR),
}

#: Transitions that only an administrator can request.
RESETS = frozenset({'reset_active', 'reset_error'})

#: Transitions after which a build message is not needed any more.
ENDS_OF_BUILD = frozenset({'finish', 'fail', 'delete', *RESETS})


def is_allowed(before: State | None, after: State | None) -> bool:
    """Return whether a single transition leads from one state to another.

    The transitions of an administrator, :data:`RESETS`, do not count.

    :param before: None if there was no row
    :param after: None if the row was deleted because its build was undone
    """
    if before == after:
        return True
    if before is None:
        # A deletion can precede the row and keep it from being created.
        return after in FIRST or after == DELETED
    if after is None:
        return before in OF_BUILD or before in (ERROR, DELETED)
    return any(
        (each.before is None or before in each.before)
        and after == State(each.after.vm_state or before.vm_state,
                           each.after.task_state)
        for name, each in TRANSITIONS.items() if name not in RESETS)
