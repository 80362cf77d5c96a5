# SPDX-License-Identifier: Apache-2.0
"""Resource providers: list and get all; create, change, delete shared ones."""

import builtins
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import provider_fields
from cellsched.api import provider_records
from cellsched.api import validation
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched.db import session
from cellsched import exception
from cellsched.listing import server
from cellsched.objects import resources

LOG = log.getLogger(__name__)

_WHERE = 'provider'

#: Fields of an inventory by resource class; None where there is to be none.
InventoryChanges = Mapping[str, Mapping[str, Any] | None]


class Providers(base.Controller):
    """Shows what there is to claim, and keeps what aggregates share.

    Compute nodes, and the providers below them, are reported by agents. An
    operator adds those that the hosts of an aggregate share, such as a pool
    of storage. The row in the API database says what is to be and is written
    first; the claim store follows it, whoever wrote last. So what ended
    half-way is finished by being done again.

    :param claims: returns the claim store
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        cells: registry.CellRegistry, gatherer: gather.Gatherer,
        claims: Callable[[], claims_base.ClaimStore], clock: Clock,
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
    ) -> provider_records.ProviderRecord:
        """Add a provider that the hosts of an aggregate share; return it.

        Where it is there already, just as it is to be, nothing changes.

        :param aggregate: its id or name
        :param inventories: fields of :class:`.objects.resources.Inventory` by
            resource class, of which ``total`` has no default
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: there is none
        :raises cellsched.exception.ResourceProviderExists: its name is taken
        """
        _check_name(name)
        made = shared_providers.SharedProvider(
            self._new_uuid(), name, self._aggregate(aggregate),
            provider_fields.check_traits('traits', traits),
            provider_fields.changed({}, inventories))
        try:
            with self._database.writer() as connection:
                shared_providers.create(
                    connection, made, self._clock.now())
        except exception.ResourceProviderExists:
            known = self._get_shared(name)
            if known._replace(uuid=made.uuid) != made:
                raise
            made = known
        self._settle(made.uuid)
        return self._shown(made)

    @base.requires('cellsched:resource_providers:update')
    def update(
        self, context: RequestContext, name: str,
        new_name: str | None = None, aggregate: str | None = None,
        inventories: InventoryChanges | None = None,
        add_traits: Iterable[str] = (), remove_traits: Iterable[str] = (),
    ) -> provider_records.ProviderRecord:
        """Change a sharing provider and return it; what is None stays.

        What is held of it stays, whatever there is of it from now on.

        :param name: its name or uuid
        :param aggregate: id or name of the aggregate whose hosts share it
        :param inventories: fields to change, by resource class; None removes
            a class
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: there is none
        :raises cellsched.exception.ResourceProviderNotFound: there is none
        :raises cellsched.exception.ResourceProviderExists: the new name is
            taken
        """
        validation.check_text(_WHERE, 'name', name)
        if new_name is not None:
            _check_name(new_name)
        add = provider_fields.check_traits('traits', add_traits)
        remove = provider_fields.check_traits('traits', remove_traits)
        uuid = None if aggregate is None else self._aggregate(aggregate)

        def change(
            known: shared_providers.SharedProvider
        ) -> shared_providers.SharedProvider:
            traits = provider_fields.check_traits(
                'traits', (known.traits - remove) | add)
            return known._replace(
                aggregate_uuid=uuid or known.aggregate_uuid, traits=traits,
                inventories=provider_fields.changed(
                    known.inventories, inventories or {}))

        if new_name is not None:
            self._check_free(new_name, self._get_shared(name).uuid)
        changed = self._change(name, change)
        self._settle(changed.uuid)
        if new_name not in (None, changed.name):
            # Comes last: until then all of it can be done again by this name.
            changed = self._change(
                changed.uuid, lambda known: known._replace(name=new_name))
        return self._shown(changed)

    @base.requires('cellsched:resource_providers:delete')
    def delete(self, context: RequestContext, name: str) -> None:
        """Delete a sharing provider of which nothing is held.

        :param name: its name or uuid
        :raises cellsched.exception.InvalidField: no name that can be kept
        :raises cellsched.exception.ResourceProviderNotFound: there is none
        :raises cellsched.exception.ResourceProviderInUse: something is held;
            more may be claimed then, as before
        """
        validation.check_text(_WHERE, 'name', name)
        known = self._get_shared(name)
        self._check_unused(known)
        # Whoever claims from now on is refused, so what is held at last is
        # all that there will be.
        self._claims().set_inventory(known.uuid, {})
        self._check_unused(known)
        with self._database.writer() as connection:
            shared_providers.delete(connection, known.uuid)
        self._settle(known.uuid)

    @base.requires('cellsched:resource_providers:show')
    def get(
        self, context: RequestContext, name: str
    ) -> provider_records.ProviderRecord:
        """Return a provider by its uuid or name; sharing ones go first.

        :raises cellsched.exception.InvalidField: no name that can be kept, or
            one that several have
        :raises cellsched.exception.ResourceProviderNotFound: there is none
        :raises cellsched.exception.CellsDown: cells do not answer, and none
            is in the others
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
                expected='a name that one provider has, or the uuid of one: '
                         + ', '.join(sorted(each.uuid for each in found)))
        if not found and down:
            raise exception.CellsDown(
                f'There is no resource provider {name} in the cells that '
                f'answer; these do not: {", ".join(down)}.',
                cells=', '.join(down))
        if not found:
            raise exception.ResourceProviderNotFound(provider=name)
        [record] = provider_records.with_usage(found, self._claims())
        return record

    @base.requires('cellsched:resource_providers:index')
    def list(
        self, context: RequestContext, kind: str | None = None
    ) -> provider_records.ProviderPage:
        """Return all providers; those of cells that do not answer are missing.

        :param kind: only such ones; see
            :data:`.api.provider_records.KINDS`
        :raises cellsched.exception.InvalidField: there is no such kind
        """
        if kind is not None:
            validation.check_choice(
                _WHERE, 'kind', kind, provider_records.KINDS)
        found, down = (
            ((), ()) if kind == provider_records.SHARING
            else self._of_cells())
        return provider_records.ProviderPage(
            provider_records.with_usage(
                [each for each in (*found, *self._shared())
                 if kind in (None, each.kind)],
                self._claims(), kind is None), [*down])

    def _of_cells(
        self
    ) -> tuple[Sequence[provider_records.ProviderRecord], Sequence[str]]:
        """Return the providers of cells, and the cells that do not answer."""
        cells = sorted(self._cells.real(), key=server.name_of)
        gathered = self._gatherer.gather(admin(), cells, _read)
        found: builtins.list[provider_records.ProviderRecord] = []
        down = []
        for cell in cells:
            if cell.uuid in gathered.results:
                found += provider_records.of_nodes(
                    gathered.results[cell.uuid], server.name_of(cell))
                continue
            LOG.warning('Cell %s does not answer for its providers: %s',
                        cell.identity, gathered.failures.get(
                            cell.uuid, 'it took too long'))
            down.append(server.name_of(cell))
        return found, down

    def _shared(self) -> Sequence[provider_records.ProviderRecord]:
        with self._database.reader() as connection:
            shared = shared_providers.list_all(connection)
            names = {each.uuid: each.name
                     for each in aggregates.list_all(connection)}
        return provider_records.of_shared(shared, names)

    def _shown(
        self, provider: shared_providers.SharedProvider
    ) -> provider_records.ProviderRecord:
        found = [each for each in self._shared()
                 if each.uuid == provider.uuid]
        if not found:
            # Somebody deleted it meanwhile.
            raise exception.ResourceProviderNotFound(provider=provider.name)
        [record] = provider_records.with_usage(found, self._claims())
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
                expected=f'one that has a uuid, as {name} has not')
        return found.uuid

    def _check_free(self, name: str, uuid: str) -> None:
        """Make sure that no other provider has a name."""
        try:
            if self._get_shared(name).uuid != uuid:
                raise exception.ResourceProviderExists(name=name)
        except exception.ResourceProviderNotFound:
            pass

    def _check_unused(self, known: shared_providers.SharedProvider) -> None:
        """Make sure that nothing is held, or else let more be claimed."""
        for usage in self._claims().usages(providers=[known.uuid]).usages:
            if usage.consumers:
                self._settle(known.uuid)
                raise exception.ResourceProviderInUse(
                    provider=known.name, count=usage.consumers)

    def _change(
        self, name: str,
        change: Callable[[shared_providers.SharedProvider],
                         shared_providers.SharedProvider],
    ) -> shared_providers.SharedProvider:
        with self._database.writer() as connection:
            changed = change(shared_providers.get(
                connection, name, to_change=True))
            shared_providers.update(connection, changed, self._clock.now())
        return changed

    def _settle(self, uuid: str) -> None:
        """Have the claim store say what the row says, or nothing without one.

        Of several that change one at a time, each looks whether the row is
        still what it told the store, so the last one tells the last row.
        """
        told: Mapping[str, resources.Inventory] | None = None
        while True:
            try:
                said = self._get_shared(uuid).inventories
            except exception.ResourceProviderNotFound:
                said = {}
            if said == told:
                return
            self._claims().set_inventory(uuid, said)
            told = said


def _check_name(name: Any) -> None:
    validation.check_text(_WHERE, 'name', name)
    if uuidutils.is_uuid_like(name):
        raise exception.InvalidField(
            where=_WHERE, field='name',
            expected=f'one that does not look like a uuid, as {name} does')


def _read(aimed: RequestContext) -> list[compute_nodes.RootRow]:
    assert aimed.cell is not None
    with aimed.cell.database.reader() as connection:
        return compute_nodes.list_all(connection)
