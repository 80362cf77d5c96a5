# SPDX-License-Identifier: Apache-2.0
"""Resource providers: list and get all; create, change, delete shared ones."""

import builtins
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import operator_changes
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched.db import session
from cellsched import exception
from cellsched.listing import server
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.validation import json_schema


#: Kinds of providers: a compute node; a part of a compute node; and a
#: provider that the hosts of an aggregate share.
ROOT, CHILD, SHARING = KINDS = ('root', 'child', 'sharing')

#: Times that one request sets an inventory that other requests change.
_SYNCS_MAX = 20


class ClassUsage(NamedTuple):
    """The inventory of a resource class, and its usage."""

    inventory: resources.Inventory
    used: int

    @property
    def is_over(self) -> bool:
        """Return whether the usage exceeds the capacity."""
        return self.used > self.inventory.capacity


@dataclasses.dataclass(frozen=True)
class ProviderRecord:
    """A resource provider.

    :param kind: one of :data:`KINDS`
    :param parent: uuid of the provider directly above a child
    :param root: uuid of the root of a child; else the uuid of the provider
    :param host: the compute host, unless the provider is shared
    :param cell: name of the cell of the host
    :param aggregate: name of the aggregate that shares the provider
    :param inventories: by resource class
    :param consumers: number of consumers with an allocation
    """

    uuid: str
    name: str
    kind: str
    parent: str | None
    root: str
    host: str | None
    cell: str | None
    aggregate: str | None
    traits: frozenset[str]
    inventories: Mapping[str, ClassUsage] = dataclasses.field(
        default_factory=dict)
    consumers: int = 0

    @property
    def over_capacity(self) -> list[str]:
        """The resource classes with more usage than capacity, sorted.

        That happens when an inventory is reduced. Existing allocations stay,
        and no more is allocated of these classes.
        """
        return [name for name, has in sorted(self.inventories.items())
                if has.is_over]


@dataclasses.dataclass(frozen=True)
class ProviderPage:
    """Resource providers, and the names of cells that did not answer.

    Nodes are sorted by cell and name, each with its children; sharing
    providers follow.
    """

    providers: list[ProviderRecord]
    down_cells: list[str]


def of_nodes(
    nodes: Iterable[compute_nodes.RootRow], cell: str
) -> list[ProviderRecord]:
    """Return the nodes of a cell with their children."""
    found = []
    for node in nodes:
        found.append(ProviderRecord(
            node.uuid, node.name, ROOT, None, node.uuid, node.host, cell,
            None, node.traits))
        found += [
            ProviderRecord(
                child.uuid, child.name, CHILD, child.parent or node.uuid,
                node.uuid, node.host, cell, None, child.traits)
            for child in node.children]
    return found


def of_shared(
    shared: Iterable[shared_providers.SharedProvider],
    aggregates: Mapping[str, str],
) -> list[ProviderRecord]:
    """Return sharing providers.

    :param aggregates: names of aggregates, by uuid
    """
    return [
        ProviderRecord(
            each.uuid, each.name, SHARING, None, each.uuid, None, None,
            aggregates.get(each.aggregate_uuid, each.aggregate_uuid),
            each.traits)
        for each in shared]


def with_usage(
    records: Iterable[ProviderRecord], store: claims_base.Providers,
    everything: bool = False,
) -> list[ProviderRecord]:
    """Return providers with their inventories and usage.

    A class without inventory and usage is left out.

    :param everything: whether the records are nearly all providers; the store
        is asked for all of them then
    """
    records = list(records)
    asked = None if everything else [each.uuid for each in records]
    usages = {each.provider: each
              for each in store.usages(providers=asked).usages}
    inventories = store.inventories(asked)
    return [
        dataclasses.replace(
            each, consumers=usages[each.uuid].consumers, inventories=_shown(
                usages[each.uuid], inventories.get(each.uuid, {})))
        if each.uuid in usages else each for each in records]


def _shown(
    usage: claims_base.Usage, inventories: Mapping[str, resources.Inventory]
) -> dict[str, ClassUsage]:
    nothing = resources.Inventory(0)
    shown = {
        name: ClassUsage(inventories.get(name, nothing),
                         usage.used.get(name, 0))
        for name in sorted({*inventories, *usage.used})}
    return {name: has for name, has in shown.items()
            if has.inventory.total or has.used}


