# SPDX-License-Identifier: Apache-2.0
"""Findings of an audit."""

from collections.abc import Mapping
import dataclasses
import enum


#: The invariant of each kind of finding. A kind may be followed by a colon and
#: a resource class.
KINDS = {
    'provider-missing': 'S1', 'provider-twice': 'S1', 'provider-root': 'S1',
    'wrong-inventory': 'S1', 'aggregate-unknown': 'S1',
    'over-capacity': 'S1', 'miscounted': 'S1', 'miscounted-consumers': 'S1',
    'wrong-capacity': 'S1', 'provider-unknown': 'S1', 'store-record': 'S1',
    'no-fate': 'S2', 'two-cells': 'S2', 'cell-and-cell0': 'S2',
    'request-left': 'S2', 'request-of-deleted': 'S2',
    'request-unreadable': 'S2', 'deleted-visible': 'S2',
    'cell-unreachable': 'S2', 'wrong-type': 'S2',
    'undecided': 'S3', 'row-unmapped': 'S3', 'request-unmapped': 'S3',
    'row-lost': 'S3', 'row-elsewhere': 'S3', 'host-elsewhere': 'S3',
    'host-unmapped': 'S3', 'guest-unexplained': 'S3', 'guest-missing': 'S3',
    'node-vanished': 'S3', 'host-mapping-unknown': 'S3',
    'service-missing': 'S3', 'host-missing': 'S3', 'node-missing': 'S3',
    'row-archived': 'S3', 'cell0-host': 'S3',
    'consumer-unknown': 'S4', 'claim-owner': 'S4',
    'claim-leaked': 'S4', 'move-claim-leaked': 'S4', 'unclaimed': 'S4',
    'claim-elsewhere': 'S4', 'claim-second': 'S4', 'claim-amount': 'S4',
    'claim-misplaced': 'S4',
    'group-member-unknown': 'S8', 'group-member-missing': 'S8',
    'group-member-extra': 'S8', 'group-member-deleted': 'S8',
    'member-claim': 'S8', 'group-policy': 'S8',
    'owner-differs': 'S11', 'size-differs': 'S11',
    'no-reason': 'S13', 'no-action': 'S13', 'spec-missing': 'S13',
    'spec-unreadable': 'S13', 'flavor-unreadable': 'S13',
    'build-stranded': 'L1', 'task-stranded': 'L1', 'move-stranded': 'L1',
    'deleting-stranded': 'L1', 'deleting-waits': 'L1', 'lease-excess': 'L1',
}

#: Kinds of findings that no repair of a server resolves, besides those of S1.
_NOT_OF_SERVERS = frozenset({
    'cell-unreachable', 'wrong-type', 'host-elsewhere', 'host-unmapped',
    'guest-unexplained', 'guest-missing', 'node-vanished',
    'host-mapping-unknown', 'service-missing', 'row-archived',
    'claim-misplaced',
    'consumer-unknown', 'group-member-unknown', 'group-policy',
    'flavor-unreadable', 'lease-excess'})


class Action(enum.Enum):
    """A safe repair; the value describes it."""

    BURY = 'record it in cell0, with the reason that its build was lost'
    BURY_REQUEST = 'record it in cell0, with what its request lacks'
    PURGE = 'delete the row, which never was on a host'
    DECIDE = 'map it to the cell that has it'
    REMAP = 'map it to the cell where its row, its host and its claim are'
    MAP = 'map it, with the project and the user that are known'
    FORGET = 'delete the build request'
    DELETE = 'mark the row as deleted'
    RELEASE = 'release the claim'
    RELEASE_MOVE = 'release the claim of the move'
    CLAIM = 'claim its resources, if they are free'
    RECLAIM = 'replace its claims by a claim where it is, if both fit ' \
        'meanwhile'
    JOIN = 'add it to the server group'
    LEAVE = 'remove it from the server group'
    EXPIRE = 'end the lease, so that another process can take it'
    RECOUNT = 'correct the counters of the claim store'
    MEND = 'correct it by the claims of the consumers'
    FAIL = 'set it to ERROR, with the reason that its build was abandoned'
    TAKE_BACK = 'revert its task, with the reason that it was abandoned'
    GIVE_UP = 'abort the move, with the reason that it was abandoned'
    EXPLAIN = 'record that the reason is not known'


@dataclasses.dataclass(frozen=True)
class Finding:
    """A violation of an invariant.

    :param kind: one of :data:`KINDS`
    :param of: uuid of the server or provider, name of the host, table and key
        of a row, or name of a record in the claim store
    :param cell_uuid: uuid of the cell, if it concerns one
    :param action: the repair; None if none is safe
    :param advice: what an operator can do if there is no repair
    """

    kind: str
    of: str
    text: str
    cell_uuid: str | None = None
    action: Action | None = None
    advice: str = ''

    @property
    def invariant(self) -> str:
        """Return the violated invariant: ``S1``, ``S2``, …"""
        return KINDS[self.kind.partition(':')[0]]

    @property
    def is_of_server(self) -> bool:
        """Return whether it concerns a server."""
        return (self.invariant != 'S1'
                and self.kind not in _NOT_OF_SERVERS)

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Return the identity of the finding."""
        return self.kind, self.of, self.cell_uuid

    @property
    def repair(self) -> str:
        """Return the description of the repair, or the advice."""
        if self.action is not None:
            return self.action.value
        return f'none is safe: {self.advice}'


@dataclasses.dataclass
class AuditReport:
    """The result of an audit.

    :param remaining: findings that were not repaired
    :param repaired: findings that were repaired
    :param foreign: number of consumers with claims that the API database does
        not know
    :param examples: some of these
    :param names: names of the cells, by uuid
    """

    remaining: list[Finding] = dataclasses.field(default_factory=list)
    repaired: list[Finding] = dataclasses.field(default_factory=list)
    foreign: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def cell_of(self, finding: Finding) -> str:
        """Return the name of the cell of a finding; empty if it has none."""
        uuid = finding.cell_uuid or ''
        return self.names.get(uuid, uuid)
