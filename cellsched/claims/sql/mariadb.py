# SPDX-License-Identifier: Apache-2.0
"""Writes of the store on MariaDB, each in one round trip.

A client that stops between two round trips of a transaction keeps its locks.
Here each write is a compound statement, which begins and ends its transaction
at the server. MySQL executes no compound statement outside of procedures, so
there :mod:`.transactions` writes.

All writes lock in the order of :mod:`.transactions`. The hints keep InnoDB
from reading a small table whole, which locks all its rows. A query in the
condition of an IF locks the rows that it reads, a query into a variable does
not. A release first negates
the amounts of the rows that it locks: a row that another transaction adds
later has a positive amount, and is not taken for one of them.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import group_members
from cellsched.claims.sql import schema
from cellsched.db import guarded_statements
from cellsched.db import session

_COMPOUND = '''
BEGIN NOT ATOMIC
    {declare}
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    {body}
    COMMIT;
    {result}
END
'''

_REFUSE = "SIGNAL SQLSTATE '45000'"


def compound(*body: str, declare: str = '', result: str = '') -> str:
    """Return a transaction of some statements.

    :param result: a query of variables, after the commit
    """
    return _COMPOUND.format(
        declare=declare, body='\n'.join(body), result=result)


def _changing(statement: str, rows: int) -> str:
    """Return a statement that fails unless it changes this many rows."""
    return f'{statement}; IF ROW_COUNT() <> {rows:d} THEN {_REFUSE}; END IF;'


#: Locks the rows that it reads, in the order of the key.
_LOCK = '''
SELECT COUNT(consumers) INTO @cellsched FROM providers FORCE INDEX (PRIMARY)
WHERE uuid IN %(uuids)s FOR UPDATE;
'''

_MOVE = _changing('UPDATE feed_lanes SET position = position + 1 '
                  'WHERE lane = %(lane)s', 1)

_MARK = ('lane = %(lane)s, position = ('
         'SELECT position FROM feed_lanes WHERE lane = %(lane)s)')


def claim(database: session.Database, claims: Sequence[base.Claim]) -> None:
    """Claim a batch for consumers that hold nothing.

    :raises cellsched.db.guarded_statements.StatementRefused: a consumer holds
        claims, or a claim does not fit or violates a policy
    """
    parameters: dict[str, Any] = {
        'lane': schema.FEED.lane(claims[0].consumer)}
    body = []
    # 1. Lock the groups, add the allocations, then the members.
    joining = group_members.joining(claims)
    locks, joins = group_members.script(joining, parameters)
    body += [f'{lock};' for lock in locks]
    body.append(_insert(fragments.rows(claims), parameters))
    if joining:
        parameters['joining'] = [each.consumer for each in joining]
        body.append('DELETE claim_members FROM claim_members '
                    'FORCE INDEX (PRIMARY) WHERE consumer IN %(joining)s;')
    for insert, condition in joins:
        body.append(f'SELECT {condition} INTO @cellsched; IF NOT @cellsched '
                    f'THEN {_REFUSE}; END IF; {insert};')
    # 2. Lock the providers, and add to the inventories that have capacity.
    groups = fragments.group(claims)
    parameters['uuids'] = sorted(
        uuid for uuids in groups.values() for uuid in uuids)
    body.append(_LOCK)
    for n, (demand, uuids) in enumerate(groups.items()):
        parameters[f'uuids_{n}'] = uuids
        body += [_add(share, n, number, len(uuids), parameters)
                 for number, share in enumerate(demand.shares)]
    # 3. Move the providers in the feed.
    body.append(_MOVE)
    body += [
        'UPDATE providers FORCE INDEX (PRIMARY) '
        f'SET consumers = consumers + {demand.consumers:d}, {_MARK} '
        f'WHERE uuid IN %(uuids_{n})s;'
        for n, demand in enumerate(groups)]
    guarded_statements.execute(database, compound(*body), parameters)


#: Reads without a lock which candidates fit, locks the first one that is not
#: locked, and reads it again. InnoDB reads the newest rows for that.
_CHOOSE = '''
FOR candidate IN (
    SELECT provider FROM inventories FORCE INDEX (PRIMARY)
    WHERE provider IN %(uuids)s AND ({fits})
    GROUP BY provider HAVING COUNT(*) = {classes}
    ORDER BY FIND_IN_SET(provider, %(order)s)) DO
    IF chosen IS NULL THEN
        SELECT COUNT(consumers) INTO free FROM providers FORCE INDEX (PRIMARY)
        WHERE uuid = candidate.provider FOR UPDATE SKIP LOCKED;
        IF free = 1 THEN
            SELECT COUNT(used) INTO free FROM inventories FORCE INDEX (PRIMARY)
            WHERE provider = candidate.provider AND ({fits}) FOR UPDATE;
            IF free = {classes} THEN
                SET chosen = candidate.provider;
            END IF;
        END IF;
    END IF;
END FOR;
IF chosen IS NOT NULL THEN
    INSERT INTO allocations (consumer, ordinal, provider, resource_class,
        amount, project_id, user_id) VALUES {rows};
    {add}
    {move}
    UPDATE providers SET consumers = consumers + 1, {mark}
    WHERE uuid = chosen;
END IF;
'''


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
    first, uuids = claims[0], [claim.provider for claim in claims]
    parameters: dict[str, Any] = {
        'lane': schema.FEED.lane(first.consumer), 'uuids': uuids,
        'order': ','.join(uuids), 'consumer': first.consumer,
        'project_id': first.project_id, 'user_id': first.user_id}
    fits, rows, add = [], [], []
    for row in fragments.rows([first]):
        ordinal, amount = row['ordinal'], row['amount']
        name = f'resource_{ordinal}'
        parameters[name] = row['resource_class']
        owner = 'NULL, NULL' if ordinal else '%(project_id)s, %(user_id)s'
        fits.append(
            f'resource_class = %({name})s AND used + {amount:d} <= capacity '
            f'AND {amount:d} BETWEEN min_unit AND max_unit '
            f'AND MOD({amount:d}, step_size) = 0')
        rows.append(f'(%(consumer)s, {ordinal:d}, chosen, %({name})s, '
                    f'{amount:d}, {owner})')
        add.append(_changing(
            f'UPDATE inventories SET used = used + {amount:d} WHERE provider '
            f'= chosen AND resource_class = %({name})s', 1))
    [(place,)] = guarded_statements.execute(database, compound(
        _CHOOSE.format(
            classes=len(rows), fits=' OR '.join(fits), rows=', '.join(rows),
            add='\n    '.join(add), move=_MOVE, mark=_MARK),
        declare='DECLARE free INT; DECLARE chosen VARCHAR(36);',
        result='SELECT FIND_IN_SET(chosen, %(order)s);'), parameters)
    return None if place is None else place - 1


def _insert(
    rows: Iterable[Mapping[str, Any]], parameters: dict[str, Any]
) -> str:
    """Return the INSERT of the allocations, and add its parameters."""
    names: tuple[str, ...] = ()
    values = []
    for n, row in enumerate(rows):
        names = tuple(row)
        parameters |= {f'{name}_row{n}': row[name] for name in names}
        values.append(f'({", ".join(f"%({name}_row{n})s" for name in names)})')
    return (f'INSERT INTO allocations ({", ".join(names)}) '
            f'VALUES {", ".join(values)};')


def _add(
    share: fragments.ClassDemand, group: int, number: int, providers: int,
    parameters: dict[str, Any],
) -> str:
    """Return the UPDATE that claims a class of some providers if it fits."""
    name = f'resource_{group}_{number}'
    parameters[name] = share.resource
    return _changing(
        'UPDATE inventories FORCE INDEX (PRIMARY) '
        f'SET used = used + {share.amount:d} '
        f'WHERE provider IN %(uuids_{group})s AND resource_class = %({name})s '
        f'AND used + {share.amount:d} <= capacity '
        f'AND min_unit <= {share.smallest:d} '
        f'AND max_unit >= {share.largest:d} '
        f'AND MOD({share.divisor:d}, step_size) = 0', providers)


#: Releases the consumers in the parameter ``these``, if they hold claims.
_GIVE_BACK = f'''
UPDATE allocations FORCE INDEX (PRIMARY) SET amount = -amount
WHERE consumer IN %(these)s AND amount > 0 ORDER BY consumer, ordinal;
IF ROW_COUNT() > 0 THEN
    FOR held IN (
        SELECT provider, COUNT(DISTINCT consumer) AS consumers
        FROM allocations WHERE consumer IN %(these)s AND amount < 0
        GROUP BY provider ORDER BY provider) DO
        UPDATE providers SET consumers = consumers - held.consumers
        WHERE uuid = held.provider;
    END FOR;
    FOR held IN (
        SELECT provider, resource_class, SUM(amount) AS amount
        FROM allocations WHERE consumer IN %(these)s AND amount < 0
        GROUP BY provider, resource_class) DO
        UPDATE inventories SET used = used + held.amount
        WHERE provider = held.provider
        AND resource_class = held.resource_class;
    END FOR;
    FOR held IN (
        SELECT consumer FROM allocations
        WHERE consumer IN %(these)s AND ordinal = 0 AND amount < 0) DO
        DELETE FROM claim_members WHERE consumer = held.consumer;
    END FOR;
    {_MOVE}
    FOR held IN (
        SELECT DISTINCT provider FROM allocations
        WHERE consumer IN %(these)s AND amount < 0) DO
        UPDATE providers SET {_MARK} WHERE uuid = held.provider;
    END FOR;
    DELETE allocations FROM allocations FORCE INDEX (PRIMARY)
    WHERE consumer IN %(these)s AND amount < 0;
END IF;
'''

_RELEASE = compound(_GIVE_BACK)

_TRANSFER = compound(
    '''
SELECT COALESCE(SUM(consumer = %(source)s), 0) INTO of_source
FROM allocations FORCE INDEX (PRIMARY)
WHERE consumer IN %(both)s FOR UPDATE;
IF of_source > 0 THEN
''', _GIVE_BACK, '''
    UPDATE allocations SET consumer = %(target)s WHERE consumer = %(source)s;
    DELETE FROM claim_members WHERE consumer = %(target)s;
    UPDATE claim_members SET consumer = %(target)s
    WHERE consumer = %(source)s;
END IF;
''', declare='DECLARE of_source INT;', result='SELECT of_source;')


def release(database: session.Database, consumers: Iterable[str]) -> None:
    """Release all claims of the consumers.

    :raises cellsched.db.guarded_statements.StatementRefused: the transaction
        lost to another one
    """
    these = list(dict.fromkeys(consumers))
    guarded_statements.execute(database, _RELEASE, {
        'these': these, 'lane': schema.FEED.lane(these[0])})


def transfer(database: session.Database, source: str, target: str) -> bool:
    """Transfer the claims of one consumer; return whether it held any.

    :raises cellsched.db.guarded_statements.StatementRefused: the target has
        claimed something concurrently
    """
    [(held,)] = guarded_statements.execute(database, _TRANSFER, {
        'these': [target], 'both': [source, target], 'source': source,
        'target': target, 'lane': schema.FEED.lane(target)})
    return bool(held)


#: Reads the rows without a lock, then tries to lock each of them. A row that
#: is locked is not found.
_LOCKED = compound(
    '''
FOR known IN (SELECT uuid FROM providers WHERE uuid IN %(uuids)s) DO
    SELECT COUNT(*) INTO free FROM providers
    WHERE uuid = known.uuid FOR UPDATE SKIP LOCKED;
    SELECT COUNT(*) INTO available FROM inventories
    WHERE provider = known.uuid FOR UPDATE SKIP LOCKED;
    SELECT COUNT(*) INTO present FROM inventories WHERE provider = known.uuid;
    IF free = 0 OR available < present THEN
        SET found = CONCAT_WS(' ', found, known.uuid);
    END IF;
END FOR;
''', declare='DECLARE free, available, present INT; DECLARE found MEDIUMTEXT;',
    result='SELECT found;')


def locked(database: session.Database, providers: Iterable[str]) -> set[str]:
    """Return the providers with rows that a transaction has locked."""
    [(found,)] = guarded_statements.execute(
        database, _LOCKED, {'uuids': list(providers)})
    return set((found or '').split())
