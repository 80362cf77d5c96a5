# SPDX-License-Identifier: Apache-2.0
"""What an audit finds."""

import dataclasses
import enum


class Action(enum.Enum):
    """A repair that is safe; its value says what it does."""

    BURY = 'record it in cell0, with the reason that its build was lost'
    PURGE = 'remove the row, which never was on a host'
    DECIDE = 'map it to the cell that has it'
    MAP = 'map it, with the project and the user that are known'
    FORGET = 'delete the build request'
    DELETE = 'mark the row as deleted'
    RELEASE = 'release the claim'
    RELEASE_MOVE = 'release the claim of the move'
    CLAIM = 'claim what it takes, if there is room'
    EXPLAIN = 'record that the reason is not known'


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that must not be.

    :param invariant: which one it breaks: ``S1``, ``S2``, …
    :param kind: a short name of what it is
    :param of: uuid of the server or of the provider, or name of the host
    :param cell: the cell's name, where it is about one
    :param cell_uuid: that cell
    :param action: the repair, or None where none is safe
    :param advice: what a human may do where none is
    """

    invariant: str
    kind: str
    of: str
    text: str
    cell: str = ''
    cell_uuid: str | None = None
    action: Action | None = None
    advice: str = ''

    @property
    def key(self) -> tuple[str, str, str, str | None]:
        """What two findings of the same have in common."""
        return self.invariant, self.kind, self.of, self.cell_uuid

    @property
    def repair(self) -> str:
        """What a repair does, or what is left to a human."""
        if self.action is not None:
            return self.action.value
        return f'none is safe: {self.advice}'


@dataclasses.dataclass
class Report:
    """What an audit found, and what became of it.

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
