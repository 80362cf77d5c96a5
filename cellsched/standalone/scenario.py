# SPDX-License-Identifier: Apache-2.0
"""Scenarios: a deployment, requests for servers, and expected results."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from cellsched.api import providers
from cellsched.compute import children
from cellsched import exception
from cellsched.hardware import description
from cellsched.objects import keys
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.standalone import deployment
from cellsched.validation import json_schema
from cellsched.validation.json_schema import check
from cellsched.validation.json_schema import invalid
from cellsched.validation.yaml_file import read
from cellsched.virt import fake

_NAME = {'type': 'string', 'minLength': 1, 'maxLength': 63,
         'pattern': r'^[A-Za-z0-9][A-Za-z0-9_.-]*\Z',
         'description': 'a name of 1 to 63 letters, digits, dots, dashes and '
                        'underscores'}
_AMOUNT = {'type': 'integer', 'minimum': 0, 'maximum': 2 ** 31 - 1}
_COUNT = {'type': 'integer', 'minimum': 1, 'maximum': 1000}
_NAMES = {'type': 'array', 'items': _NAME, 'uniqueItems': True}


def _record(
    properties: Mapping[str, Any], required: Sequence[str] = ()
) -> dict[str, Any]:
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False}


def _list(item: Mapping[str, Any], least: int = 0) -> dict[str, Any]:
    return {'type': 'array', 'items': item, 'minItems': least}


#: Text that fits on one line of a configuration file.
_LINE = r'^[^\r\n]*\Z'
_VALUE = {'type': ['string', 'number', 'boolean'], 'pattern': _LINE,
          'description': 'text on one line'}


def _by_name(item: Mapping[str, Any]) -> dict[str, Any]:
    return {'type': 'object', 'additionalProperties': item,
            'propertyNames': {'pattern': r'^[A-Za-z]\w*\Z',
                              'description': 'the name of an option'}}


_TOTALS = {'type': 'object', 'additionalProperties': _AMOUNT}

_HOST = _record({
    'name': _NAME, 'vcpus': _AMOUNT, 'memory_mb': _AMOUNT, 'disk_gb': _AMOUNT,
    'inventories': _TOTALS,
    'providers': {'type': 'object', 'additionalProperties': _record({
        'inventories': _TOTALS, 'traits': _list({'type': 'string'}),
        'parent': {'type': 'string'}})},
    'hardware': {'type': 'object'},
    'availability_zone': _NAME, 'aggregates': _NAMES,
    'faults': _record({
        'fail_builds': _AMOUNT, 'abort_builds': _AMOUNT,
        'build_delay': {'type': 'number', 'minimum': 0, 'maximum': 600}}),
}, ['name'])

_EXPECT = _record({
    'status': {'enum': ['ACTIVE', 'ERROR', 'DELETED']}, 'cell': _NAME,
    'host': _NAME, 'cells': _COUNT, 'attempts': _COUNT,
    'reason': {'type': 'string', 'minLength': 1}})

SCHEMA = _record({
    'cells': _list(_record(
        {'name': _NAME, 'hosts': _list(_HOST)}, ['name', 'hosts']), 1),
    'aggregates': _list(_record({
        'name': _NAME, 'hosts': _NAMES,
        'metadata': {'type': 'object',
                     'additionalProperties': {'type': 'string'}},
    }, ['name'])),
    'sharing_providers': _list(_record({
        'name': _NAME, 'aggregate': _NAME, 'inventories': _TOTALS,
        'traits': _list({'type': 'string'}),
    }, ['name', 'aggregate', 'inventories'])),
    'flavors': _list(_record({
        'name': _NAME, 'vcpus': {**_AMOUNT, 'minimum': 1},
        'ram': {**_AMOUNT, 'minimum': 1}, 'disk': _AMOUNT,
        'ephemeral': _AMOUNT, 'swap': _AMOUNT,
        'extra_specs': {'type': 'object',
                        'additionalProperties': {'type': 'string'}},
    }, ['name', 'vcpus', 'ram']), 1),
    'requests': _list(_record({
        'name': _NAME, 'flavor': _NAME, 'count': _COUNT, 'min_count': _COUNT,
        'availability_zone': _NAME,
        'hints': {'type': 'object', 'additionalProperties': {
            'type': 'array', 'items': {'type': 'string'}}},
        'delete': {'enum': ['while-building', 'when-built']},
        'expect': _EXPECT,
    }, ['name', 'flavor']), 1),
    'options': _by_name(_by_name({
        'type': ['string', 'number', 'boolean', 'array'], 'pattern': _LINE,
        'description': 'text on one line', 'items': _VALUE})),
}, ['cells', 'flavors', 'requests'])

#: Options that the deployment sets itself, by group.
_OWN_OPTIONS = {
    'DEFAULT': {'host', 'transport_url'}, 'api_database': {'connection'},
    'claims': {'connection', 'store'}, 'database': {'connection'}}


@dataclasses.dataclass(frozen=True)
class Request:
    """One request for servers, and its expected result.

    :param delete: ``while-building`` or ``when-built``
    :param expect: see the user guide
    """

    name: str
    flavor: str
    count: int = 1
    min_count: int | None = None
    availability_zone: str | None = None
    hints: Mapping[str, Sequence[str]] = dataclasses.field(
        default_factory=dict)
    delete: str | None = None
    expect: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The content of a scenario file."""

    path: pathlib.Path
    cells: Sequence[deployment.DeployedCell]
    aggregates: Mapping[str, Mapping[str, str]]
    flavors: Sequence[Mapping[str, Any]]
    requests: Sequence[Request]
    options: deployment.Options
    sharing: Sequence[deployment.DeployedSharingProvider] = ()


