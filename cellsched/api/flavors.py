# SPDX-License-Identifier: Apache-2.0
"""Flavors: create, get, list, change, delete."""

from collections.abc import Callable
from collections.abc import Mapping

from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import flavors
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.objects import keys
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.validation import json_schema

#: Extra specs of one flavor.
SPECS_MAX = 128


class Flavors(base.Controller):
    """Manages flavors, which define the sizes of servers."""

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        clock: Clock,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._clock = clock
        self._new_uuid = new_uuid

    @base.requires('os_compute_api:os-flavor-manage:create')
    def create(
        self, context: RequestContext, name: str, vcpus: int,
        ram_mb: int, disk_gb: int = 0, ephemeral_gb: int = 0, swap_mb: int = 0,
        flavorid: str | None = None,
    ) -> objects.Flavor:
        """Create a flavor.

        :param flavorid: its id; by default a new uuid
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.FlavorExists: the name or the id is the
            name or the id of another flavor
        """
        flavorid = self._new_uuid() if flavorid is None else flavorid
        json_schema.check('flavor', {
            'name': name, 'id': flavorid, 'vcpus': vcpus, 'ram': ram_mb,
            'disk': disk_gb, 'ephemeral': ephemeral_gb, 'swap': swap_mb,
        }, validation.FLAVOR)
        flavor = objects.Flavor(
            name=name, flavorid=flavorid, vcpus=vcpus, memory_mb=ram_mb,
            root_gb=disk_gb, ephemeral_gb=ephemeral_gb, swap=swap_mb,
            extra_specs={})
        with self._database.writer() as connection:
            for field, value in ('name', name), ('id', flavorid):
                if flavors.is_known(connection, value):
                    raise exception.FlavorExists(field=field, value=value)
            flavors.create(connection, flavor, self._clock.now())
            return flavors.get(connection, flavorid)

    @base.requires('cellsched:flavors:show')
    def get(self, context: RequestContext, name: str) -> objects.Flavor:
        """Return a flavor by its id or its name.

        :raises cellsched.exception.InvalidField: the name is invalid
        :raises cellsched.exception.FlavorNotFound: it does not exist
        """
        validation.check_text('flavor', 'name', name)
        with self._database.reader() as connection:
            return flavors.get(connection, name)

    @base.requires('cellsched:flavors:show')
    def list_all(self, context: RequestContext) -> list[objects.Flavor]:
        """Return every flavor."""
        with self._database.reader() as connection:
            return flavors.list_all(connection)

    @base.requires('os_compute_api:os-flavor-extra-specs:update')
    def set_extra_specs(
        self, context: RequestContext, name: str,
        extra_specs: Mapping[str, str | None],
    ) -> objects.Flavor:
        """Change extra specs of a flavor, by its id or its name; return it.

        Existing servers do not change.

        :param extra_specs: values by key; None removes a key
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.FlavorNotFound: it does not exist
        """
        validation.check_text('flavor', 'name', name)
        json_schema.check(
            'flavor', extra_specs, validation.EXTRA_SPECS, 'extra_specs')
        with self._database.writer() as connection:
            flavor = flavors.get(connection, name)
            merged = {**(flavor.get('extra_specs') or {}), **extra_specs}
            if sum(value is not None for value in merged.values()) > SPECS_MAX:
                raise exception.InvalidField(
                    where='flavor', field='extra_specs',
                    problem='there are too many',
                    expected=f'at most {SPECS_MAX}')
            # Specs that do not change may come from Nova, and are accepted.
            changed = {key: value for key, value in extra_specs.items()
                       if value is not None}
            keys.EXTRA_SPECS.check_names(changed, 'flavor', 'extra_specs')
            resources.requested(changed)
            request_groups.check(changed)
            keys.EXTRA_SPECS.check(changed, 'flavor', 'extra_specs')
            flavors.set_extra_specs(
                connection, flavor.id, extra_specs, self._clock.now())
            return flavors.get(connection, flavor.flavorid)

    @base.requires('os_compute_api:os-flavor-manage:delete')
    def delete(self, context: RequestContext, name: str) -> None:
        """Delete a flavor by its id or its name; its servers stay.

        :raises cellsched.exception.InvalidField: the name is invalid
        :raises cellsched.exception.FlavorNotFound: it does not exist
        """
        validation.check_text('flavor', 'name', name)
        with self._database.writer() as connection:
            flavors.delete(connection, name)
