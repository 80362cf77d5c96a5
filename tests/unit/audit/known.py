# SPDX-License-Identifier: Apache-2.0
"""States of servers, without databases."""

from cellsched.audit import state
from cellsched.audit.state import ServerState
from cellsched.claims import base as claims_base
from cellsched.db.api import audit_queries as api
from cellsched.db.cell import audit_queries
from cellsched import objects
from tests.unit.db import samples

CELL, OTHER, CELL0 = 'cell-uuid', 'other-uuid', objects.CELL0_UUID

#: What a server takes.
SIZE = {'VCPU': 1, 'MEMORY_MB': 512}


def row(**fields):
    """Return the row of a server that runs on node1 of host1."""
    return audit_queries.ServerRow(**{
        'vm_state': 'active', 'task_state': None, 'host': 'host1',
        'launched_at': samples.NOW, 'deleted': False,
        'project_id': 'project', 'user_id': 'user', 'provider': 'node1',
        'served': True, 'known_host': True, **fields})


def unrun(**fields):
    """Return a row that never was on a host."""
    return row(**{'vm_state': 'building', 'task_state': 'scheduling',
                  'host': None, 'launched_at': None, 'provider': None,
                  'served': False, **fields})


def buried(**fields):
    return unrun(**{'vm_state': 'error', 'task_state': None,
                    'reason': 'why', 'failed_action': True, **fields})


def claims(*providers, **resources):
    return [claims_base.Claim('server', each, resources or SIZE,
                              project_id='project', user_id='user')
            for each in providers]


def mapped(cell=CELL, deleted=False):
    return api.MappingRow(cell, deleted, 'project', 'user')


def server(**fields):
    """Return the state of a server without findings."""
    return ServerState(**{
        'uuid': 'server', 'mapping': mapped(), 'requested': False,
        'rows': {CELL: row()}, 'claims': claims('node1'), 'moved': [],
        'unheard': frozenset(), 'size': state.ServerSize(SIZE), **fields})