#: Fields of a scenario that describe a deployment.
_DEPLOYED = ('cells', 'aggregates', 'sharing_providers', 'options')


def load(path: pathlib.Path, deploys: bool = True) -> Scenario:
    """Read a scenario.

    :param deploys: False for the scenario of a deployment that exists; it has
        no cells, aggregates, sharing providers and options
    :raises cellsched.exception.InvalidField: names the file, the field and
        the expectation
    """
    document = read(path)
    schema = SCHEMA if deploys else {
        **SCHEMA, 'required': ['flavors', 'requests']}
    check(path, document, schema)
    if not deploys:
        for name in document.keys() & _DEPLOYED:
            raise invalid(path, [name], 'no such key', (
                'the scenario runs in an existing deployment'))
        document['cells'] = []
    _check_names(path, document)
    _check_resources(path, document)
    _check_options(path, document.get('options', {}))
    member_of = collections.defaultdict(list)
    for aggregate in document.get('aggregates', ()):
        for host in aggregate.get('hosts', ()):
            member_of[host].append(aggregate['name'])
    return Scenario(
        path=path,
        cells=[deployment.DeployedCell(cell['name'], [
            _host(host, member_of[host['name']]) for host in cell['hosts']])
            for cell in document['cells']],
        aggregates={aggregate['name']: aggregate.get('metadata', {})
                    for aggregate in document.get('aggregates', ())},
        flavors=document['flavors'],
        requests=[Request(**request) for request in document['requests']],
        options=document.get('options', {}),
        sharing=[deployment.DeployedSharingProvider(**each)
                 for each in document.get('sharing_providers', ())])


def _host(
    host: Mapping[str, Any], aggregates: Iterable[str]
) -> deployment.DeployedHost:
    fields = dict(host)
    behaviour = dict(fields.pop('faults', {}))
    if 'inventories' in fields:
        behaviour['inventories'] = fields.pop('inventories')
    if 'hardware' in fields:
        behaviour['hardware'] = json.dumps(fields.pop('hardware'))
    named = [*fields.pop('aggregates', ()), *aggregates]
    return deployment.DeployedHost(
        behaviour=behaviour, aggregates=list(dict.fromkeys(named)), **fields)


