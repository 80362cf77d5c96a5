# SPDX-License-Identifier: Apache-2.0
"""Request groups: resources and traits of a single provider.

A flavor numbers them by a suffix, ``resources1:VGPU=1`` with
``trait1:CUSTOM_FAST=required``. The groups of ports and devices come with the
request, as Nova's ``RequestGroup``.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools
import re
from typing import Any
from typing import NamedTuple
import uuid

from oslo_utils import uuidutils

from cellsched import exception
from cellsched.objects import resources

#: The pattern of a suffix.
SUFFIX = '[a-zA-Z0-9_-]{1,64}'

#: The most groups of one request.
GROUPS_MAX = 64

#: The most classes, traits, and aggregates, of one group.
PARTS_MAX = 64

#: Prefixes of the extra specs of groups.
_SCOPES = ('resources', 'trait')

_SPEC = re.compile(f'(?s)(resources|trait)({SUFFIX}):(.*)')
_SUFFIX = re.compile(SUFFIX)
_CUSTOM_TRAIT = re.compile(r'CUSTOM_[A-Z0-9_]{1,248}')

_REQUIRED, _FORBIDDEN = 'required', 'forbidden'
_POLICIES = {None: False, 'none': False, 'isolate': True}

#: In error messages: the valid names of traits.
TRAITS = ('a trait of os-traits, or CUSTOM_ and capital letters, digits '
          'and _')
_POLICY = ('none or isolate: whether each of several groups has a provider '
           'of its own')

#: Fields of a ``RequestGroup`` that are read; not its results.
_FIELDS = frozenset({
    'use_same_provider', 'resources', 'required_traits', 'forbidden_traits',
    'aggregates', 'forbidden_aggregates', 'requester_id', 'in_tree',
    'provider_uuids'})


class RequestGroup(NamedTuple):
    """A part of a request that a single provider has to serve.

    :param suffix: ``1``, ``_GPU``, or the id of the port or device; unique in
        the request
    :param resources: pairs of a resource class and an amount of at least 1,
        sorted by class; empty if only the provider's position matters
    :param required: traits that the provider must have
    :param forbidden: traits that it must not have
    :param in_tree: uuid of a provider; the group's provider is in its tree
    :param aggregates: sets of uuids; the provider must be in one aggregate of
        each set
    :param forbidden_aggregates: uuids of aggregates that the provider must
        not be in
    """

    suffix: str
    resources: tuple[tuple[str, int], ...]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    in_tree: str | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()


class GroupDemand(NamedTuple):
    """All groups of a request.

    :param groups: sorted by suffix
    :param isolate: whether each group needs a different provider
    :param same_subtree: sets of suffixes; the providers of a set form one
        subtree, with one of them as its root
    """

    groups: tuple[RequestGroup, ...] = ()
    isolate: bool = False
    same_subtree: tuple[frozenset[str], ...] = ()


#: The demand of most requests.
NO_GROUPS = GroupDemand()


def is_trait(name: str) -> bool:
    """Return whether a string is a valid trait name."""
    return (_CUSTOM_TRAIT.fullmatch(name) is not None
            or name in standard_traits())


@functools.cache
def standard_traits() -> frozenset[str]:
    """Return the names of all standard traits."""
    # os_traits imports a module for each namespace, and most requests have
    # no traits.
    import os_traits

    return frozenset(os_traits.get_traits())


def parse_groups(
    extra_specs: Mapping[str, str] | None, requested: Any = None,
    level: Any = None,
) -> GroupDemand:
    """Return the groups of a request; :data:`NO_GROUPS` of most.

    :param extra_specs: the flavor's
    :param requested: ``requested_resources``: a list of Nova's
        ``RequestGroup``, each in its envelope or as a dict of its fields
    :param level: ``request_level_params``: Nova's ``RequestLevelParams``, in
        one of these forms too
    :raises cellsched.exception.InvalidField: names the invalid field
    """
    scoped = tuple([
        (key, value) for key, value in extra_specs.items()
        if key.startswith(_SCOPES)]) if extra_specs else ()
    of_flavor = _numbered(scoped) if scoped else ()
    subtrees = _same_subtree(level) if level is not None else ()
    if not of_flavor and not requested and not subtrees:
        return NO_GROUPS
    of_request = _requested(requested) if requested else []
    groups = {group.suffix: group for group in of_flavor}
    for field, group in of_request:
        if group.suffix in groups:
            raise _refuse(f'{field}.requester_id',
                          'a different one for each group of the request',
                          'another group has the same')
        groups[group.suffix] = group
    if len(groups) > GROUPS_MAX:
        raise _refuse(
            'requested_resources', f'at most {GROUPS_MAX} groups, including '
            'the groups of the flavor')
    _check_places(of_flavor, of_request, subtrees)
    if not groups:
        return NO_GROUPS
    # The policy isolates only the flavor's own groups. Groups of ports and
    # devices may share a provider.
    policy = extra_specs.get('group_policy') if extra_specs else None
    if policy not in _POLICIES or policy is None and len(of_flavor) > 1:
        raise resources.refuse('group_policy', _POLICY)
    return GroupDemand(
        tuple([groups[suffix] for suffix in sorted(groups)]),
        _POLICIES[policy], subtrees)


def is_other(document: Any) -> bool:
    """Return whether a value is an object of Nova but no request group.

    It is skipped here. The check for unsupported requirements decides whether
    a request may have it.
    """
    name = (document.get('nova_object.name')
            if isinstance(document, dict) else None)
    return isinstance(name, str) and name != 'RequestGroup'


def check(extra_specs: Mapping[str, str]) -> None:
    """Check single extra specs of a flavor.

    :raises cellsched.exception.InvalidField: names the invalid extra spec
    """
    _of_flavor(extra_specs.items())
    if extra_specs.get('group_policy') not in _POLICIES:
        raise resources.refuse('group_policy', _POLICY)


def _check_places(
    of_flavor: Iterable[RequestGroup],
    of_request: Iterable[tuple[str, RequestGroup]],
    subtrees: Iterable[frozenset[str]],
) -> None:
    """Refuse a group without resources that same_subtree does not name."""
    near = frozenset[str]().union(*subtrees)
    for group in of_flavor:
        if not group.resources and group.suffix not in near:
            trait = min(group.required | group.forbidden)
            raise resources.refuse(
                f'trait{group.suffix}:{trait}',
                f'resources{group.suffix}:CLASS too',
                'the group requests no resources')
    for field, group in of_request:
        if not group.resources and group.suffix not in near:
            raise _refuse(f'{field}.resources', 'amounts of resource classes')
    if not near <= {group.suffix for group in of_flavor} | {
            group.suffix for _, group in of_request}:
        raise _refuse('request_level_params.same_subtree',
                      'lists of suffixes of groups of the request')


def _of_flavor(specs: Iterable[tuple[str, str]]) -> tuple[RequestGroup, ...]:
    """Return the groups of extra specs that request something.

    A key ``trait…`` whose value is neither required nor forbidden may belong
    to another scope and is ignored, except in a group with resources.
    """
    amounts: dict[str, dict[str, int]] = {}
    traits: dict[str, dict[str, str]] = {}
    other_traits = {}
    for key, value in specs:
        found = _SPEC.fullmatch(key)
        if found is None:
            continue
        kind, suffix, name = found.groups()
        if kind == 'resources':
            _part(amounts, suffix, key)[name] = resources.parse_amount(
                key, name, value)
        elif value not in (_REQUIRED, _FORBIDDEN):
            other_traits[suffix] = key
        elif is_trait(name):
            _part(traits, suffix, key)[name] = value
        else:
            raise resources.refuse(key, TRAITS)
    for suffix in other_traits.keys() & amounts.keys():
        raise resources.refuse(
            other_traits[suffix], 'required or forbidden')
    suffixes = amounts.keys() | traits.keys()
    if len(suffixes) > GROUPS_MAX:
        raise resources.refuse(key, f'at most {GROUPS_MAX} groups')
    groups = [
        RequestGroup(suffix, _amounts(amounts.get(suffix, {})),
                     _with(traits.get(suffix), _REQUIRED),
                     _with(traits.get(suffix), _FORBIDDEN))
        for suffix in suffixes]
    return tuple([each for each in groups if any(each[1:])])


# Cached: few flavors exist, and every request has one.
_numbered = functools.lru_cache(1024)(_of_flavor)


def _part(
    groups: dict[str, dict[str, Any]], suffix: str, key: str
) -> dict[str, Any]:
    """Return the parts of a group, if one more is within the bound."""
    part = groups.setdefault(suffix, {})
    if len(groups) > GROUPS_MAX:
        raise resources.refuse(key, f'at most {GROUPS_MAX} groups')
    if len(part) == PARTS_MAX:
        raise resources.refuse(
            key, f'at most {PARTS_MAX} classes and as many traits in a group')
    return part


def _with(traits: Mapping[str, str] | None, kind: str) -> frozenset[str]:
    return frozenset(
        [name for name, value in traits.items() if value == kind]
    ) if traits else frozenset()


def _amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted([each for each in amounts.items() if each[1]]))


def _requested(value: Any) -> list[tuple[str, RequestGroup]]:
    """Return the groups of ``requested_resources`` with their field names.

    Empty groups are left out.
    """
    if not isinstance(value, (list, tuple)) or len(value) > GROUPS_MAX:
        raise _refuse('requested_resources',
                      f'a list of at most {GROUPS_MAX} groups')
    pairs = [(f'requested_resources[{place}]', each)
             for place, each in enumerate(value) if not is_other(each)]
    groups = [(field, _group(field, each)) for field, each in pairs]
    return [(field, group) for field, group in groups if any(group[1:])]


def _group(field: str, document: Any) -> RequestGroup:
    data = _data(field, document, 'RequestGroup')
    for name, value in data.items():
        if name not in _FIELDS and value:
            raise _refuse(f'{field}.{_shown(name)}', None, 'unknown field')
    suffix = data.get('requester_id')
    if data.get('use_same_provider', True) is not True:
        raise _refuse(f'{field}.use_same_provider', 'true')
    if not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
        raise _refuse(f'{field}.requester_id',
                      '1 to 64 letters, digits, _ and -')
    required, forbidden = (
        _names(f'{field}.{name}', data.get(name), _trait, TRAITS)
        for name in ('required_traits', 'forbidden_traits'))
    if required & forbidden:
        raise _refuse(f'{field}.forbidden_traits',
                      'none of the required traits',
                      'a trait is both required and forbidden')
    in_tree = data.get('in_tree')
    if in_tree is not None and _uuid(in_tree) is None:
        raise _refuse(f'{field}.in_tree', 'a uuid')
    return RequestGroup(
        suffix, _group_amounts(f'{field}.resources', data.get('resources')),
        required, forbidden, _uuid(in_tree),
        tuple([_uuids(f'{field}.aggregates', each) for each in _listed(
            f'{field}.aggregates', data.get('aggregates'))]),
        _uuids(f'{field}.forbidden_aggregates',
               data.get('forbidden_aggregates')))


def _group_amounts(
    field: str, value: Any
) -> tuple[tuple[str, int], ...]:
    """Return the amounts of a ``RequestGroup``."""
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > PARTS_MAX:
        raise _refuse(
            field, f'amounts of at most {PARTS_MAX} resource classes')
    amounts = {}
    for name, amount in value.items():
        shown = f'{field}.{_shown(name)}'
        if not isinstance(name, str) or not resources.is_known(name):
            raise _refuse(shown, resources.CLASSES)
        if type(amount) is not int or not (
                0 <= amount <= resources.AMOUNT_MAX):
            raise _refuse(shown, resources.AMOUNTS)
        amounts[name] = resources.charge(
            name, amount, functools.partial(_refuse, shown))
    return _amounts(amounts)


def _same_subtree(level: Any) -> tuple[frozenset[str], ...]:
    """Return the sets of suffixes of ``request_level_params``."""
    value = _data('request_level_params', level, 'RequestLevelParams').get(
        'same_subtree')
    if not value:
        return ()
    field = 'request_level_params.same_subtree'
    sets = tuple([
        _names(field, each, _suffix, 'lists of suffixes of groups')
        for each in _listed(field, value)])
    if not all(sets):
        raise _refuse(field, 'lists of at least one suffix')
    return sets


def _data(field: str, document: Any, name: str) -> dict[str, Any]:
    """Return the fields of an object of Nova, with or without envelope."""
    if isinstance(document, dict) and (
            document.get('nova_object.name', name) == name):
        data = document.get('nova_object.data', document)
        if isinstance(data, dict):
            return data
    raise _refuse(field, f"Nova's {name}, or a dict of its fields")


def _listed(field: str, value: Any) -> Iterable[Any]:
    if value is None:
        return ()
    if isinstance(value, (list, tuple, set, frozenset)) and (
            len(value) <= PARTS_MAX):
        return value
    raise _refuse(field, f'a list of at most {PARTS_MAX}')


def _names(
    field: str, value: Any, read: Callable[[Any], str | None], expected: str
) -> frozenset[str]:
    """Return a list of names.

    :param read: returns the normalized name, or None for an invalid one
    """
    names = [read(each) for each in _listed(field, value)]
    if None in names:
        raise _refuse(field, expected)
    return frozenset(name for name in names if name is not None)


def _uuids(field: str, value: Any) -> frozenset[str]:
    return _names(field, value, _uuid, 'uuids of aggregates')


def _uuid(value: Any) -> str | None:
    if (isinstance(value, str) and len(value) <= 36
            and uuidutils.is_uuid_like(value)):
        return str(uuid.UUID(value))
    return None


def _trait(value: Any) -> str | None:
    return value if isinstance(value, str) and is_trait(value) else None


def _suffix(value: Any) -> str | None:
    is_suffix = isinstance(value, str) and _SUFFIX.fullmatch(value)
    return value if is_suffix else None


def _shown(name: Any) -> str:
    # The sender controls this value, and operators read it in the log.
    return ascii(name[:80])[1:-1][:80] if isinstance(name, str) else 'key'


def _refuse(
    field: str, expected: str | None, problem: str | None = None
) -> exception.InvalidField:
    return exception.InvalidField(
        where='request', field=field, problem=problem, expected=expected)
