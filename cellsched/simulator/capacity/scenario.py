# SPDX-License-Identifier: Apache-2.0
"""Scenarios of large deployments: read, checked and changed."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import types
from typing import Any

import yaml

from cellsched import exception
from cellsched.validation.json_schema import check
from cellsched.validation.json_schema import invalid
from cellsched.validation.yaml_file import read

#: The directory of the scenarios of the project.
_BUNDLED = pathlib.Path(__file__).parent / 'scenarios'

_SCHEMAS: Mapping[str, Any] = yaml.safe_load(
    pathlib.Path(__file__).with_name('schema.yaml').read_text('utf-8'))

#: The JSON schema of a scenario.
SCHEMA: Mapping[str, Any] = _SCHEMAS['scenario']

#: JSON schemas of the section ``load``, by the key that it has.
LOADS: Mapping[str, Mapping[str, Any]] = _SCHEMAS['load']

#: The JSON schema of the results of a run.
DOCUMENT: Mapping[str, Any] = _SCHEMAS['results']

#: Stores that can have a defect on purpose.
WITH_DEFECT = ('memory', 'postgresql', 'mariadb')


class Scenario:
    """A deployment, its load and its faults.

    The keys of ``schema.yaml`` are attributes, and those of a section are
    attributes of it.

    :ivar document: the scenario with all defaults, as it is reported
    """

    name: str
    seed: int
    hours: float
    cells: int
    hosts: Sequence[Any]
    schedulers: Any
    store: Any
    load: Mapping[str, Any]
    faults: Sequence[Mapping[str, Any]]
    measure: Any

    def __init__(self, path: pathlib.Path, document: dict[str, Any]) -> None:
        self.path = path
        self.document = document
        vars(self).update(document, hosts=[
            types.SimpleNamespace(**each) for each in document['hosts']])
        for name in 'schedulers', 'store', 'measure':
            setattr(self, name, types.SimpleNamespace(**document[name]))


def _filled(document: Any, schema: Mapping[str, Any]) -> Any:
    """Return a document with the default values of its schema."""
    if isinstance(document, list):
        return [_filled(each, schema['items']) for each in document]
    if 'properties' not in schema:
        return document
    return {name: _filled(document.get(name, part.get('default')), part)
            for name, part in schema['properties'].items()}


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
    if isinstance(document, dict) and isinstance(
            document.get('hosts'), dict):
        document = {**document, 'hosts': [document['hosts']]}
    check(path, document, SCHEMA)
    kinds = _SCHEMAS['faults']
    for number, fault in enumerate(document.get('faults', ())):
        kind = fault.get('kind')
        if kind not in kinds:
            raise invalid(path, ('faults', number, 'kind'),
                          f'one of {", ".join(kinds)}',
                          f'unknown kind {kind!r:.60}')
        check(path, fault, kinds[kind], f'faults[{number}]')
    made = Scenario(path, _filled(document, SCHEMA))
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
