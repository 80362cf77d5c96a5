# SPDX-License-Identifier: Apache-2.0
"""The cells and devices of a host in a short form, for files and options.

.. code-block:: yaml

   cells:
     - {id: 0, memory_mb: 65536, cpus: 0-1, dedicated: 2-15, siblings: 2}
   devices:
     - {vendor_id: '8086', product_id: '1572', count: 4, numa_node: 0}
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from oslo_utils import strutils

from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware.devices import Pool
from cellsched.hardware.devices import Pools
from cellsched.hardware.guest import parse_cpus
from cellsched.hardware.host import CPUs
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology
from cellsched.hardware.host import KIB
from cellsched.hardware.host import Pages
from cellsched.validation import json_schema

#: Cells of a host, pages of a cell and kinds of devices.
_CELLS_MAX, _PAGES_MAX, _DEVICES_MAX = 128, 16, 1000

_CPU_MAX = 9999

_AMOUNT_MAX = 2 ** 31 - 1

#: Kinds of devices; the first one is the default.
_TYPES = 'type-PCI', 'type-PF', 'type-VF', 'vdpa'

#: Fields of devices that no tag may replace.
_FIELDS = frozenset({
    'vendor_id', 'product_id', 'count', 'numa_node', 'dev_type'})

#: Tags with the values yes and no.
_FLAGS = (
    'live_migratable', 'managed', 'one_time_use', 'remote_managed', 'trusted')

_RANGE = r'[0-9]{1,4}(-[0-9]{1,4})?'


def _whole(least: int, most: int = _AMOUNT_MAX) -> dict[str, Any]:
    return {'type': 'integer', 'minimum': least, 'maximum': most}


def _mapping(required: Sequence[str], **fields: Any) -> dict[str, Any]:
    return {'type': 'object', 'required': required,
            'additionalProperties': False, 'properties': fields}


#: The description of each schema is the expectation in errors.
_CPUS = {
    **_whole(0, _CPU_MAX), 'type': ['string', 'integer'],
    'pattern': rf'^({_RANGE}(,{_RANGE})*)?\Z',
    'description': f'numbers of CPUs up to {_CPU_MAX}, such as 0-3,8'}

_SIBLINGS = {
    **_whole(1, _CPU_MAX), 'type': ['integer', 'array'],
    'description': 'the number of threads of a core, or a list of the CPUs '
                   'of each core',
    'items': {'type': 'array', 'minItems': 1, 'items': _whole(0, _CPU_MAX),
              'description': 'a list of the CPUs of a core'}}

_ID = {'type': 'string', 'pattern': r'^[0-9A-Fa-f]{4}\Z',
       'description': 'four hexadecimal digits, in quotes'}

_SCHEMA = _mapping(
    (), cells={
        'type': 'array', 'maxItems': _CELLS_MAX,
        'items': _mapping(
            ('id', 'memory_mb'), id=_whole(0), memory_mb=_whole(0),
            cpus=_CPUS, dedicated=_CPUS, siblings=_SIBLINGS, socket=_whole(0),
            pages={
                'type': 'array', 'maxItems': _PAGES_MAX,
                'items': _mapping(
                    ('size_kb', 'total'), size_kb=_whole(1), total=_whole(0),
                    reserved=_whole(0))},
            physnets={'type': 'array', 'items': {'type': 'string'}},
            tunneled={'type': 'boolean'})},
    devices={
        'type': 'array', 'maxItems': _DEVICES_MAX,
        'items': _mapping(
            ('vendor_id', 'product_id', 'count'), vendor_id=_ID,
            product_id=_ID, count=_whole(0),
            numa_node={**_whole(0), 'type': ['integer', 'null']},
            dev_type={'enum': list(_TYPES)},
            tags={'type': 'object', 'description': 'a mapping of texts',
                  'properties': dict.fromkeys(
                      _FLAGS, {'type': ['string', 'boolean']}),
                  'additionalProperties': {
                      'type': ['string', 'null'], 'minLength': 1}})})


class Hardware(NamedTuple):
    """The NUMA cells and the PCI devices of a host, without servers.

    :ivar topology: None if the host reports no cells
    """

    topology: HostTopology | None = None
    devices: Pools = ()


class _Document(NamedTuple):
    """A document that is read.

    :ivar where: name of the document
    :ivar field: the field that has the description; empty for the document
    """

    where: object
    field: str

    def refuse(
        self, way: Iterable[str | int], problem: str, expected: str
    ) -> exception.InvalidField:
        """Return the error for a field, given by the way to it."""
        return exception.InvalidField(
            where=str(self.where), problem=problem, expected=expected,
            field=json_schema.field_name(
                [*([self.field] if self.field else ()), *way]))


def read(where: object, value: Any, field: str = '') -> Hardware:
    """Return the hardware that a value describes.

    :param where: the document, such as the path of a file
    :param field: the field of the document that has the value; empty if the
        value is the document
    :raises cellsched.exception.InvalidField: names the field and the
        expectation
    """
    json_schema.check(where, value, _SCHEMA, field)
    document = _Document(where, field)
    cells: dict[int, HostCell] = {}
    seen: set[int] = set()
    for number, given in enumerate(value.get('cells', ())):
        way = 'cells', number
        cell = _cell(document, way, given)
        if cell.id in cells:
            raise document.refuse(
                (*way, 'id'), f'{cell.id} is repeated', 'each cell once')
        if cpus := seen & (cell.cpus | cell.pcpus):
            raise document.refuse(
                way, f'it has CPU {min(cpus)} of another cell',
                'each CPU in one cell')
        seen |= cell.cpus | cell.pcpus
        cells[cell.id] = cell
    return Hardware(
        HostTopology(tuple(cells.values())) if cells else None,
        _pools(document, value.get('devices', ()), cells))


def _cell(
    document: _Document, way: tuple[str | int, ...], given: Mapping[str, Any]
) -> HostCell:
    cpus, pcpus = (_cpus(document, (*way, name), given.get(name, ''))
                   for name in ('cpus', 'dedicated'))
    if cpus & pcpus:
        raise document.refuse(
            (*way, 'dedicated'), f'CPU {min(cpus & pcpus)} is in cpus, too',
            'each CPU for one use')
    pages = tuple(Pages(each['size_kb'], each['total'],
                        reserved=each.get('reserved', 0))
                  for each in given.get('pages', ()))
    for number, each in enumerate(pages):
        fitting = given['memory_mb'] * KIB // each.size_kb
        for name, amount, most in (
                ('total', each.total, fitting),
                ('reserved', each.reserved, each.total)):
            if amount > most:
                raise document.refuse(
                    (*way, 'pages', number, name),
                    f'{amount} is out of range', f'0 to {most}')
    if len({each.size_kb for each in pages}) < len(pages):
        raise document.refuse((*way, 'pages'), 'a size_kb is repeated',
                              'each size once')
    return HostCell(
        given['id'], cpus, pcpus, given['memory_mb'],
        siblings=_cores(document, (*way, 'siblings'), cpus | pcpus,
                        given.get('siblings', 1)),
        pages=pages, socket=given.get('socket'),
        physnets=(frozenset(given.get('physnets', ()))
                  if given.keys() & {'physnets', 'tunneled'} else None),
        tunneled=given.get('tunneled', False))


def _cpus(
    document: _Document, way: Iterable[str | int], given: str | int
) -> CPUs:
    try:
        return parse_cpus(str(given))
    except exception.HardwareRequestInvalid:
        raise document.refuse(
            way, f'{json_schema.shown(given)} is not valid',
            _CPUS['description']) from None


def _cores(
    document: _Document, way: Iterable[str | int], cpus: CPUs,
    given: int | Sequence[Sequence[int]],
) -> tuple[CPUs, ...]:
    """Return the threads of each core."""
    if isinstance(given, int):
        # Linux numbers the first threads of all cores, then the second ones.
        number, rest = divmod(len(cpus), given)
        if rest:
            raise document.refuse(
                way, f'{len(cpus)} CPUs are not cores of {given} threads',
                'a divisor of the number of CPUs, or a list')
        ordered = sorted(cpus)
        return tuple(frozenset(ordered[first::number])
                     for first in range(number))
    listed = [cpu for core in given for cpu in core]
    if len(listed) != len(cpus) or cpus != set(listed):
        raise document.refuse(
            way, 'it does not have the CPUs of the cell',
            'each CPU of the cell in one core')
    return tuple(map(frozenset, given))


def _pools(
    document: _Document, given: Iterable[Mapping[str, Any]],
    cells: Mapping[int, HostCell],
) -> Pools:
    pools: list[Pool] = []
    seen = set[Any]()
    for number, each in enumerate(given):
        way = 'devices', number
        near = each.get('numa_node')
        if cells and near is not None and near not in cells:
            raise document.refuse(
                (*way, 'numa_node'), f'the host has no cell {near}',
                'the id of a cell')
        pools += devices.pools([{
            'dev_type': _TYPES[0], **_tags(document, way, each), **{
                name: value for name, value in each.items()
                if name != 'tags'}}])
        if pools[-1].kind in seen:
            raise document.refuse(
                way, 'it is repeated', 'each kind of device once in a cell')
        address = pools[-1].values.get('address')
        if address in seen:
            raise document.refuse(
                (*way, 'tags', 'address'), f'{address} is repeated',
                'each address once')
        seen |= {pools[-1].kind, address} - {None}
    return devices.ordered(pools)


def _tags(
    document: _Document, way: tuple[str | int, ...], given: Mapping[str, Any]
) -> Mapping[str, str]:
    """Return the tags of devices, with true or false for yes and no."""
    # A physical network of null stands for tunneled networks, as in Nova.
    tags = {name: value for name, value in given.get('tags', {}).items()
            if value is not None}
    for name in tags.keys() & _FIELDS:
        raise document.refuse(
            (*way, 'tags', name), 'it is a field of the device',
            f'{name} beside tags')
    for name in tags.keys() & set(_FLAGS):
        try:
            tags[name] = str(strutils.bool_from_string(
                tags[name], strict=True)).lower()
        except ValueError:
            raise document.refuse(
                (*way, 'tags', name),
                f'{json_schema.shown(tags[name])} is not valid',
                'yes or no') from None
    if 'one_time_use' in tags and given.get('dev_type') in ('type-VF', 'vdpa'):
        raise document.refuse(
            (*way, 'tags', 'one_time_use'),
            f'devices of {given["dev_type"]} cannot have it',
            'devices of type-PCI or type-PF')
    if given['count'] > 1 and (
            'address' in tags or tags.get('one_time_use') == 'true'):
        raise document.refuse(
            (*way, 'count'), f'{given["count"]} devices share one entry',
            '1, since each device with address or one_time_use has its own '
            'entry')
    return tags