_WHERE = 'provider'

#: Fields of an inventory by resource class; None removes the inventory.
InventoryChanges = Mapping[str, Mapping[str, Any] | None]


class Providers(base.Controller):
    """Lists all resource providers, and changes the sharing providers.

    Agents report compute nodes and the providers below them. An operator
    creates the providers that the hosts of an aggregate share: a storage pool,
    for example. The row in the API database is written first, and the claim
    store is updated from it. A change that was interrupted is completed when
    it is repeated.

    :param claims: returns the claim store
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        cells: registry.CellRegistry, gatherer: gather.Gatherer,
        claims: Callable[[], claims_base.Providers], clock: Clock,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._claims = claims
        self._clock = clock
        self._new_uuid = new_uuid

    @base.requires('cellsched:resource_providers:create')
    def create(
        self, context: RequestContext, name: str, aggregate: str,
        inventories: Mapping[str, Mapping[str, Any]],
        traits: Iterable[str] = (),
    ) -> ProviderRecord:
        """Create a provider that the hosts of an aggregate share.

        If an identical provider exists, nothing changes.

        :param aggregate: its id or name
        :param inventories: fields of :class:`.objects.resources.Inventory` by
            resource class, of which ``total`` has no default
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: it does not exist
        :raises cellsched.exception.ResourceProviderExists: its name is taken
        """
        _check_name(name)
        made = shared_providers.SharedProvider(
            self._new_uuid(), name, self._aggregate(aggregate),
            check_traits('traits', traits),
            changed_inventories({}, inventories))
        try:
            with operator_changes.known(
                    self._database, self._clock) as connection:
                shared_providers.create(connection, made, self._clock.now())
        except exception.ResourceProviderExists:
            known = self._get_shared(name)
            if known._replace(uuid=made.uuid) != made:
                raise
            made = known
        self._sync(made.uuid)
        return self._shown(made)

    @base.requires('cellsched:resource_providers:update')
    def update(
        self, context: RequestContext, name: str,
        new_name: str | None = None, aggregate: str | None = None,
        inventories: InventoryChanges | None = None,
        add_traits: Iterable[str] = (), remove_traits: Iterable[str] = (),
    ) -> ProviderRecord:
        """Change a sharing provider and return it; None changes nothing.

        Existing allocations stay, even if the inventory becomes smaller.

        :param name: its name or uuid
        :param aggregate: id or name of the aggregate that shares it
        :param inventories: fields to change, by resource class; None removes
            a class
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: it does not exist
        :raises cellsched.exception.ResourceProviderNotFound: it does not exist
        :raises cellsched.exception.ResourceProviderExists: the new name is
            taken
        """
        validation.check_text(_WHERE, 'name', name)
        if new_name is not None:
            _check_name(new_name)
        add = check_traits('traits', add_traits)
        remove = check_traits('traits', remove_traits)
        uuid = None if aggregate is None else self._aggregate(aggregate)

        def change(
            known: shared_providers.SharedProvider
        ) -> shared_providers.SharedProvider:
            traits = check_traits('traits', (known.traits - remove) | add)
            return known._replace(
                aggregate_uuid=uuid or known.aggregate_uuid, traits=traits,
                inventories=changed_inventories(
                    known.inventories, inventories or {}))

        if new_name is not None:
            self._check_free(new_name, self._get_shared(name).uuid)
        changed = self._change(name, change)
        self._sync(changed.uuid)
        if new_name not in (None, changed.name):
            # Comes last: until then all of it can be done again by this name.
            changed = self._change(
                changed.uuid, lambda known: known._replace(name=new_name))
        return self._shown(changed)

    @base.requires('cellsched:resource_providers:delete')
    def delete(self, context: RequestContext, name: str) -> None:
        """Delete a sharing provider without allocations.

        :param name: its name or uuid
        :raises cellsched.exception.InvalidField: the name is invalid
        :raises cellsched.exception.ResourceProviderNotFound: it does not exist
        :raises cellsched.exception.ResourceProviderInUse: it has allocations;
            it does not change then
        """
        validation.check_text(_WHERE, 'name', name)
        known = self._get_shared(name)
        self._check_unused(known)
        # Without an inventory no further claim succeeds, so the second check
        # is final.
        self._claims().set_inventory(known.uuid, {})
        self._check_unused(known)
        with operator_changes.known(
                self._database, self._clock) as connection:
            shared_providers.delete(connection, known.uuid)
        self._sync(known.uuid)

    @base.requires('cellsched:resource_providers:show')
    def get(self, context: RequestContext, name: str) -> ProviderRecord:
        """Return a provider by uuid or name, a sharing provider first.

        :raises cellsched.exception.InvalidField: the name is invalid, or
            several providers have it
        :raises cellsched.exception.ResourceProviderNotFound: it does not exist
        :raises cellsched.exception.CellsDown: some cells do not answer, and
            the other cells do not have it
        """
        validation.check_text(_WHERE, 'name', name)
        try:
            return self._shown(self._get_shared(name))
        except exception.ResourceProviderNotFound:
            found, down = self._of_cells()
        exact = [each for each in found if each.uuid == name]
        found = exact or [each for each in found if each.name == name]
        if len(found) > 1:
            raise exception.InvalidField(
                where=_WHERE, field='name',
                problem=f'{len(found)} providers have the name {name}',
                expected='the uuid of one: ' + ', '.join(
                    sorted(each.uuid for each in found)))
        if not found and down:
            raise exception.CellsDown(
                f'There is no resource provider {name} in the cells that '
                f'answer; these do not: {", ".join(down)}.',
                cells=', '.join(down))
        if not found:
            raise exception.ResourceProviderNotFound(provider=name)
        [record] = with_usage(found, self._claims())
        return record

    @base.requires('cellsched:resource_providers:index')
    def list(
        self, context: RequestContext, kind: str | None = None
    ) -> ProviderPage:
        """Return all providers of the cells that answer.

        :param kind: only such ones; see
            :data:`KINDS`
        :raises cellsched.exception.InvalidField: the kind is unknown
        """
        if kind is not None:
            validation.check_choice(_WHERE, 'kind', kind, KINDS)
        found, down = (((), ()) if kind == SHARING else self._of_cells())
        return ProviderPage(
            with_usage(
                [each for each in (*found, *self._shared())
                 if kind in (None, each.kind)],
                self._claims(), kind is None), [*down])

    def _of_cells(self) -> tuple[Sequence[ProviderRecord], Sequence[str]]:
        """Return the providers of cells, and the cells that do not answer."""
        cells = sorted(self._cells.real(), key=server.name_of)
        gathered = self._gatherer.gather(admin(), cells, _read)
        found: builtins.list[ProviderRecord] = []
        down = []
        for cell in cells:
            if cell.uuid in gathered.results:
                found += of_nodes(
                    gathered.results[cell.uuid], server.name_of(cell))
                continue
            down.append(server.name_of(cell))
        return found, down

    def _shared(self) -> Sequence[ProviderRecord]:
        with self._database.reader() as connection:
            shared = shared_providers.list_all(
                connection, self._database.conditions)
            names = {each.uuid: each.name
                     for each in aggregates.list_all(connection)}
        return of_shared(shared, names)

    def _shown(
        self, provider: shared_providers.SharedProvider
    ) -> ProviderRecord:
        found = [each for each in self._shared() if each.uuid == provider.uuid]
        if not found:
            # Another request has deleted it.
            raise exception.ResourceProviderNotFound(provider=provider.name)
        [record] = with_usage(found, self._claims())
        return record

    def _get_shared(self, name: str) -> shared_providers.SharedProvider:
        with self._database.reader() as connection:
            return shared_providers.get(connection, name)

    def _aggregate(self, name: str) -> str:
        """Return the uuid of an aggregate."""
        validation.check_text(_WHERE, 'aggregate', name)
        with self._database.reader() as connection:
            found = aggregates.get(connection, name)
        if not found.uuid:
            raise exception.InvalidField(
                where=_WHERE, field='aggregate',
                problem=f'the aggregate {name} has no uuid',
                expected='an aggregate with a uuid')
        return found.uuid

    def _check_free(self, name: str, uuid: str) -> None:
        """Make sure that no other sharing provider has a name."""
        try:
            if self._get_shared(name).uuid != uuid:
                raise exception.ResourceProviderExists(name=name)
        except exception.ResourceProviderNotFound:
            pass

    def _check_unused(self, known: shared_providers.SharedProvider) -> None:
        """Make sure that there are no allocations, else restore the class."""
        for usage in self._claims().usages(providers=[known.uuid]).usages:
            if usage.consumers:
                self._sync(known.uuid)
                raise exception.ResourceProviderInUse(
                    provider=known.name, count=usage.consumers)

    def _change(
        self, name: str,
        change: Callable[[shared_providers.SharedProvider],
                         shared_providers.SharedProvider],
    ) -> shared_providers.SharedProvider:
        with operator_changes.known(
                self._database, self._clock) as connection:
            changed = change(shared_providers.get(
                connection, name, to_change=True))
            shared_providers.update(connection, changed, self._clock.now())
        return changed

    def _sync(self, uuid: str) -> None:
        """Set the inventory in the claim store to that in the database.

        Concurrent requests may set it in any order. Each reads the row again
        after it has set the inventory, so that the last one sets the last
        row.

        :raises cellsched.exception.ServiceBusy: the row changed each time
        """
        synced: Mapping[str, resources.Inventory] | None = None
        for _ in range(_SYNCS_MAX):
            try:
                inventories = self._get_shared(uuid).inventories
            except exception.ResourceProviderNotFound:
                inventories = {}
            if inventories == synced:
                return
            self._claims().set_inventory(uuid, inventories)
            synced = inventories
        # Other requests change the row all the time.
        raise exception.ServiceBusy(waiting=1)


def _check_name(name: Any) -> None:
    validation.check_text(_WHERE, 'name', name)
    if uuidutils.is_uuid_like(name):
        raise exception.InvalidField(
            where=_WHERE, field='name', problem=f'{name} looks like a uuid',
            expected='a name that is not a uuid')


def changed_inventories(
    known: Mapping[str, resources.Inventory], changes: InventoryChanges
) -> dict[str, resources.Inventory]:
    """Return inventories by class, after changes.

    :param changes: fields of an inventory, by class. Fields that are not
        given do not change. A new inventory needs ``total``. None removes an
        inventory.
    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    _check_mapping('inventories', changes)
    inventories = dict(known)
    for name, fields in changes.items():
        if not (isinstance(name, str) and resources.is_known(name)):
            raise _invalid('inventories', name, resources.CLASSES)
        if fields is None:
            inventories.pop(name, None)
            continue
        _check_mapping(name, fields)
        present = inventories.get(name)
        merged = {**({} if present is None else dataclasses.asdict(present)),
                  **fields}
        json_schema.check(_WHERE, merged, validation.INVENTORY, name)
        for field, bound in (('reserved', 'total'), ('min_unit', 'max_unit')):
            most = merged.get(bound, resources.AMOUNT_MAX)
            if merged.get(field, 0) > most:
                raise exception.InvalidField(
                    where=_WHERE, field=f'{name}.{field}',
                    problem=f'{merged[field]} is out of range',
                    expected=f'at most the {bound}, {most}')
        inventories[name] = resources.Inventory(**merged)
    validation.check_count(_WHERE, 'number of resource classes',
                           len(inventories), validation.CONTENTS_MAX, least=0)
    return inventories


def check_traits(field: str, traits: Any) -> frozenset[str]:
    """Return the names of traits as a set.

    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    if not isinstance(traits, (list, tuple, set, frozenset)):
        raise _invalid(field, traits, 'a list of names')
    validation.check_count(
        _WHERE, f'number of {field}', len(traits), validation.CONTENTS_MAX,
        least=0)
    for name in traits:
        if not (isinstance(name, str) and request_groups.is_trait(name)):
            raise _invalid(
                field, name, 'a trait of os-traits, or CUSTOM_ with 1 to 248 '
                             'capital letters, digits and _')
    return frozenset(traits)


def _check_mapping(field: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _invalid(field, value, 'a mapping')


def _invalid(field: str, value: Any, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where=_WHERE, field=field,
        problem=f'{json_schema.shown(value)} is not valid', expected=expected)


def _read(cell_context: RequestContext) -> list[compute_nodes.RootRow]:
    with cell_context.cell.database.reader() as connection:
        return compute_nodes.list_all(connection)
