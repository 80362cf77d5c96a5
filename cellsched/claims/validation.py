# SPDX-License-Identifier: Apache-2.0
"""Validation and refusal of claims, shared by all stores.

A store may use these functions or make the same decisions in its own way.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import re
import types
from typing import Any
from typing import NoReturn

from cellsched.claims import base
from cellsched import exception
from cellsched.objects import resources
from cellsched.validation.uuids import canonical
from cellsched.validation.uuids import CANONICAL

#: Valid ids, which are uuids, and names of resource classes.
_ID = re.compile(r'[!-~]{1,36}')
_RESOURCE_CLASS = re.compile(r'[A-Z0-9_]{1,255}')
_TRAIT = re.compile(r'[A-Z0-9_]{1,255}')

#: The largest amount, in the unit of the resource class.
AMOUNT_MAX = resources.AMOUNT_MAX
RATIO_MAX = 1e6

#: Maximum number of characters in the name of a host.
HOST_MAX = 255

#: Ids of projects and users are free text from an identity service, without
#: characters that databases cannot store: NUL and surrogates.
ID_MAX = 255
_UNKEPT = re.compile('[\0\ud800-\udfff]')

#: Fields that are the same in all claims of a consumer.
_OF_CONSUMER = ('group', 'project_id', 'user_id')

#: Group, consumer, member and host of each member.
Members = Iterable[tuple[str, str, str, str]]


def check_claims(claims: Sequence[base.Claim]) -> None:
    """Check a batch.

    :raises cellsched.exception.InvalidField: names the field and its bounds
    """
    seen = set()
    first: dict[str, base.Claim] = {}
    for claim in claims:
        where = f'claim of {claim.consumer!r:.80}'
        _check_uuid(claim.consumer, where, 'consumer')
        _check_uuid(claim.provider, where, 'provider')
        if (claim.consumer, claim.provider) in seen:
            _refuse(where, 'provider', 'each provider once',
                    f'{claim.provider} is repeated')
        if not claim.resources:
            _refuse(where, 'resources', 'at least one')
        _check_classes(claim.resources, where)
        for resource, amount in claim.resources.items():
            _check_amount(amount, where, resource, 1)
        earlier = first.setdefault(claim.consumer, claim)
        if earlier is claim:
            if claim.project_id is not None:
                check_id(where, 'project_id', claim.project_id)
            if claim.user_id is not None:
                check_id(where, 'user_id', claim.user_id)
        else:
            for field in _OF_CONSUMER:
                _expect(getattr(claim, field) == getattr(earlier, field),
                        where, field, 'the same in all claims of a consumer')
        if claim.group is not None:
            _check_membership(claim.group, where)
        seen.add((claim.consumer, claim.provider))


def check_provider(claim: base.Claim) -> None:
    """Check only the provider of a claim.

    :raises cellsched.exception.InvalidField: as :func:`check_claims`
    """
    _check_uuid(claim.provider, f'claim of {claim.consumer!r:.80}', 'provider')


def check_id(where: str, field: str, value: Any) -> None:
    """Check the id of a project or a user.

    :raises cellsched.exception.InvalidField: names the field
    """
    good = isinstance(value, str) and 0 < len(value) <= ID_MAX and (
        # The check of ASCII is faster than the regular expression.
        value.isascii() and '\0' not in value or not _UNKEPT.search(value))
    if not good:
        _refuse(where, field, f'an id of 1 to {ID_MAX} characters')


def check_transfer(source: str, target: str) -> None:
    """Check the consumers of a transfer.

    :raises cellsched.exception.InvalidField: names the field and its bounds
    """
    where = f'transfer from {source!r:.80}'
    _check_uuid(source, where, 'source')
    _check_uuid(target, where, 'target')
    _expect(source != target, where, 'target', 'another consumer')


def check_limit(limit: int) -> None:
    """Check the limit of a page.

    :raises cellsched.exception.InvalidField: it is below 1
    """
    _check_amount(limit, 'consumers', 'limit', 1)


def is_trait(name: str) -> bool:
    """Return whether a name is valid for a trait."""
    return _is(_TRAIT, name)


def check_traits(provider: str, traits: Iterable[str], root: str) -> None:
    """Check the traits and the root of a provider.

    :raises cellsched.exception.InvalidField: names the field and its bounds
    """
    where = f'traits of {provider!r:.80}'
    _check_uuid(provider, where, 'provider')
    _check_uuid(root, where, 'root')
    _check_names(where, 'traits', traits)


def check_query(query: base.ProviderQuery, limit: int | None) -> None:
    """Check a query for providers.

    :raises cellsched.exception.InvalidField: names the field and its bounds
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
    """Check an inventory.

    :raises cellsched.exception.InvalidField: names the field and its bounds
    """
    where = f'inventory of {provider!r:.80}'
    _check_uuid(provider, where, 'provider')
    _check_classes(inventory, where)
    for resource, has in inventory.items():
        for field, least in (('total', 0), ('reserved', 0), ('min_unit', 1),
                             ('max_unit', 1), ('step_size', 1)):
            _check_amount(
                getattr(has, field), where, f'{resource} {field}', least)
        ratio = has.allocation_ratio
        _expect(isinstance(ratio, (int, float)) and 0 < ratio <= RATIO_MAX,
                where, f'{resource} allocation_ratio',
                f'above 0 and at most {RATIO_MAX:.0f}',
                f'{ratio!r:.80} is not valid')


