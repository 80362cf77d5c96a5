# SPDX-License-Identifier: Apache-2.0
"""Scenarios of large deployments: read, checked and changed."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
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


def record(
    properties: Mapping[str, Any], required: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the schema of a mapping with these keys only."""
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False}


def whole(least: int, most: int) -> dict[str, Any]:
    """Return the schema of a whole number within bounds."""
    return {'type': 'integer', 'minimum': least, 'maximum': most}


def real(least: float, most: float) -> dict[str, Any]:
    """Return the schema of a number within bounds."""
    return {'type': 'number', 'minimum': least, 'maximum': most}


_ITEM = {'type': ['string', 'number', 'boolean'],
         'pattern': r'^[^\r\n]*\Z', 'description': 'text on one line'}
_LINE = {**_ITEM, 'type': [*_ITEM['type'], 'array'], 'items': _ITEM}
_NAMES = {'pattern': r'^[A-Za-z]\w*\Z', 'description': 'the name of an option'}
_OPTIONS = {'type': 'object', 'propertyNames': _NAMES,
            'additionalProperties': {
                'type': 'object', 'propertyNames': _NAMES,
                'additionalProperties': _LINE}}

_FAULT = {
    'at': real(0, 4e8), 'for_s': real(0, 4e8),
    'rack': whole(0, 1_000_000), 'cell': whole(0, 10_000),
    'scheduler': whole(0, 1000), 'share': real(0, 1),
    'count': whole(1, 10_000_000), 'evacuate': {'type': 'boolean'}}


def _key(
    schema: Mapping[str, Any], default: Any = dataclasses.MISSING
) -> Any:
    """Return a key of a scenario: its schema, and its value if left out."""
    return dataclasses.field(metadata=schema, **(
        {'default_factory': type(default)} if default in ([], {})
        else {'default': default}))


def _schema(section: type) -> dict[str, Any]:
    """Return the schema of a section, which is a class with keys."""
    keys = [each for each in dataclasses.fields(section) if each.metadata]
    return record(
        {each.name: dict(each.metadata) for each in keys},
        [each.name for each in keys if each.default is dataclasses.MISSING
         and each.default_factory is dataclasses.MISSING])


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostKind:
    """Hosts of the same size.

    :param rack: the number of hosts in a rack
    :param count: the number of these hosts
    """

    rack: int = _key(whole(1, 1_000_000), 40)
    vcpus: int = _key(whole(1, 100_000), 64)
    memory_mb: int = _key(whole(1, 2 ** 31 - 1), 262_144)
    disk_gb: int = _key(whole(0, 2 ** 31 - 1), 4000)
    cpu_allocation_ratio: float = _key(real(0.01, 1000), 4.0)
    ram_allocation_ratio: float = _key(real(0.01, 1000), 1.0)
    disk_allocation_ratio: float = _key(real(0.01, 1000), 1.0)
    count: int = _key(whole(1, 1_000_000))


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

    count: int = _key(whole(1, 1000), 1)
    threads: int = _key(whole(1, 1000), 8)
    decision_ms: float = _key(real(0, 60_000), 1.0)
    cpus: int = _key(whole(0, 10_000), 0)
    back_to_back: bool = _key({'type': 'boolean'}, False)
    configuration: Mapping[str, Mapping[str, Any]] = _key(_OPTIONS, {})


@dataclasses.dataclass(frozen=True)
class StoreKind:
    """The claim store.

    :param round_trip_ms: the time of a message to its server and back
    :param defect: the share of claims that the store sells again, to prove
        that a run finds it
    """

    kind: str = _key({'enum': [*STORES]}, 'postgresql')
    round_trip_ms: float = _key(real(0, 60_000), 0.5)
    defect: float = _key(real(0, 1), 0)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The samples of a run, and the permutations for the compaction."""

    every_s: float = _key(real(0.001, 1e8), 60)
    permutations: int = _key(whole(0, 1000), 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """A deployment, its load and its faults."""

    path: pathlib.Path
    name: str = _key({
        'type': 'string', 'pattern': r'^[a-z0-9][a-z0-9-]{0,62}\Z',
        'description': 'a name of 1 to 63 small letters, digits and dashes'})
    description: str = _key({'type': 'string'}, '')
    seed: int = _key(whole(0, 2 ** 31 - 1), 1)
    hours: float = _key({
        'type': 'number', 'exclusiveMinimum': 0, 'maximum': 100_000}, 1)
    cells: int = _key(whole(1, 10_000), 1)
    hosts: Sequence[HostKind] = _key({'type': ['object', 'array']})
    schedulers: SchedulerPool = _key(_schema(SchedulerPool))
    store: StoreKind = _key(_schema(StoreKind))
    load: Mapping[str, Any] = _key({'type': 'object'})
    faults: Sequence[Mapping[str, Any]] = _key(
        {'type': 'array', 'items': {'type': 'object'}}, [])
    measure: Measurement = _key(_schema(Measurement))

    @property
    def document(self) -> dict[str, Any]:
        """The scenario with all defaults, as it is reported."""
        document = dataclasses.asdict(self)
        del document['path']
        return document


#: The sections of a scenario; each key of a section has a default.
_SECTIONS: Mapping[str, type] = {
    'schedulers': SchedulerPool, 'store': StoreKind, 'measure': Measurement}

#: The schema of a file.
SCHEMA = {**_schema(Scenario), 'required': ['name', 'hosts', 'load']}


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
    # 1. Check the given values. The classes have the defaults.
    check(path, document, SCHEMA)
    kinds = document['hosts']
    kinds = kinds if isinstance(kinds, list) else [kinds]
    check(path, {'hosts': kinds}, record({'hosts': {
        'type': 'array', 'items': _schema(HostKind), 'minItems': 1}}))
    _check_faults(path, document.get('faults', ()))
    # 2. Make the scenario.
    made = Scenario(path=path, **{
        **document, 'hosts': [HostKind(**each) for each in kinds],
        **{name: section(**document.get(name, {}))
           for name, section in _SECTIONS.items()}})
    _check_places(made)
    return made


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
        check(path, fault, record(schema, ['at']), f'faults[{number}]')


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
