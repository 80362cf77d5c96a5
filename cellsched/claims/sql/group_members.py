# SPDX-License-Identifier: Apache-2.0
"""Statements that keep the hard policies of server groups.

Whoever claims for a member of a group locks the group first, and so sees all
members that there are when it counts them, and nobody else joins before it has
ended. To lock is to change a row, and not only to lock it: where transactions
see what there was when they began, one that waited for another is lost to it,
and begins again.

Who releases or transfers locks no group: that makes room in it, if anything.
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

#: Those that hold something.
_HOLDING = sa.select(
    _members.c.group_uuid, _members.c.consumer, _members.c.member,
    _members.c.host,
).join_from(_members, _allocations, sa.and_(
    _allocations.c.consumer == _members.c.consumer,
    _allocations.c.ordinal == 0))

_MEMBERS = _HOLDING.where(statements.in_list(_members.c.group_uuid))

_TOLD = _HOLDING.where(statements.in_list(_members.c.consumer))

_LEAVE = statements.deletion(
    _members.c.consumer, statements.in_list(_members.c.consumer))

_FREE = statements.deletion(
    _allocations.c.consumer, statements.in_list(_allocations.c.consumer))

#: Both in one, which PostgreSQL can do.
_FREE_AND_LEAVE = _FREE.add_cte(_LEAVE.cte('left_groups'))


def lock(connection: sa.Connection, claims: Iterable[base.Claim]) -> None:
    """Lock the groups that a batch is about; first of all that it locks."""
    for number in sorted({zlib.crc32(claim.group.group.encode())
                          % schema.GROUP_LOCKS
                          for claim in claims if claim.group is not None}):
        connection.execute(_LOCK, {'which': number})


def join(connection: sa.Connection, claims: Sequence[base.Claim]) -> None:
    """Make consumers members of their groups, which are locked.

    To be done when they hold nothing but what their allocations say, which
    are not counted before the memberships are there.

    :raises cellsched.exception.GroupPolicyViolated: a claim breaks a policy
    """
    joining = {claim.consumer: claim.group for claim in claims
               if claim.group is not None}
    if not joining:
        return
    for chunk in statements.chunks(joining):
        # What was left by who did not know of groups.
        connection.execute(_LEAVE, {'these': chunk})
    there = [(group, consumer, member, host)
             for chunk in statements.chunks(
                 each.group for each in joining.values())
             for group, consumer, member, host in connection.execute(
                 _MEMBERS, {'these': chunk})]
    violation = validation.find_violation(claims, there)
    if violation is not None:
        raise violation
    connection.execute(sa.insert(_members), [
        {'consumer': consumer, 'group_uuid': joins.group,
         'member': joins.member or consumer, 'host': joins.host}
        for consumer, joins in sorted(joining.items())])


def told(
    connection: sa.Connection, consumers: Iterable[str]
) -> dict[str, base.Membership]:
    """Return what consumers that hold something are in groups."""
    return {consumer: base.joined(group, host, member)
            for chunk in statements.chunks(consumers)
            for group, consumer, member, host in connection.execute(
                _TOLD, {'these': chunk})}


def free(connection: sa.Connection, consumers: Iterable[str]) -> None:
    """Delete allocations that are locked, and memberships with them."""
    for chunk in statements.chunks(consumers):
        if connection.dialect.name == 'postgresql':
            connection.execute(_FREE_AND_LEAVE, {'these': chunk})
        else:
            connection.execute(_FREE, {'these': chunk})
            connection.execute(_LEAVE, {'these': chunk})


def follow(connection: sa.Connection, source: str, target: str) -> None:
    """Let a consumer be the member that another one was, if it was any."""
    connection.execute(_LEAVE, {'these': [target]})
    connection.execute(sa.update(_members).where(
        _members.c.consumer == source).values(consumer=target))