def by_consumer(claims: Iterable[base.Claim]) -> dict[str, list[base.Claim]]:
    """Return claims by their consumer."""
    found: dict[str, list[base.Claim]] = {}
    for claim in claims:
        found.setdefault(claim.consumer, []).append(claim)
    return found


def outstanding(
    claims: Iterable[base.Claim], held: Mapping[str, Iterable[base.Claim]]
) -> list[base.Claim]:
    """Return the claims of a batch whose consumers hold no claims.

    :param held: result of :meth:`.base.ClaimStore.claims_of`
    :raises cellsched.exception.ClaimConflict: a consumer holds claims other
        than those in the batch
    """
    requested = by_consumer(claims)
    for consumer, holds in held.items():
        if _contents(holds) != _contents(requested.pop(consumer, ())):
            raise exception.ClaimConflict(consumer=consumer)
    return [claim for claim in claims if claim.consumer in requested]


def choose(
    batches: Sequence[Sequence[base.Claim]],
    held: Mapping[str, Sequence[base.Claim]],
    find: Callable[[Sequence[base.Claim]], exception.ClaimRefused | None],
    known: Mapping[int, exception.ClaimBusy] = types.MappingProxyType({}),
) -> tuple[base.AnyOf, Sequence[base.Claim]]:
    """Return the outcome of a request in a known state, and its new claims.

    This is :meth:`.base.Claims.claim_any` without the write.

    :param batches: the alternatives, of which the first one is checked
    :param held: claims of its consumers
    :param find: returns why new claims are refused; None if they fit
    :param known: refusals of batches that are not to be claimed, by position
    :raises cellsched.exception.ClaimConflict: a consumer holds claims that are
        not those of a batch
    :raises cellsched.exception.InvalidField: :func:`check_claims` rejects a
        batch
    """
    for position, batch in enumerate(batches if held else ()):
        if base.is_held(batch, held):
            return base.AnyOf(position), ()
    refusals: dict[int, exception.ClaimRefused | exception.ClaimBusy] = {}
    for position, batch in enumerate(batches):
        if position:
            check_claims(batch)
        new = outstanding(batch, held) if held else batch
        refusal = known.get(position) or find(new)
        if refusal is None:
            return base.AnyOf(position, len(new), refusals), new
        refusals[position] = refusal
    return base.AnyOf(None, 0, refusals), ()


