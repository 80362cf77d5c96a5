# SPDX-License-Identifier: Apache-2.0
"""Scenarios of large deployments: read, checked and changed."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import pathlib
from typing import Any

import yaml

from cellsched import exception
from cellsched.validation.json_schema import check
from cellsched.validation.yaml_file import invalid
from cellsched.validation.yaml_file import read

#: The directory of the scenarios of the project.
_BUNDLED = pathlib.Path(__file__).parent / 'scenarios'

#: The claim stores that are simulated, with their descriptions.
STORES: Mapping[str, str] = {
    'memory': 'exact, with a constant delay',
    'postgresql': 'claims in PostgreSQL',
    'mariadb': 'claims in MariaDB',
    'etcd': 'claims in etcd',
    'cassandra': 'claims in Cassandra',
    'placement': 'claims in Placement',
    'placement-generations': 'the claims of Nova: one host at a time, on the '
                             'generation of a provider',
    'nova-legacy': 'no claims: a compute service refuses what does not fit, '
                   'and the server is scheduled again',
    'cells-v1': 'no claims, and schedulers that do not count what they have '
                'placed',
}

#: Stores that can have a defect on purpose.
WITH_DEFECT = ('memory', 'postgresql', 'mariadb')

#: The kinds of faults, with the keys of each beside ``at`` and ``kind``.
FAULTS: Mapping[str, Sequence[str]] = {
    'rack': ('rack', 'for_s', 'evacuate'),
    'cell': ('cell', 'for_s', 'evacuate'),
    'stale-cell': ('cell', 'for_s'),
    'broker': ('for_s',),
    'store': ('for_s',),
    'scheduler': ('scheduler', 'for_s'),
    'mass-delete': ('share',),
    'impossible-flood': ('count', 'for_s'),
}


def _record(
    properties: Mapping[str, Any], required: Sequence[str] = ()
) -> dict[str, Any]:
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False}


def _whole(least: int, most: int) -> dict[str, Any]:
    return {'type': 'integer', 'minimum': least, 'maximum': most}


def _number(least: float, most: float) -> dict[str, Any]:
    return {'type': 'number', 'minimum': least, 'maximum': most}


_ITEM = {'type': ['string', 'number', 'boolean'],
         'pattern': r'^[^\r\n]*\Z', 'description': 'text on one line'}
_LINE = {**_ITEM, 'type': [*_ITEM['type'], 'array'], 'items': _ITEM}
_NAMES = {'pattern': r'^[A-Za-z]\w*\Z', 'description': 'the name of an option'}
_OPTIONS = {'type': 'object', 'propertyNames': _NAMES,
            'additionalProperties': {
                'type': 'object', 'propertyNames': _NAMES,
                'additionalProperties': _LINE}}

_HOSTS = _record({
    'count': _whole(1, 1_000_000), 'rack': _whole(1, 1_000_000),
    'vcpus': _whole(1, 100_000), 'memory_mb': _whole(1, 2 ** 31 - 1),
    'disk_gb': _whole(0, 2 ** 31 - 1),
    'cpu_allocation_ratio': _number(0.01, 1000),
    'ram_allocation_ratio': _number(0.01, 1000),
    'disk_allocation_ratio': _number(0.01, 1000)}, ['count'])

SCHEMA = _record({
    'name': {'type': 'string', 'pattern': r'^[a-z0-9][a-z0-9-]{0,62}\Z',
             'description': 'a name of 1 to 63 small letters, digits and '
                            'dashes'},
    'description': {'type': 'string'},
    'seed': _whole(0, 2 ** 31 - 1),
    'hours': {'type': 'number', 'exclusiveMinimum': 0, 'maximum': 100_000},
    'cells': _whole(1, 10_000),
    'hosts': {'type': ['object', 'array']},
    'schedulers': _record({
        'count': _whole(1, 1000), 'threads': _whole(1, 1000),
        'decision_ms': _number(0, 60_000), 'cpus': _whole(0, 10_000),
        'back_to_back': {'type': 'boolean'}, 'configuration': _OPTIONS}),
    'store': _record({
        'kind': {'enum': [*STORES]}, 'round_trip_ms': _number(0, 60_000),
        'defect': _number(0, 1)}),
    'load': {'type': 'object'},
    'faults': {'type': 'array', 'items': {'type': 'object'}},
    'measure': _record({
        'every_s': _number(0.001, 1e8), 'permutations': _whole(0, 1000)}),
}, ['name', 'hosts', 'load'])

_FAULT = {
    'at': _number(0, 4e8), 'for_s': _number(0, 4e8),
    'rack': _whole(0, 1_000_000), 'cell': _whole(0, 10_000),
    'scheduler': _whole(0, 1000), 'share': _number(0, 1),
    'count': _whole(1, 10_000_000), 'evacuate': {'type': 'boolean'}}

#: The values of keys that are left out.
DEFAULTS: Mapping[str, Any] = {
    'description': '', 'seed': 1, 'hours': 1, 'cells': 1,
    'schedulers': {'count': 1, 'threads': 8, 'decision_ms': 1.0, 'cpus': 0,
                   'back_to_back': False, 'configuration': {}},
    'store': {'kind': 'postgresql', 'round_trip_ms': 0.5, 'defect': 0},
    'load': {}, 'faults': [],
    'measure': {'every_s': 60, 'permutations': 0},
}
_HOST_DEFAULTS = {
    'rack': 40, 'vcpus': 64, 'memory_mb': 262_144, 'disk_gb': 4000,
    'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0,
    'disk_allocation_ratio': 1.0}


@dataclasses.dataclass(frozen=True)
class HostKind:
    """Hosts of the same size.

    :param count: the number of these hosts
    :param rack: the number of hosts in a rack
    """

    count: int
    rack: int
    vcpus: int
    memory_mb: int
    disk_gb: int
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float


@dataclasses.dataclass(frozen=True)
class SchedulerPool:
    """The schedulers of a deployment.

    :param threads: requests that one scheduler serves at the same time
    :param decision_ms: the CPU time of one decision
    :param cpus: the CPUs that all schedulers and the claim store share; 0 if
        each has a machine of its own
    :param back_to_back: whether decisions are made one after the other, at
        the time of the request, without claims and delays
    :param configuration: options of production, by group and name
    """

    count: int
    threads: int
    decision_ms: float
    cpus: int
    back_to_back: bool
    configuration: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class StoreKind:
    """The claim store.

    :param round_trip_ms: the time of a message to its server and back
    :param defect: the share of claims that the store sells again, to prove
        that a run finds it
    """

    kind: str
    round_trip_ms: float
    defect: float


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A deployment, its load and its faults.

    :param document: the scenario with all defaults, as it is reported
    """

    path: pathlib.Path
    name: str
    seed: int
    hours: float
    cells: int
    hosts: Sequence[HostKind]
    schedulers: SchedulerPool
    store: StoreKind
    load: Mapping[str, Any]
    faults: Sequence[Mapping[str, Any]]
    every_s: float
    permutations: int
    document: Mapping[str, Any]


