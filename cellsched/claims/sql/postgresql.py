# SPDX-License-Identifier: Apache-2.0
"""Writes of the store on PostgreSQL, each in one round trip.

A client that stops between two round trips of a transaction keeps its locks.
Here each write is one message, and the server commits it before it answers.

A write is a statement with one CTE for each step, or several statements in one
message, which PostgreSQL executes as one transaction. All CTEs read the same
snapshot, and PostgreSQL reads a row again when it locks it after a concurrent
change. So a claim never takes too much. It may fail although it fits, if the
capacity was released after the snapshot; then the caller repeats it. Each CTE
reads all rows of the one before, which forces it to be complete.

All writes lock in the order of :mod:`.transactions`.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import functools
import json
from typing import Any

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import group_members
from cellsched.claims.sql import schema
from cellsched.db import guarded_statements
from cellsched.db import session

_guard = guarded_statements.guard

#: The condition on the amount of one claim.
_ADMITTED = ('{amount} BETWEEN i.min_unit AND i.max_unit '
             'AND mod({amount}, i.step_size) = 0')

#: Claims a batch. PostgreSQL plans an array in a parameter anew at each
#: execution, so the rows are parameters of their own, or one with JSON.
_CLAIM = f'''
inserted AS (
    INSERT INTO allocations (consumer, ordinal, provider, resource_class,
        amount, project_id, user_id)
    {{rows}} RETURNING 1),
locked AS (
    SELECT uuid FROM providers WHERE uuid = {{providers}}
    AND (SELECT count(*) FROM inserted) > 0
    ORDER BY uuid FOR UPDATE),
added AS (
    UPDATE inventories AS i SET used = i.used + d.amount
    FROM {{demand}}
    WHERE i.provider = d.provider AND i.resource_class = d.resource_class
    AND i.provider = ANY(ARRAY(SELECT uuid FROM locked))
    AND i.used + d.amount <= i.capacity AND {{admitted}}
    RETURNING 1),
moved AS (
    UPDATE feed_lanes SET position = position + 1 WHERE lane = %(lane)s
    AND 1 = {_guard("(SELECT count(*) FROM added) = {inventories}")}
    RETURNING position)
UPDATE providers AS p SET consumers = p.consumers + d.consumers,
    lane = %(lane)s, position = (SELECT position FROM moved)
FROM {{consumers}} AS d (provider, consumers)
WHERE p.uuid = d.provider AND p.uuid = ANY(ARRAY(SELECT uuid FROM locked))
'''

_CLAIM_MANY = '''
WITH batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS r (
        consumer text, ordinal int, provider text, resource_class text,
        amount bigint, project_id text, user_id text)),
demand AS (
    SELECT provider, resource_class, sum(amount)::bigint AS amount,
        array_agg(amount) AS amounts
    FROM batch GROUP BY provider, resource_class),
''' + _CLAIM.format(
    rows='SELECT * FROM batch',
    providers='ANY(ARRAY(SELECT provider FROM batch))',
    demand='demand AS d', inventories='(SELECT count(*) FROM demand)',
    admitted=f'true = ALL(SELECT {_ADMITTED.format(amount="each")} '
             'FROM unnest(d.amounts) AS each)',
    consumers='(SELECT provider, count(DISTINCT consumer)::int '
              'FROM batch GROUP BY provider)')

#: Maximum number of rows that are parameters of their own, and of the texts
#: with them that are kept.
_ROWS_MAX, _TEXTS_MAX = 20, 100


@functools.lru_cache(_TEXTS_MAX)
def _claim_few(providers: tuple[int, ...]) -> str:
    """Return the statement for one consumer with few rows.

    :param providers: the number of the provider of each row
    """
    uuids = [f'%(uuid_{number})s::text'
             for number in dict.fromkeys(providers)]
    rows, demand = [], []
    for n, number in enumerate(providers):
        values = f'%(uuid_{number})s::text, %(resource_{n})s::text'
        owner = 'NULL, NULL' if n else '%(project_id)s, %(user_id)s'
        rows.append(
            f'(%(consumer)s, {n:d}, {values}, %(amount_{n})s, {owner})')
        demand.append(f'({values}, %(amount_{n})s::bigint)')
    return 'WITH' + _CLAIM.format(
        rows=f'VALUES {", ".join(rows)}',
        providers=f'ANY(ARRAY[{", ".join(uuids)}])',
        demand=f'(VALUES {", ".join(demand)}) '
               'AS d (provider, resource_class, amount)',
        inventories=len(rows), admitted=_ADMITTED.format(amount='d.amount'),
        consumers=f'(VALUES {", ".join(f"({uuid}, 1)" for uuid in uuids)})')


_LEAVE = 'DELETE FROM claim_members WHERE consumer = ANY(%(joining)s::text[])'


def claim(database: session.Database, claims: Sequence[base.Claim]) -> None:
    """Claim a batch for consumers that hold nothing; wait for locked rows.

    :raises cellsched.db.guarded_statements.StatementRefused: a consumer holds
        claims, or a claim does not fit or violates a policy
    """
    rows = list(fragments.rows(claims))
    first = rows[0]
    parameters: dict[str, Any] = {'lane': schema.FEED.lane(first['consumer'])}
    grouped = [claim for claim in claims if claim.group is not None]
    if not grouped and len(rows) <= _ROWS_MAX and (
            first['consumer'] == rows[-1]['consumer']):
        numbers: dict[str, int] = {}
        for n, row in enumerate(rows):
            number = numbers.setdefault(row['provider'], len(numbers))
            parameters[f'uuid_{number}'] = row['provider']
            parameters[f'resource_{n}'] = row['resource_class']
            parameters[f'amount_{n}'] = row['amount']
        for name in 'consumer', 'project_id', 'user_id':
            parameters[name] = first[name]
        guarded_statements.execute(database, _claim_few(tuple(
            numbers[row['provider']] for row in rows)), parameters)
        return
    parameters['rows'] = json.dumps(rows, ensure_ascii=False)
    if not grouped:
        guarded_statements.execute(database, _CLAIM_MANY, parameters)
        return
    # The locks of the groups come first, so that each later statement sees
    # all members. Each member counts those before it.
    joining = group_members.joining(grouped)
    locks, joins = group_members.script(joining, parameters)
    parameters['joining'] = [each.consumer for each in joining]
    guarded_statements.execute(database, ';'.join([
        *locks, _LEAVE, _CLAIM_MANY,
        *(f'{insert} WHERE {_guard(condition)} = 1'
          for insert, condition in joins)]), parameters, is_script=True)


_FITS = '''
    JOIN inventories AS i{n} ON i{n}.provider = c.uuid
        AND i{n}.resource_class = %(resource_{n})s
        AND i{n}.used + %(amount_{n})s::bigint <= i{n}.capacity
        AND %(amount_{n})s::bigint BETWEEN i{n}.min_unit AND i{n}.max_unit
        AND mod(%(amount_{n})s::bigint, i{n}.step_size) = 0
'''

#: Claims the first candidate with capacity that no other session has locked.
#: PostgreSQL evaluates the conditions again on a row that changed before it
#: was locked. Each candidate is a parameter, for the reason above.
_CLAIM_FIRST = '''
WITH chosen AS (
    SELECT c.place, p.uuid
    FROM unnest(ARRAY[{uuids}]) WITH ORDINALITY AS c (uuid, place)
    JOIN providers AS p ON p.uuid = c.uuid {fits}
    ORDER BY c.place LIMIT 1 FOR UPDATE OF {rows} SKIP LOCKED),
inserted AS (
    INSERT INTO allocations (consumer, ordinal, provider, resource_class,
        amount, project_id, user_id)
    SELECT %(consumer)s, d.ordinal, chosen.uuid, d.resource, d.amount,
        CASE WHEN d.ordinal = 0 THEN %(project_id)s::text END,
        CASE WHEN d.ordinal = 0 THEN %(user_id)s::text END
    FROM chosen, (VALUES {amounts}) AS d (ordinal, resource, amount)
    RETURNING 1),
added AS (
    UPDATE inventories AS i SET used = i.used + d.amount
    FROM chosen, (VALUES {amounts}) AS d (ordinal, resource, amount)
    WHERE i.provider = chosen.uuid AND i.resource_class = d.resource
    AND (SELECT count(*) FROM inserted) > 0
    RETURNING 1),
moved AS (
    UPDATE feed_lanes SET position = position + 1 WHERE lane = %(lane)s
    AND (SELECT count(*) FROM added) > 0
    RETURNING position)
UPDATE providers AS p SET consumers = p.consumers + 1, lane = %(lane)s,
    position = (SELECT position FROM moved)
FROM chosen WHERE p.uuid = chosen.uuid AND {guard} = 1
RETURNING chosen.place
'''


#: The candidates of a statement. Fewer are filled up with NULL: a text for
#: each number would be a prepared statement for each.
_UUIDS = [f'uuid_{n}' for n in range(fragments.CANDIDATES_MAX)]


@functools.cache
def _claim_first_text(classes: int) -> str:
    """Return the statement for a claim of a number of resource classes."""
    return _CLAIM_FIRST.format(
        uuids=', '.join(f'%({name})s::text' for name in _UUIDS),
        fits=''.join(_FITS.format(n=n) for n in range(classes)),
        rows=', '.join(['p', *(f'i{n}' for n in range(classes))]),
        amounts=', '.join(
            f'({n:d}, %(resource_{n})s::text, %(amount_{n})s::bigint)'
            for n in range(classes)),
        guard=_guard(
            f'(SELECT count(*) FROM added) = {classes:d} '
            'AND (SELECT count(*) FROM moved) = 1'))


def claim_first(
    database: session.Database, claims: Sequence[base.Claim]
) -> int | None:
    """Claim the first of several providers with room.

    The call waits for no row of a provider.

    :param claims: claims of one consumer that differ in their provider only,
        without a membership
    :returns: the position of the claim that is made; None if the providers
        have no room, or are locked by other sessions
    :raises cellsched.db.guarded_statements.StatementRefused: the consumer
        holds claims
    """
    first = claims[0]
    parameters: dict[str, Any] = {
        'consumer': first.consumer, 'project_id': first.project_id,
        'user_id': first.user_id, 'lane': schema.FEED.lane(first.consumer)}
    for n, name in enumerate(_UUIDS):
        parameters[name] = claims[n].provider if n < len(claims) else None
    for n, (resource, amount) in enumerate(sorted(first.resources.items())):
        parameters[f'resource_{n}'] = resource
        parameters[f'amount_{n}'] = amount
    rows = guarded_statements.execute(
        database, _claim_first_text(len(first.resources)), parameters)
    return rows[0][0] - 1 if rows else None


#: Releases the consumers in the parameter ``these`` if the condition holds.
_GIVE_BACK = '''
gone AS (
    DELETE FROM allocations WHERE consumer = ANY(%(these)s::text[])
    AND {condition}
    RETURNING consumer, provider, resource_class, amount),
locked AS (
    SELECT uuid FROM providers
    WHERE uuid = ANY(ARRAY(SELECT provider FROM gone))
    ORDER BY uuid FOR UPDATE),
subtracted AS (
    UPDATE inventories AS i SET used = i.used - g.amount
    FROM (SELECT provider, resource_class, sum(amount)::bigint AS amount
          FROM gone GROUP BY provider, resource_class) AS g
    WHERE i.provider = g.provider AND i.resource_class = g.resource_class
    AND i.provider = ANY(ARRAY(SELECT uuid FROM locked))
    RETURNING 1),
parted AS (
    DELETE FROM claim_members WHERE consumer = ANY(%(these)s::text[])
    AND {condition} AND (SELECT count(*) FROM gone) >= 0 RETURNING 1),
moved AS (
    UPDATE feed_lanes SET position = position + 1 WHERE lane = %(lane)s
    AND (SELECT count(*) FROM locked) > 0
    AND (SELECT count(*) FROM subtracted) >= 0
    RETURNING position),
noted AS (
    UPDATE providers AS p SET consumers = p.consumers - g.consumers,
        lane = %(lane)s, position = (SELECT position FROM moved)
    FROM (SELECT provider, count(DISTINCT consumer)::int AS consumers
          FROM gone GROUP BY provider) AS g
    WHERE p.uuid = g.provider
    AND p.uuid = ANY(ARRAY(SELECT uuid FROM locked))
    AND (SELECT count(*) FROM moved) > 0
    RETURNING 1)
'''

_HELD = '''
held AS (
    SELECT consumer FROM allocations
    WHERE consumer = ANY(%(held)s::text[])
    ORDER BY consumer, ordinal FOR UPDATE)
'''

_RELEASE = (
    f'WITH {_HELD},'
    f'{_GIVE_BACK.format(condition="(SELECT count(*) FROM held) > 0")}'
    'SELECT count(*) FROM noted')

_IS_HELD = '(SELECT count(*) FROM held WHERE consumer = %(source)s) > 0'

_TRANSFER = f'''
WITH {_HELD}, {_GIVE_BACK.format(condition=_IS_HELD)},
followed AS (
    UPDATE claim_members SET consumer = %(target)s
    WHERE consumer = %(source)s AND {_IS_HELD}
    AND (SELECT count(*) FROM parted) >= 0 RETURNING 1)
UPDATE allocations SET consumer = %(target)s
WHERE consumer = %(source)s AND {_IS_HELD}
AND (SELECT count(*) FROM noted) >= 0
AND (SELECT count(*) FROM followed) >= 0
RETURNING 1
'''


def release(database: session.Database, consumers: Iterable[str]) -> None:
    """Release all claims of the consumers.

    :raises cellsched.db.guarded_statements.StatementRefused: the transaction
        lost to another one
    """
    these = list(dict.fromkeys(consumers))
    guarded_statements.execute(database, _RELEASE, {
        'these': these, 'held': these, 'lane': schema.FEED.lane(these[0])})


def transfer(database: session.Database, source: str, target: str) -> bool:
    """Transfer the claims of one consumer; return whether it held any.

    :raises cellsched.db.guarded_statements.StatementRefused: the target has
        claimed something concurrently
    """
    return bool(guarded_statements.execute(database, _TRANSFER, {
        'these': [target], 'held': [source, target], 'source': source,
        'target': target, 'lane': schema.FEED.lane(target)}))


_LOCKED = '''
WITH free AS (
    SELECT uuid FROM providers WHERE uuid = ANY(%(uuids)s::text[])
    FOR UPDATE SKIP LOCKED),
available AS (
    SELECT provider FROM inventories WHERE provider = ANY(%(uuids)s::text[])
    FOR UPDATE SKIP LOCKED)
SELECT p.uuid FROM providers AS p WHERE p.uuid = ANY(%(uuids)s::text[]) AND NOT
    (EXISTS (SELECT FROM free WHERE free.uuid = p.uuid)
     AND (SELECT count(*) FROM available WHERE provider = p.uuid)
     = (SELECT count(*) FROM inventories WHERE provider = p.uuid))
'''


def locked(database: session.Database, providers: Iterable[str]) -> set[str]:
    """Return the providers with rows that a transaction has locked."""
    return {uuid for uuid, in guarded_statements.execute(
        database, _LOCKED, {'uuids': list(providers)})}