def _check_names(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    """Check that names are unique, and that references are valid."""
    hosts: dict[str, str] = {}
    for number, cell in enumerate(document['cells']):
        for place, host in enumerate(cell['hosts']):
            field = ('cells', number, 'hosts', place, 'name')
            name = host['name']
            if name in hosts:
                raise invalid(path, field, 'a unique name', (
                    f"host '{name}' is in cell {hosts[name]} and in cell "
                    f"{cell['name']}"))
            hosts[name] = cell['name']
    _check_unique(path, document, 'cells', reserved=('cell0', 'api', 'claims'))
    _check_unique(path, document, 'aggregates')
    _check_unique(path, document, 'sharing_providers')
    _check_unique(path, document, 'flavors')
    aggregates = {each['name'] for each in document.get('aggregates', ())}
    for number, aggregate in enumerate(document.get('aggregates', ())):
        _check_known(path, ('aggregates', number, 'hosts'),
                     aggregate.get('hosts', ()), hosts)
    for number, shared in enumerate(document.get('sharing_providers', ())):
        _check_known(path, ('sharing_providers', number, 'aggregate'),
                     [shared['aggregate']], aggregates)
    for number, cell in enumerate(document['cells']):
        for place, host in enumerate(cell['hosts']):
            _check_known(path, ('cells', number, 'hosts', place,
                                'aggregates'),
                         host.get('aggregates', ()), aggregates)
    flavors = {flavor['name'] for flavor in document['flavors']}
    for number, request in enumerate(document['requests']):
        _check_known(path, ('requests', number, 'flavor'),
                     [request['flavor']], flavors)
        count = request.get('count', 1)
        if request.get('min_count', 1) > count:
            raise invalid(path, ('requests', number, 'min_count'),
                          f'at most {count}', 'it is above count')


def _check_resources(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    """Make sure that classes are known ones and children make a tree.

    The NUMA cells and the devices of hosts are checked, too.
    """
    for number, cell in enumerate(document['cells']):
        for place, host in enumerate(cell['hosts']):
            field = ('cells', number, 'hosts', place)
            description.read(path, host.get('hardware', {}),
                             json_schema.field_name([*field, 'hardware']))
            for name in host.get('inventories', ()):
                if not resources.is_known(name):
                    raise invalid(
                        path, (*field, 'inventories'),
                        'names of resource classes',
                        f'unknown resource class {name}')
            try:
                children.check(
                    host['name'], fake.providers(host.get('providers', {})))
            except exception.InvalidField as exc:
                raise invalid(
                    path, (*field, 'providers'),
                    problem=f'{exc.field}: {exc.detail}') from None
    for number, shared in enumerate(document.get('sharing_providers', ())):
        try:
            providers.changed_inventories({}, {
                name: {'total': total}
                for name, total in shared['inventories'].items()})
            providers.check_traits('traits', shared.get('traits', ()))
        except exception.InvalidField as exc:
            raise invalid(
                path, ('sharing_providers', number, exc.field),
                **exc.reasons) from None
    for number, flavor in enumerate(document['flavors']):
        try:
            specs = flavor.get('extra_specs')
            resources.requested(specs)
            request_groups.parse_groups(specs)
            keys.EXTRA_SPECS.check(specs, 'flavor', 'extra_specs')
        except exception.InvalidField as exc:
            raise invalid(
                path, ('flavors', number, exc.field),
                **exc.reasons) from None


def _check_options(
    path: pathlib.Path, options: Mapping[str, Mapping[str, Any]]
) -> None:
    for group, values in options.items():
        for name in sorted(values.keys() & _OWN_OPTIONS.get(group, set())):
            raise invalid(
                path, ('options', group, name),
                'no such option', 'the scenario sets it')


def _check_unique(
    path: pathlib.Path, document: Mapping[str, Any], kind: str,
    reserved: Sequence[str] = (),
) -> None:
    seen = set(reserved)
    for number, item in enumerate(document.get(kind, ())):
        name = item['name']
        if name in seen:
            raise invalid(path, (kind, number, 'name'),
                          'a unique name', f'{name} is used already')
        seen.add(name)


def _check_known(
    path: pathlib.Path, field: Sequence[str | int], names: Iterable[str],
    known: Iterable[str],
) -> None:
    for name in names:
        if name not in known:
            raise invalid(
                path, field, f'one of {", ".join(sorted(known)) or "none"}',
                f'unknown name {name}')