def bundled() -> dict[str, str]:
    """Return the descriptions of the scenarios of the project, by name."""
    return {path.stem: ' '.join(
        str(read(path).get('description', '')).split())
        for path in sorted(_BUNDLED.glob('*.yaml'))}


def load(
    name: str, seed: int | None = None, changes: Iterable[str] = ()
) -> Scenario:
    """Read a scenario.

    :param name: the name of a scenario of the project, or a path
    :param seed: a seed in place of that of the scenario
    :param changes: values of keys in place of those of the scenario, as
        ``schedulers.count=4``
    :raises cellsched.exception.InvalidField: names the file, the field and
        the expectation
    """
    path = _path(name)
    document = read(path)
    if isinstance(document, dict):
        for change in changes:
            _change(document, change)
        if seed is not None:
            document['seed'] = seed
    return of(path, document)


def of(path: pathlib.Path, document: Any) -> Scenario:
    """Return the scenario of a document.

    :raises cellsched.exception.InvalidField: names the field
    """
    # 1. Check what is given, and then add the defaults.
    check(path, document, SCHEMA)
    kinds = document['hosts']
    kinds = kinds if isinstance(kinds, list) else [kinds]
    check(path, {'hosts': kinds}, _record({
        'hosts': {'type': 'array', 'items': _HOSTS, 'minItems': 1}}))
    _check_faults(path, document.get('faults', ()))
    whole = _with_defaults(document)
    whole['hosts'] = [{**_HOST_DEFAULTS, **each} for each in kinds]
    # 2. Make it.
    made = Scenario(
        path, whole['name'], whole['seed'], whole['hours'], whole['cells'],
        [HostKind(**each) for each in whole['hosts']],
        SchedulerPool(**whole['schedulers']), StoreKind(**whole['store']),
        whole['load'], whole['faults'], whole['measure']['every_s'],
        whole['measure']['permutations'], whole)
    _check_places(made)
    return made


