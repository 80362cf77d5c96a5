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
from typing import Any
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


def lock(connection: sa.Connection, claims: Iterable[base.Claim]) -> None:
    """Lock the groups of a batch, before any other row."""
    for number in lock_numbers(claims):
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
    violation = validation.find_violation(claims, members(connection, claims))
    if violation is not None:
        raise violation
    connection.execute(sa.insert(_members), [
        {'consumer': consumer, 'group_uuid': joins.group,
         'member': joins.member or consumer, 'host': joins.host}
        for consumer, joins in sorted(joining.items())])


def members(
    connection: sa.Connection, claims: Iterable[base.Claim]
) -> list[tuple[str, str, str, str]]:
    """Return group, consumer, member and host of the groups' members."""
    groups = [claim.group.group for claim in claims if claim.group is not None]
    return [tuple(row) for chunk in statements.chunks(groups)
            for row in connection.execute(_MEMBERS, {'these': chunk})]


#: The conditions on a member, by policy: the members with claims beside it.
_ADMITS = {
    base.ANTI_AFFINITY: '''(
    SELECT count(DISTINCT m.member) FROM claim_members AS m
    JOIN allocations AS a ON a.consumer = m.consumer AND a.ordinal = 0
    WHERE m.group_uuid = %(group_{n})s AND m.member <> %(member_{n})s
    AND m.host = %(host_{n})s) < %(most_{n})s''',
    base.AFFINITY: '''NOT EXISTS (
    SELECT 1 FROM claim_members AS m
    JOIN allocations AS a ON a.consumer = m.consumer AND a.ordinal = 0
    WHERE m.group_uuid = %(group_{n})s AND m.member <> %(member_{n})s
    AND m.host NOT IN (%(host_{n})s{lost}))''',
}

_JOIN = '''INSERT INTO claim_members (consumer, group_uuid, member, host)
SELECT %(joins_{n})s, %(group_{n})s, %(member_{n})s, %(host_{n})s'''


def joining(claims: Iterable[base.Claim]) -> list[base.Claim]:
    """Return the first claim of each consumer that joins a group."""
    first: dict[str, base.Claim] = {}
    for claim in claims:
        if claim.group is not None:
            first.setdefault(claim.consumer, claim)
    return list(first.values())


def script(
    claims: Iterable[base.Claim], parameters: dict[str, Any]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return statements that lock groups, and that add a member to a group.

    Each member is added with its condition, so that it counts the ones before
    it. Their parameters are added to ``parameters``.

    :param claims: result of :func:`joining`
    """
    locks = [
        'UPDATE claim_group_locks SET times = times + 1 '
        f'WHERE number = {number:d}' for number in lock_numbers(claims)]
    joins = []
    for n, claim in enumerate(claims):
        group = claim.group
        assert group is not None
        parameters |= {
            f'joins_{n}': claim.consumer, f'group_{n}': group.group,
            f'member_{n}': group.member or claim.consumer,
            f'host_{n}': group.host, f'most_{n}': group.max_server_per_host}
        lost = {f'lost_{n}_{place}': host for place, host
                in enumerate(sorted(group.lost_hosts))}
        parameters |= lost
        joins.append((_JOIN.format(n=n), _ADMITS[group.policy].format(
            n=n, lost=''.join(f', %({name})s' for name in lost))))
    return locks, joins


def lock_numbers(claims: Iterable[base.Claim]) -> list[int]:
    """Return the numbers of the locks of a batch, in order."""
    return sorted({
        zlib.crc32(claim.group.group.encode()) % schema.GROUP_LOCKS
        for claim in claims if claim.group is not None})


def rename_host(
    connection: sa.Connection, former: str, name: str
) -> None:
    """Replace the name of a host in all memberships."""
    connection.execute(sa.update(_members).where(
        _members.c.host == former).values(host=name))


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
        connection.execute(_FREE, {'these': chunk})
        connection.execute(_LEAVE, {'these': chunk})


def follow(connection: sa.Connection, source: str, target: str) -> None:
    """Move the membership of a consumer, if any, to another consumer."""
    connection.execute(_LEAVE, {'these': [target]})
    connection.execute(sa.update(_members).where(
        _members.c.consumer == source).values(consumer=target))
