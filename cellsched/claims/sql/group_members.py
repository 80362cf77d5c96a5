# SPDX-License-Identifier: Apache-2.0
"""Statements that enforce the hard policies of server groups.

A claim with a membership locks its group first. So it counts all members, and
no other claim adds one before it has committed. The lock is an update of a
row, not only a row lock: with snapshot isolation a transaction that waited
fails then, and begins again with the new members.

Releases and transfers do not lock groups, as they never add a member.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import zlib

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import schema
from cellsched.claims import validation
from cellsched.db import statements

_allocations = schema.allocations
_members = schema.members
_locks = schema.group_locks

_LOCK = sa.update(_locks).where(
    _locks.c.number == sa.bindparam('which')).values(
    times=_locks.c.times + 1)

#: The members with claims.
_HOLDING = sa.select(
    _members.c.group_uuid, _members.c.consumer, _members.c.member,
    _members.c.host,
).join_from(_members, _allocations, sa.and_(
    _allocations.c.consumer == _members.c.consumer,
    _allocations.c.ordinal == 0))

_MEMBERS = _HOLDING.where(statements.in_list(_members.c.group_uuid))

_MEMBERSHIPS = _HOLDING.where(statements.in_list(_members.c.consumer))

_LEAVE = statements.deletion(
    _members.c.consumer, statements.in_list(_members.c.consumer))

_FREE = statements.deletion(
    _allocations.c.consumer, statements.in_list(_allocations.c.consumer))

#: Both deletions in one statement, on PostgreSQL.
_FREE_AND_LEAVE = _FREE.add_cte(_LEAVE.cte('left_groups'))


def lock(connection: sa.Connection, claims: Iterable[base.Claim]) -> None:
    """Lock the groups of a batch, before any other row."""
    for number in sorted({zlib.crc32(claim.group.group.encode())
                          % schema.GROUP_LOCKS
                          for claim in claims if claim.group is not None}):
        connection.execute(_LOCK, {'which': number})


def join(connection: sa.Connection, claims: Sequence[base.Claim]) -> None:
    """Add members to their groups, which are locked.

    Their allocations are inserted before; they count as members once their
    memberships exist.

    :raises cellsched.exception.GroupPolicyViolated: a claim violates a policy
    """
    joining = {claim.consumer: claim.group for claim in claims
               if claim.group is not None}
    if not joining:
        return
    for chunk in statements.chunks(joining):
        # Remains of a release by a program that does not use this table.
        connection.execute(_LEAVE, {'these': chunk})
    existing = [
        (group, consumer, member, host)
        for chunk in statements.chunks(
            each.group for each in joining.values())
        for group, consumer, member, host in connection.execute(
            _MEMBERS, {'these': chunk})]
    violation = validation.find_violation(claims, existing)
    if violation is not None:
        raise violation
    connection.execute(sa.insert(_members), [
        {'consumer': consumer, 'group_uuid': joins.group,
         'member': joins.member or consumer, 'host': joins.host}
        for consumer, joins in sorted(joining.items())])


def memberships(
    connection: sa.Connection, consumers: Iterable[str]
) -> dict[str, base.Membership]:
    """Return the memberships of consumers with claims."""
    return {consumer: base.joined(group, host, member)
            for chunk in statements.chunks(consumers)
            for group, consumer, member, host in connection.execute(
                _MEMBERSHIPS, {'these': chunk})}


def free(connection: sa.Connection, consumers: Iterable[str]) -> None:
    """Delete locked allocations, and the memberships of their consumers."""
    for chunk in statements.chunks(consumers):
        if connection.dialect.name == 'postgresql':
            connection.execute(_FREE_AND_LEAVE, {'these': chunk})
        else:
            connection.execute(_FREE, {'these': chunk})
            connection.execute(_LEAVE, {'these': chunk})


def follow(connection: sa.Connection, source: str, target: str) -> None:
    """Move the membership of a consumer, if any, to another consumer."""
    connection.execute(_LEAVE, {'these': [target]})
    connection.execute(sa.update(_members).where(
        _members.c.consumer == source).values(consumer=target))
