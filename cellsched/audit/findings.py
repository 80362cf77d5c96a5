# SPDX-License-Identifier: Apache-2.0
"""Findings of an audit."""

import dataclasses
import enum


#: Kinds of findings, and the invariant that each breaks. A kind may be told of
#: a resource class, which follows it after a colon.
KINDS = {
    'over-capacity': 'S1', 'miscounted': 'S1', 'miscounted-consumers': 'S1',
    'wrong-capacity': 'S1', 'provider-unknown': 'S1',
    'no-fate': 'S2', 'two-cells': 'S2', 'cell-and-cell0': 'S2',
    'request-left': 'S2', 'request-of-deleted': 'S2',
    'request-unreadable': 'S2', 'deleted-visible': 'S2',
    'cell-unreachable': 'S2',
    'undecided': 'S3', 'row-unmapped': 'S3', 'request-unmapped': 'S3',
    'row-lost': 'S3', 'row-elsewhere': 'S3', 'host-elsewhere': 'S3',
    'host-unmapped': 'S3',
    'claim-leaked': 'S4', 'move-claim-leaked': 'S4', 'unclaimed': 'S4',
    'claim-elsewhere': 'S4', 'claim-second': 'S4', 'claim-amount': 'S4',
    'no-reason': 'S13', 'no-action': 'S13', 'spec-missing': 'S13',
    'spec-unreadable': 'S13',
    'build-stranded': 'L1', 'task-stranded': 'L1', 'move-stranded': 'L1',
    'deleting-stranded': 'L1',
}


class Action(enum.Enum):
    """A repair that is safe; its value says what it does."""

    BURY = 'record it in cell0, with the reason that its build was lost'
    BURY_REQUEST = 'record it in cell0, with what its request lacks'
    PURGE = 'remove the row, which never was on a host'
    DECIDE = 'map it to the cell that has it'
    REMAP = 'map it to the cell where its row, its host and its claim are'
    MAP = 'map it, with the project and the user that are known'
    FORGET = 'delete the build request'
    DELETE = 'mark the row as deleted'
    RELEASE = 'release the claim'
    RELEASE_MOVE = 'release the claim of the move'
    CLAIM = 'claim what it takes, if there is room'
    RECLAIM = 'claim what it takes where it is, if there is room for both ' \
        'meanwhile, in place of what it holds'
    RECOUNT = 'have the claim store count anew'
    FAIL = 'put it into ERROR, with the reason that nobody built it'
    TAKE_BACK = 'take its task back, with the reason that nobody did it'
    GIVE_UP = 'give the move up, with the reason that nobody made it'
    EXPLAIN = 'record that the reason is not known'


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that must not be.

    :param kind: a short name of what it is, one of :data:`KINDS`
    :param of: uuid of the server or of the provider, or name of the host
    :param cell: the cell's name, where it is about one
    :param cell_uuid: that cell
    :param action: the repair, or None where none is safe
    :param advice: what a human may do where none is
    """

    kind: str
    of: str
    text: str
    cell: str = ''
    cell_uuid: str | None = None
    action: Action | None = None
    advice: str = ''

    @property
    def invariant(self) -> str:
        """Return the invariant that it breaks: ``S1``, ``S2``, …"""
        return KINDS[self.kind.partition(':')[0]]

    @property
    def is_of_server(self) -> bool:
        """Return whether it is of a server, not a provider, host or cell."""
        return self.invariant != 'S1' and self.kind not in (
            'cell-unreachable', 'host-elsewhere', 'host-unmapped')

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Return the key that two findings of the same have in common."""
        return self.kind, self.of, self.cell_uuid

    @property
    def repair(self) -> str:
        """Return what a repair does, or what is left to a human."""
        if self.action is not None:
            return self.action.value
        return f'none is safe: {self.advice}'


@dataclasses.dataclass
class AuditReport:
    """The findings of an audit, and what became of them.

    :param left: what is wrong still
    :param repaired: what was wrong and is not any more
    :param foreign: how many consumers hold claims and are of no server that
        the API database knows
    :param examples: a few of those
    """

    left: list[Finding] = dataclasses.field(default_factory=list)
    repaired: list[Finding] = dataclasses.field(default_factory=list)
    foreign: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)
