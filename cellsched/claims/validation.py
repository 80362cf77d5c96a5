# SPDX-License-Identifier: Apache-2.0
"""Decisions that all claim stores share: valid claims, and refusals.

A store may use these functions or decide the same in another way.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import re
from typing import Any

from cellsched.claims import base
from cellsched import exception
from cellsched.objects import resources

#: What uuids and the names of resource classes may be made of.
_UUID = re.compile(r'[!-~]{1,36}')
_RESOURCE_CLASS = re.compile(r'[A-Z0-9_]{1,255}')
_TRAIT = re.compile(r'[A-Z0-9_]{1,255}')

#: The largest amount of anything, in its unit.
AMOUNT_MAX = resources.AMOUNT_MAX
RATIO_MAX = 1e6

#: Characters in the name of a host.
HOST_MAX = 255

#: Ids of projects and users: whatever an identity service calls them. A
#: database keeps neither NUL nor half of a character.
ID_MAX = 255
_UNKEPT = re.compile('[\0\ud800-\udfff]')

#: Fields of which a consumer has one value in a batch.
_OF_CONSUMER = ('group', 'project_id', 'user_id')

#: Members of groups: group, consumer, member and host of each.
Members = Iterable[tuple[str, str, str, str]]


def check_claims(claims: Sequence[base.Claim]) -> None:
    """Make sure that a batch makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    seen = set()
    first: dict[str, base.Claim] = {}
    for claim in claims:
        where = f'claim of {claim.consumer!r:.80}'
        _expect(_is(_UUID, claim.consumer), where, 'consumer', 'a uuid')
        _expect(_is(_UUID, claim.provider), where, 'provider', 'a uuid')
        _expect((claim.consumer, claim.provider) not in seen, where,
                'provider', f'each one once, not {claim.provider} again')
        _expect(claim.resources, where, 'resources', 'at least one')
        _check_classes(claim.resources, where)
        for resource, amount in claim.resources.items():
            _check_amount(amount, where, resource, 1)
        other = first.setdefault(claim.consumer, claim)
        if other is claim:
            if claim.project_id is not None:
                check_id(where, 'project_id', claim.project_id)
            if claim.user_id is not None:
                check_id(where, 'user_id', claim.user_id)
        else:
            for field in _OF_CONSUMER:
                _expect(getattr(claim, field) == getattr(other, field),
                        where, field, 'one for all of its claims')
        if claim.group is not None:
            _check_membership(claim.group, where)
        seen.add((claim.consumer, claim.provider))


def check_id(where: str, field: str, value: Any) -> None:
    """Make sure that a value can be the id of a project or of a user.

    :raises cellsched.exception.InvalidField: it cannot
    """
    good = isinstance(value, str) and 0 < len(value) <= ID_MAX and (
        # Nearly all are ASCII, which takes less time to see.
        value.isascii() and '\0' not in value or not _UNKEPT.search(value))
    _expect(good, where, field, f'an id of 1 to {ID_MAX} characters')


def check_transfer(source: str, target: str) -> None:
    """Make sure that a transfer makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    where = f'transfer from {source!r:.80}'
    _expect(_is(_UUID, source), where, 'source', 'a uuid')
    _expect(_is(_UUID, target), where, 'target', 'a uuid')
    _expect(source != target, where, 'target', 'another one than the source')


def check_limit(limit: int) -> None:
    """Make sure that a limit is one.

    :raises cellsched.exception.InvalidField: names its bound
    """
    _check_amount(limit, 'consumers', 'limit', 1)


def is_trait(name: str) -> bool:
    """Return whether a store can be told of a trait of this name."""
    return _is(_TRAIT, name)


def check_traits(provider: str, traits: Iterable[str], root: str) -> None:
    """Make sure that what is said of a provider makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    where = f'traits of {provider!r:.80}'
    _expect(_is(_UUID, provider), where, 'provider', 'a uuid')
    _expect(_is(_UUID, root), where, 'root', 'a uuid')
    _check_names(where, 'traits', traits)


def check_query(query: base.ProviderQuery, limit: int | None) -> None:
    """Make sure that what providers are to have makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    where = 'query for providers'
    _check_classes(query.resources, where)
    for resource, amounts in query.resources.items():
        _expect(amounts, where, resource, 'at least one amount')
        for amount in amounts:
            _check_amount(amount, where, resource, 1)
    _check_names(where, 'required', query.required)
    _check_names(where, 'forbidden', query.forbidden)
    if limit is not None:
        _check_amount(limit, where, 'limit', 1)


def _check_names(where: str, field: str, traits: Iterable[str]) -> None:
    _expect(all(map(is_trait, traits)), where, field,
            'names of A-Z, 0-9 and _, at most 255 characters each')


def check_inventory(
    provider: str, inventory: Mapping[str, base.Inventory]
) -> None:
    """Make sure that what a provider says it has makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    where = f'inventory of {provider!r:.80}'
    _expect(_is(_UUID, provider), where, 'provider', 'a uuid')
    _check_classes(inventory, where)
    for resource, said in inventory.items():
        for field, least in (('total', 0), ('reserved', 0), ('min_unit', 1),
                             ('max_unit', 1), ('step_size', 1)):
            _check_amount(
                getattr(said, field), where, f'{resource} {field}', least)
        ratio = said.allocation_ratio
        _expect(isinstance(ratio, (int, float)) and 0 < ratio <= RATIO_MAX,
                where, f'{resource} allocation_ratio',
                f'above 0 and at most {RATIO_MAX:.0f}, not {ratio!r:.80}')