def find_refusal(
    claims: Iterable[base.Claim],
    inventories: Mapping[str, Mapping[str, base.Inventory]],
    used: Mapping[str, Mapping[str, int]],
) -> exception.ClaimRefused | None:
    """Return why a batch does not fit, or None if it does.

    The error names the first claim that does not fit together with those
    before it.

    :param inventories: by provider and resource class
    :param used: used amounts by provider and resource class
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
    """Return how a batch violates a hard policy, or None if it does not.

    The error names the first claim that violates its policy together with
    those before it.

    :param claims: claims of consumers that hold none yet
    :param members: the members of the batch's groups that hold claims, under
        any consumer
    """
    holding: _Groups = collections.defaultdict(_hosts)
    counted: _Groups = collections.defaultdict(_hosts)
    members = list(members)
    for group, _, member, host in members:
        holding[group][host].add(member)
        counted[group][host].add(member)
    seen = set()
    for claim in claims:
        joins = claim.group
        if joins is None or claim.consumer in seen:
            continue
        seen.add(claim.consumer)
        member = joins.member or claim.consumer
        if not _admits(joins, _closed(joins, counted[joins.group], member)):
            # The error lists members with claims, not those of the batch.
            return exception.GroupPolicyViolated(
                provider=claim.provider, consumer=claim.consumer,
                group=joins.group, policy=joins.policy,
                hosts=_closed(joins, holding[joins.group], member),
                members=sorted(
                    consumer for group, consumer, each, _ in members
                    if group == joins.group and each != member))
        counted[joins.group][joins.host].add(member)
    return None


#: Members by group and host.
_Groups = collections.defaultdict[
    str, collections.defaultdict[str, set[str]]]


def _hosts() -> collections.defaultdict[str, set[str]]:
    return collections.defaultdict(set)


def _closed(
    joins: base.Membership, hosts: Mapping[str, set[str]], member: str
) -> list[str]:
    """Return the hosts that other members make full, or occupy."""
    affine = joins.policy == base.AFFINITY
    least = 1 if affine else joins.max_server_per_host
    return sorted(host for host, members in hosts.items()
                  if len(members) - (member in members) >= least
                  and not (affine and host in joins.lost_hosts))


def _admits(joins: base.Membership, hosts: Sequence[str]) -> bool:
    """Return whether a policy admits a member beside those on hosts."""
    if joins.policy == base.AFFINITY:
        return set(hosts) <= {joins.host}
    return joins.host not in hosts


_NOTHING = base.Inventory(total=0)


def _contents(claims: Iterable[base.Claim]) -> dict[str, dict[str, int]]:
    return {claim.provider: dict(claim.resources) for claim in claims}


def _is(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and bool(pattern.fullmatch(value))


def _check_uuid(value: Any, where: str, field: str) -> None:
    if isinstance(value, str) and CANONICAL.fullmatch(value):
        return
    _expect(_is(_ID, value), where, field, 'a uuid')
    if canonical(value) is not None:
        # Stores compare texts: it would be another consumer or provider.
        _refuse(where, field, 'a uuid in lower case, with hyphens',
                f'{value!r:.80} is another form of a uuid')


def _check_classes(resources: Mapping[str, Any], where: str) -> None:
    for resource in resources:
        if not (isinstance(resource, str)
                and _RESOURCE_CLASS.fullmatch(resource)):
            _refuse(where, 'resource class',
                    'A-Z, 0-9 and _, at most 255 characters',
                    f'{resource!r:.80} is not valid')


def _check_amount(amount: Any, where: str, field: str, least: int) -> None:
    if type(amount) is not int or not least <= amount <= AMOUNT_MAX:
        _refuse(where, field, f'a whole number from {least} to {AMOUNT_MAX}',
                f'{amount!r:.80} is not valid')


def _expect(
    holds: Any, where: str, field: str, expected: str,
    problem: str | None = None,
) -> None:
    if not holds:
        _refuse(where, field, expected, problem)


def _refuse(
    where: str, field: str, expected: str, problem: str | None = None
) -> NoReturn:
    raise exception.InvalidField(
        where=where, field=field, problem=problem, expected=expected)


def _check_membership(joins: base.Membership, where: str) -> None:
    _check_uuid(joins.group, where, 'group')
    if joins.member:
        _check_uuid(joins.member, where, 'group member')
    _expect(isinstance(joins.host, str) and 0 < len(joins.host) <= HOST_MAX
            and '\0' not in joins.host, where, 'group host',
            f'a name of at most {HOST_MAX} characters')
    _expect(joins.policy in base.HARD_POLICIES, where, 'group policy',
            f'one of {", ".join(base.HARD_POLICIES)}')
    _check_amount(joins.max_server_per_host, where,
                  'group max_server_per_host', 1)