def _with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    whole = copy.deepcopy(dict(document))
    for key, value in DEFAULTS.items():
        if isinstance(value, Mapping):
            whole[key] = {**value, **whole.get(key, {})}
        else:
            whole.setdefault(key, copy.deepcopy(value))
    return {key: whole[key] for key in SCHEMA['properties']}


def _path(name: str) -> pathlib.Path:
    """Return the path of a scenario.

    :raises cellsched.exception.InvalidField: there is none of this name
    """
    found = _BUNDLED / f'{name}.yaml'
    if '/' not in name and found.exists():
        return found
    path = pathlib.Path(name)
    if path.suffix or '/' in name:
        return path
    raise exception.InvalidField(
        where='simulate', field='SCENARIO',
        problem=f'{name!a:.80} is no scenario of the project',
        expected=f'a file, or one of {", ".join(bundled())}')


def _change(document: dict[str, Any], change: str) -> None:
    """Set the value of a key; ``hosts.0.count`` is in a list."""
    key, equals, text = change.partition('=')
    where: Any = document
    *parents, last = key.split('.')
    try:
        value = yaml.safe_load(text)
        if not equals or not all((*parents, last)):
            raise ValueError
        for parent in parents:
            where = (where[int(parent)] if isinstance(where, list)
                     else where.setdefault(parent, {}))
        if isinstance(where, list):
            where[int(last)] = value
        else:
            where[last] = value
    except (AttributeError, IndexError, TypeError, ValueError,
            yaml.YAMLError):
        raise exception.InvalidField(
            where='simulate', field='--set',
            problem=f'{change!a:.80} is not a key of the scenario with a '
                    'value', expected='KEY=VALUE, such as schedulers.count=4'
        ) from None


def _check_faults(path: pathlib.Path, faults: Sequence[Any]) -> None:
    for number, fault in enumerate(faults):
        kind = fault.get('kind')
        if kind not in FAULTS:
            raise invalid(path, ('faults', number, 'kind'),
                          f'one of {", ".join(FAULTS)}',
                          f'unknown kind {kind!r:.60}')
        schema = {'kind': {'enum': [kind]}, **{
            name: _FAULT[name] for name in ('at', *FAULTS[kind])}}
        check(path, fault, _record(schema, ['at']), f'faults[{number}]')


def _check_places(made: Scenario) -> None:
    """Check that faults name what the deployment has."""
    hosts = sum(each.count for each in made.hosts)
    racks = sum(-(-each.count // each.rack) for each in made.hosts)
    if made.cells > hosts:
        raise invalid(made.path, ['cells'],
                      f'at most one for each host, {hosts}',
                      f'{made.cells} cells are too many')
    if made.store.defect and made.store.kind not in WITH_DEFECT:
        raise invalid(made.path, ('store', 'defect'),
                      f'one of {", ".join(WITH_DEFECT)}',
                      f'the store {made.store.kind} has no defects')
    bounds = {'rack': racks, 'cell': made.cells,
              'scheduler': made.schedulers.count}
    for number, fault in enumerate(made.faults):
        for name, count in bounds.items():
            if fault.get(name, 0) >= count:
                raise invalid(made.path, ('faults', number, name),
                              f'at most {count - 1}',
                              f'{fault[name]} is out of range')