def outstanding(
    claims: Iterable[base.Claim], held: Mapping[str, Iterable[base.Claim]]
) -> list[base.Claim]:
    """Return those of a batch whose consumers hold nothing yet.

    :param held: as :meth:`.base.ClaimStore.claims_of` tells
    :raises cellsched.exception.ClaimConflict: a consumer holds something
        else than the batch takes for it
    """
    wanted: dict[str, list[base.Claim]] = {}
    for claim in claims:
        wanted.setdefault(claim.consumer, []).append(claim)
    for consumer, holds in held.items():
        if _contents(holds) != _contents(wanted.pop(consumer, ())):
            raise exception.ClaimConflict(consumer=consumer)
    return [claim for claim in claims if claim.consumer in wanted]


def find_refusal(
    claims: Iterable[base.Claim],
    inventories: Mapping[str, Mapping[str, base.Inventory]],
    used: Mapping[str, Mapping[str, int]],
) -> exception.ClaimRefused | None:
    """Return why a batch cannot be taken, or None if it can.

    Goes through the batch in order and finds the first claim that does not
    fit beside those before it.

    :param inventories: what providers have, by resource class
    :param used: what is taken of it
    """
    more: collections.Counter[tuple[str, str]] = collections.Counter()
    for claim in claims:
        provider = claim.provider
        for resource, amount in sorted(claim.resources.items()):
            more[provider, resource] += amount
            has = inventories.get(provider, {}).get(resource, _NOTHING)
            taken = used.get(provider, {}).get(resource, 0)
            room = has.capacity - taken - more[provider, resource]
            if room < 0 or not has.admits(amount):
                return exception.ClaimRefused(
                    provider=provider, resource=resource, amount=amount,
                    consumer=claim.consumer)
    return None


def find_violation(
    claims: Iterable[base.Claim], members: Members
) -> exception.GroupPolicyViolated | None:
    """Return how a batch breaks a hard policy, or None if it does not.

    Goes through the batch in order and finds the first claim that breaks one
    beside those before it.

    :param claims: those whose consumers hold nothing yet
    :param members: those of the batch's groups that hold something, in
        whatever names
    """
    held: _Groups = collections.defaultdict(_hosts)
    both: _Groups = collections.defaultdict(_hosts)
    members = list(members)
    for group, _, member, host in members:
        held[group][host].add(member)
        both[group][host].add(member)
    seen = set()
    for claim in claims:
        joins = claim.group
        if joins is None or claim.consumer in seen:
            continue
        seen.add(claim.consumer)
        member = joins.member or claim.consumer
        if not _admits(joins, _closed(joins, both[joins.group], member)):
            # What the batch would take is not taken.
            return exception.GroupPolicyViolated(
                provider=claim.provider, consumer=claim.consumer,
                group=joins.group, policy=joins.policy,
                hosts=_closed(joins, held[joins.group], member),
                members=sorted(
                    consumer for group, consumer, other, _ in members
                    if group == joins.group and other != member))
        both[joins.group][joins.host].add(member)
    return None


#: Members by group and host.
_Groups = collections.defaultdict[
    str, collections.defaultdict[str, set[str]]]


def _hosts() -> collections.defaultdict[str, set[str]]:
    return collections.defaultdict(set)


def _closed(
    joins: base.Membership, hosts: Mapping[str, set[str]], member: str
) -> list[str]:
    """Return the hosts where others are, as many as the policy cares for."""
    least = (1 if joins.policy == base.AFFINITY
             else joins.max_server_per_host)
    return sorted(host for host, members in hosts.items()
                  if len(members) - (member in members) >= least)


def _admits(joins: base.Membership, hosts: Sequence[str]) -> bool:
    """Return whether a policy admits the member, others being on hosts."""
    if joins.policy == base.AFFINITY:
        return set(hosts) <= {joins.host}
    return joins.host not in hosts


_NOTHING = base.Inventory(total=0)


def _contents(claims: Iterable[base.Claim]) -> dict[str, dict[str, int]]:
    return {claim.provider: dict(claim.resources) for claim in claims}


def _is(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and bool(pattern.fullmatch(value))


def _check_classes(resources: Mapping[str, Any], where: str) -> None:
    for resource in resources:
        _expect(_is(_RESOURCE_CLASS, resource), where, 'resource class',
                f'A-Z, 0-9 and _, at most 255, not {resource!r:.80}')


def _check_amount(amount: Any, where: str, field: str, least: int) -> None:
    _expect(type(amount) is int and least <= amount <= AMOUNT_MAX, where,
            field, f'a whole number from {least} to {AMOUNT_MAX}, '
                   f'not {amount!r:.80}')


def _expect(holds: Any, where: str, field: str, expected: str) -> None:
    if not holds:
        raise exception.InvalidField(
            where=where, field=field, expected=expected)


def _check_membership(joins: base.Membership, where: str) -> None:
    _expect(_is(_UUID, joins.group), where, 'group', 'a uuid')
    _expect(not joins.member or _is(_UUID, joins.member), where,
            'group member', 'a uuid')
    _expect(isinstance(joins.host, str) and 0 < len(joins.host) <= HOST_MAX
            and '\0' not in joins.host, where, 'group host',
            f'a name of at most {HOST_MAX} characters')
    _expect(joins.policy in base.HARD_POLICIES, where, 'group policy',
            f'one of {", ".join(base.HARD_POLICIES)}')
    _check_amount(joins.max_server_per_host, where,
                  'group max_server_per_host', 1)
