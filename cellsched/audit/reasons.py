# SPDX-License-Identifier: Apache-2.0
"""Servers in ERROR have a fault that says why: S13."""

from collections.abc import Iterator

from cellsched.audit.facts import Facts
from cellsched.audit import fates
from cellsched.audit import findings
from cellsched import objects


def check(facts: Facts) -> Iterator[findings.Finding]:
    """Yield what is missing of a server's reason.

    One in ERROR has a fault with a text; one in cell0 a failed action too,
    with the id of its request.
    """
    cell = facts.mapping.cell if facts.mapping else None
    row = facts.rows.get(cell) if cell else None
    if row is None or row.deleted or facts.requested or (
            row.vm_state != 'error' or row.task_state is not None):
        return
    if not (row.reason or '').strip():
        yield fates.found(
            facts, 'no-reason', 'is in ERROR and nothing says why',
            cell, findings.Action.EXPLAIN)
    if cell == objects.CELL0_UUID and not row.failed_action:
        yield fates.found(
            facts, 'no-action',
            'is in cell0 without a failed action that names its request',
            cell, findings.Action.EXPLAIN)
