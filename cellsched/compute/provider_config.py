# SPDX-License-Identifier: Apache-2.0
"""Provider configuration files of a host, in Nova's format.

.. code-block:: yaml

   meta:
     schema_version: '1.0'
   providers:
     - identification:
         name: $COMPUTE_NODE
       traits:
         additional: [CUSTOM_RACK_LIQUID_COOLED]
       inventories:
         additional:
           - CUSTOM_LICENCE: {total: 4, max_unit: 1}
       hardware:
         cells:
           - {id: 0, memory_mb: 65536, cpus: 0-1, dedicated: 2-15}

The section ``hardware`` is an addition, see
:mod:`cellsched.hardware.description`. It applies to nodes only.

An entry names a node or a child provider by name or ``uuid``.
``uuid: $COMPUTE_NODE`` applies to every node without an entry of its own. An
entry with a child's name applies to the children of that name on all nodes.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import os
import pathlib
from typing import Any
from typing import NamedTuple

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.claims import validation
from cellsched import exception
from cellsched.hardware import description
from cellsched.hardware.description import Hardware
from cellsched.hardware import units
from cellsched.objects import resources
from cellsched.validation import json_schema
from cellsched.validation.json_schema import field_name

LOG = log.getLogger(__name__)

#: Stands for every node of the host.
EVERY_NODE = '$COMPUTE_NODE'

#: Providers and traits of one file.
_ENTRIES_MAX = 1000

#: Entries that one line of the log names.
_EXAMPLES_MAX = 10

_AMOUNT_MAX = resources.AMOUNT_MAX

#: The description of each schema is the expectation in errors.
_TRAITS = {
    'type': 'object', 'description': 'a mapping with a list "additional"',
    'properties': {'additional': {
        'type': 'array', 'maxItems': _ENTRIES_MAX,
        'description': f'a list of at most {_ENTRIES_MAX} traits',
        'items': {
            'type': 'string', 'pattern': r'^CUSTOM_[A-Z0-9_]{1,248}\Z',
            'description': 'CUSTOM_ and 1 to 248 capital letters, digits '
                           'and underscores'}}}}

_INVENTORY = {
    'type': 'object', 'required': ['total'], 'additionalProperties': False,
    'description': 'a mapping with total, and with reserved, min_unit, '
                   'max_unit, step_size or allocation_ratio',
    'properties': {
        **{name: {'type': 'integer', 'minimum': least, 'maximum': _AMOUNT_MAX}
           for name, least in (('total', 1), ('reserved', 0), ('min_unit', 1),
                               ('max_unit', 1), ('step_size', 1))},
        'allocation_ratio': {
            'type': 'number', 'exclusiveMinimum': 0,
            'maximum': validation.RATIO_MAX}}}

_INVENTORIES = {
    'type': 'object', 'description': 'a mapping with a list "additional"',
    'properties': {'additional': {
        'type': 'array', 'maxItems': _ENTRIES_MAX,
        'description': f'a list of at most {_ENTRIES_MAX} mappings',
        'items': {
            'type': 'object', 'additionalProperties': False,
            'description': 'inventories by their resource classes, each '
                           'CUSTOM_ and 1 to 248 capital letters, digits and '
                           'underscores',
            'patternProperties': {
                r'^CUSTOM_[A-Z0-9_]{1,248}\Z': _INVENTORY}}}}}

_IDENTIFICATION = {
    'type': 'object', 'minProperties': 1, 'maxProperties': 1,
    'additionalProperties': False, 'description': 'either uuid or name',
    'properties': {
        'uuid': {
            'type': 'string',
            'pattern': r'^(\$COMPUTE_NODE|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}'
                       r'-[0-9A-Fa-f]{12})\Z',
            'description': f'a uuid or {EVERY_NODE}'},
        'name': {'type': 'string', 'minLength': 1, 'maxLength': 200,
                 'description': 'a text of 1 to 200 characters'}}}

_SCHEMA = {
    'type': 'object', 'required': ['meta'],
    'description': 'a mapping with meta and providers',
    'properties': {
        'meta': {
            'type': 'object', 'required': ['schema_version'],
            'description': 'a mapping with schema_version',
            'properties': {'schema_version': {
                'type': 'string', 'pattern': r'^1\.(0|[1-9][0-9]{0,3})\Z',
                'description': "'1.0', in quotes"}}},
        'providers': {
            'type': 'array', 'maxItems': _ENTRIES_MAX,
            'description': f'a list of at most {_ENTRIES_MAX} providers',
            'items': {
                'type': 'object', 'required': ['identification'],
                'description': 'a mapping with identification',
                'properties': {'identification': _IDENTIFICATION,
                               'traits': _TRAITS,
                               'inventories': _INVENTORIES}}}}}

#: The identity of a version of a file: name, time, size and inode.
_Stamp = tuple[str, int, int, int]


class _Provider(NamedTuple):
    """The entry of a provider."""

    traits: frozenset[str] = frozenset()
    inventories: Mapping[str, claims_base.Inventory] = {}
    hardware: Hardware = Hardware()


class ProviderConfig:
    """The provider configuration of the nodes of this host, from files.

    :param location: the directory; None for no files
    """

    def __init__(self, location: str | None) -> None:
        self._location = None if location is None else pathlib.Path(location)
        self._stamps: list[_Stamp] = []
        self._providers: Mapping[str, _Provider] = {}
        # The last error of the directory, which is logged once.
        self._problem = ''
        # Entries without a provider that were logged.
        self._idle: Set[str] = frozenset()

    def load(self) -> None:
        """Read the files.

        :raises cellsched.exception.InvalidField: names the file, the field and
            the bound; the values before are kept
        """
        self._stamps = self._look()
        self._providers = self._read()

    def follow(self) -> None:
        """Read the files again if one of them has changed.

        An error is logged once, and the values before are kept. A directory
        that had files and is missing is such an error.
        """
        try:
            if self._look() != self._stamps:
                self.load()
            self._problem = ''
        except exception.InvalidField as exc:
            if str(exc) != self._problem:
                LOG.error('%s; the earlier configuration stays in force', exc)
            self._problem = str(exc)

    def traits(
        self, name: str, uuid: str, is_node: bool = True
    ) -> frozenset[str]:
        """Return the configured traits of a provider.

        :param is_node: it is a node, not a child provider
        """
        return self._provider(name, uuid, is_node).traits

    def inventories(
        self, name: str, uuid: str, is_node: bool = True
    ) -> Mapping[str, claims_base.Inventory]:
        """Return the configured inventories of a provider, by resource class.

        :param is_node: it is a node, not a child provider
        """
        return self._provider(name, uuid, is_node).inventories

    def hardware(self, name: str, uuid: str) -> Hardware:
        """Return the configured cells and devices of a node."""
        return self._provider(name, uuid, is_node=True).hardware

    def note_idle(self, known: Set[str]) -> None:
        """Log entries without a matching provider, once each.

        :param known: names and uuids of all providers of the host
        """
        idle = self._providers.keys() - known - {EVERY_NODE}
        new = sorted(idle - self._idle)
        if new:
            LOG.warning(
                '%s: %d entries name no node of this host and no child '
                'provider of one, and are ignored: %s', self._location,
                len(new), ', '.join(map(ascii, new[:_EXAMPLES_MAX])))
        self._idle = idle

    def _provider(self, name: str, uuid: str, is_node: bool) -> _Provider:
        for each in name, uuid.lower():
            if each in self._providers:
                return self._providers[each]
        return self._providers.get(EVERY_NODE if is_node else '', _Provider())

    def _look(self) -> list[_Stamp]:
        if self._location is None:
            return []
        try:
            names = sorted(name for name in os.listdir(self._location)
                           if name.endswith('.yaml'))
        except OSError as exc:
            if isinstance(exc, FileNotFoundError) and not self._stamps:
                return []
            raise json_schema.invalid(
                self._location, (),
                'a readable directory',
                f'it cannot be read: {exc.strerror}') from None
        return [self._stamp(name) for name in names]

    def _stamp(self, name: str) -> _Stamp:
        assert self._location is not None
        try:
            stat = os.stat(self._location / name)
        except OSError:
            # A link to a missing file must not disable the other files: the
            # read that follows fails.
            return name, 0, 0, 0
        return name, stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> Mapping[str, _Provider]:
        found: dict[str, _Provider] = {}
        assert self._location is not None or not self._stamps
        for name, *_ in self._stamps:
            path = pathlib.Path(self._location or '', name)
            for number, provider in enumerate(_providers(path)):
                [(kind, node)] = provider['identification'].items()
                node = node.lower() if kind == 'uuid' and (
                    node != EVERY_NODE) else node
                where = ('providers', number)
                if node in found:
                    raise json_schema.invalid(
                        path, (*where, 'identification'),
                        'each provider once', f'{node} is repeated')
                found[node] = _Provider(
                    frozenset(provider.get('traits', {}).get(
                        'additional', ())),
                    _inventories(path, where, provider.get('inventories', {})),
                    description.read(
                        path, provider.get('hardware', {}), field_name(
                            (*where, 'hardware'))))
        return found


def _inventories(
    path: pathlib.Path, where: tuple[str | int, ...], value: Mapping[str, Any]
) -> dict[str, claims_base.Inventory]:
    found: dict[str, claims_base.Inventory] = {}
    for place, inventories in enumerate(value.get('additional', ())):
        for name, fields in inventories.items():
            if name in found:
                raise json_schema.invalid(
                    path, (*where, 'inventories', 'additional', place),
                    'each resource class once', f'{name} is repeated')
            if units.is_named(name):
                raise json_schema.invalid(
                    path, (*where, 'inventories', 'additional', place),
                    'hardware for the CPUs, pages and devices of the host',
                    f'{name} is the class of a part of it')
            found[name] = claims_base.Inventory(**{
                'max_unit': fields['total'], **fields})
    return found


def _providers(path: pathlib.Path) -> Iterator[Mapping[str, Any]]:
    # Most hosts have no such file.
    from cellsched.validation import yaml_file

    if path.is_fifo():
        # The agent would wait for the writer, and report no more.
        raise json_schema.invalid(
            path, ('document',), 'a regular file', 'it is a pipe')
    value = yaml_file.read(path)
    json_schema.check(path, value, _SCHEMA)
    version = value['meta']['schema_version']
    if version != '1.0':
        LOG.warning('%s: schema_version %s is newer than 1.0, and some of it '
                    'may be ignored', path, version)
    yield from value.get('providers', ())
