# SPDX-License-Identifier: Apache-2.0
"""The audit of all databases: ``cellsched-manage audit``."""

import argparse
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import terminal
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.audit.findings import AuditReport

#: Exit codes.
FOUND = 1
REPAIRED = 2
FAILED = 3

_SETTLE_MAX_S = 3600


class Audit(base.Lister):
    """Check the invariants of every server in all databases, and repair them.

    Reads the API database, all cells, cell0 and the claim store. The
    invariants are S1, no host is over capacity; S2, each server is in one
    place; S3, the mapping of a server names its cell; S4, each claim belongs
    to a server and has its size; S8, servers are members of their groups; S11,
    all records of a server have one owner and one size; L1, a service works on
    each unfinished task; S13, each failure has a reason. Violations are
    checked again after --settle seconds, because a change may have been in
    progress; a violation found both times is listed.

    With --fix, the violations with a safe repair are repaired, and the list
    names them. Another violation, for example two running servers with one id,
    needs an operator, and the list has advice.

    A consumer with claims that nothing knows is a violation. With --foreign,
    or if the API database knows no server at all, other services claim too,
    for example a Nova that only uses the scheduler: unknown consumers are then
    counted on standard error. Their claims are never changed.

    Ends with 0 if there is no violation, with 1 if violations remain, with 2
    if all violations are repaired, and with 3 after an error.

    Example::

        cellsched-manage --config-file api.conf audit --fix -f json
    """

    kinds = (plugins.CLAIMS,)
    columns = ('Invariant', 'Kind', 'Of', 'Cell', 'Finding', 'Repair',
               'State')
    failure_code = FAILED
    arguments = (
        base.flag('--fix', 'make the repairs that are safe'),
        base.flag('--foreign', 'other services claim too: count consumers '
                               'that nothing knows, and do not list them'),
        base.argument('--settle', type=base.seconds(_SETTLE_MAX_S),
                      default=5.0, metavar='SECONDS',
                      help='check violations again after this time; by '
                           'default 5'))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        auditor = self.app.backend.auditor()
        with terminal.progress('auditing', auditor.size(),
                               self.app.stderr) as show:
            report = auditor.run(parsed_args.settle, parsed_args.fix, show,
                                 parsed_args.foreign)
        self._warn(report)
        if report.remaining:
            self.exit_code = FOUND
        elif report.repaired:
            self.exit_code = REPAIRED
        return self.columns, [
            (each.invariant, each.kind, each.of, report.cell_of(each),
             each.text, each.repair, state)
            for state, found in (('left', report.remaining),
                                 ('repaired', report.repaired))
            for each in found]

    def _warn(self, report: 'AuditReport') -> None:
        if not self.app.backend.claims_are_shared():
            self.app.warn('the claims were not checked: only one process sees '
                          'this claim store')
        elif report.foreign:
            more = ', …' if report.foreign > len(report.examples) else ''
            self.app.warn(
                f'{report.foreign} consumers hold claims and are not known '
                'to the API database; they are not changed: '
                f'{", ".join(report.examples)}{more}')
