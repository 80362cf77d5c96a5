# SPDX-License-Identifier: Apache-2.0
"""Requests: RequestSpec and its parts, selections, build requests."""

from collections.abc import ItemsView
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import functools
import json
import operator
import re
from typing import Any
from typing import Final

from oslo_serialization import jsonutils
from oslo_versionedobjects import fields

from cellsched import exception
from cellsched.hardware import aliases
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.objects import base
from cellsched.objects import request_groups
from cellsched.objects import resources


@base.Registry.register
class SchedulerLimits(base.Object):
    """Limits that filters allow a build on a host beyond its totals."""

    VERSION = '1.0'

    fields = {
        'numa_topology': base.RawField(nullable=True),
        'vcpu': fields.IntegerField(nullable=True),
        'disk_gb': fields.IntegerField(nullable=True),
        'memory_mb': fields.IntegerField(nullable=True),
    }

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are set, in the form of older callers."""
        return {name: value for name, value in
                self.values_of(self.fields).items() if value is not None}


@base.Registry.register
class SchedulerRetries(base.Object):
    """Hosts on which the build was attempted."""

    VERSION = '1.1'

    fields = {
        'num_attempts': fields.IntegerField(),
        'hosts': fields.ObjectField('ComputeNodeList'),
    }


@base.Registry.register
class Destination(base.Object):
    """The host, node or cell that a request prefers or requires."""

    VERSION = '1.4'

    fields = {
        'host': fields.StringField(),
        'node': fields.StringField(nullable=True),
        'cell': fields.ObjectField('CellMapping', nullable=True),
        'aggregates': fields.ListOfStringsField(nullable=True),
        'allow_cross_cell_move': fields.BooleanField(default=False),
        'forbidden_aggregates': base.SetOfStringsField(nullable=True),
    }


#: Fields with request groups, in addition to those of the flavor.
_BESIDE_FLAVOR = 'requested_resources', 'request_level_params'

#: Fields that decide on NUMA cells and PCI devices.
_OF_HARDWARE = ('numa_topology', 'pci_requests', 'network_metadata', 'flavor',
                'image')

#: An extra spec that asks for dedicated CPUs, in any group.
_PCPU = re.compile(f'resources({request_groups.SUFFIX})?:PCPU')


@base.Registry.register
class RequestSpec(base.Object):
    """A request for one or more servers of one size.

    Fields with objects of Nova that this project does not read are passed on
    unchanged. The version is that of Nova, which has no ``migration_uuid`` and
    ignores it: the migration that the request is for, whose claims are made
    under this uuid.
    """

    VERSION = '1.15'

    fields = {
        'id': fields.IntegerField(),
        'image': fields.ObjectField('ImageMeta', nullable=True),
        'numa_topology': base.RawField(nullable=True),
        'pci_requests': base.RawField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'user_id': fields.StringField(nullable=True),
        'availability_zone': fields.StringField(nullable=True),
        'flavor': fields.ObjectField('Flavor'),
        'num_instances': fields.IntegerField(default=1),
        'ignore_hosts': fields.ListOfStringsField(nullable=True),
        'force_hosts': fields.ListOfStringsField(nullable=True),
        'force_nodes': fields.ListOfStringsField(nullable=True),
        'requested_destination': fields.ObjectField(
            'Destination', nullable=True, default=None),
        'retry': fields.ObjectField('SchedulerRetries', nullable=True),
        'limits': fields.ObjectField('SchedulerLimits', nullable=True),
        'instance_group': fields.ObjectField('InstanceGroup', nullable=True),
        'scheduler_hints': fields.DictOfListOfStringsField(nullable=True),
        'instance_uuid': fields.UUIDField(),
        'security_groups': base.RawField(),
        'network_metadata': base.RawField(),
        'is_bfv': fields.BooleanField(),
        'requested_resources': base.RawField(nullable=True),
        'request_level_params': base.RawField(),
        'requested_networks': base.RawField(),
        'migration_uuid': fields.UUIDField(nullable=True),
    }

    def hint(self, name: str) -> list[str]:
        """Return the values of a scheduler hint; an empty list without it."""
        hints = self.get('scheduler_hints') or {}
        return list(hints.get(name) or ())

    def get_scheduler_hint(self, name: str, default: Any = None) -> Any:
        """Return a hint as filters written for Nova read it.

        A single value is returned itself, several as a list.
        """
        if name not in (self.get('scheduler_hints') or {}):
            return default
        hint = self.hint(name)
        return hint[0] if len(hint) == 1 else hint

    def image_property(self, name: str, default: Any = None) -> Any:
        """Return a property of the image, or the default without one."""
        image = self.get('image')
        properties = image.get('properties') if image else None
        return properties.get(name, default) if properties else default

    def image_properties(self) -> dict[str, Any]:
        """Return all properties of the image, by name."""
        image = self.get('image')
        properties = image.get('properties') if image else None
        return dict(properties.items()) if properties else {}

    def resources(self) -> dict[str, int]:
        """Return the amounts that one instance needs, by resource class.

        A root disk on a volume uses no disk of the host. Swap is given in MB
        and rounded up to GB. Dedicated CPUs are an amount of PCPU in place of
        VCPU. An extra spec ``resources:CLASS`` overrides the amount of its
        class; zero removes the class.

        :raises cellsched.exception.InvalidField: an extra spec names an
            unknown class, or its value is no amount
        :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
            image contradict each other about CPUs
        """
        flavor = self.flavor
        more = flavor.values_of(('ephemeral_gb', 'swap', 'extra_specs'))
        swap_gb = -(-(more['swap'] or 0) // 1024)
        disk_gb = (more['ephemeral_gb'] or 0) + swap_gb
        if not self.get('is_bfv', False):
            disk_gb += flavor.root_gb
        requested = {'VCPU': flavor.vcpus, 'MEMORY_MB': flavor.memory_mb,
                     'DISK_GB': disk_gb}
        specs, properties = more['extra_specs'], self.image_properties()
        if guest.may_ask(specs or {}, properties):
            requested.update(guest.cpu_amounts(
                flavor.vcpus, specs or {}, properties))
        if specs:
            if any(_PCPU.fullmatch(name) and amount.strip('0')
                   for name, amount in specs.items()):
                # These are the vCPUs of the flavor.
                del requested['VCPU']
            requested.update(resources.requested(specs))
        return {name: amount for name, amount in requested.items() if amount}

    def hardware_traits(self) -> dict[str, str]:
        """Return the traits that policies of CPUs and devices ask for.

        :returns: ``required`` or ``forbidden``, by trait
        :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
            image contradict each other
        """
        specs, properties = self._named()
        if not (specs or properties):
            return {}
        traits = guest.thread_trait(specs, properties)
        if aliases.affinity(specs, properties) == devices.SOCKET:
            traits[aliases.SOCKETS] = 'required'
        return traits

    def guest_topology(self) -> guest.GuestTopology | None:
        """Return the NUMA cells of one instance; None if it asks for none.

        A request without ``numa_topology`` has the topology that its flavor
        and its image ask for.

        :raises cellsched.exception.InvalidField: ``numa_topology`` has another
            form
        :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
            image contradict each other
        """
        document = self.get('numa_topology')
        if document is not None:
            return documents.guest_topology(document)
        specs, properties = self._named()
        return guest.topology(
            self.flavor.vcpus, self.flavor.memory_mb, specs, properties
        ) if guest.may_ask(specs, properties) else None

    def device_requests(self) -> tuple[devices.DeviceRequest, ...]:
        """Return the PCI devices of one instance.

        :raises cellsched.exception.InvalidField: ``pci_requests`` has another
            form, or lacks the devices that the flavor asks for
        """
        found = documents.device_requests(self.get('pci_requests'))
        if self._named()[0].get(aliases.ALIAS) and not any(
                each.alias for each in found):
            raise exception.InvalidField(
                where='request', field='pci_requests',
                problem=f'it lacks the devices of {aliases.ALIAS}',
                expected='the devices that the flavor asks for')
        return found

    def add_hardware(self, known: aliases.Aliases) -> bool:
        """Add the topology and the devices that flavor and image ask for.

        Documents that the request has already stay. The devices of its ports
        follow those of the flavor.

        :param known: the configured aliases of devices
        :returns: whether the request has changed
        :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
            image contradict each other, or an alias is not defined
        :raises cellsched.exception.InvalidField: a document or an extra spec
            has another form
        """
        specs, properties = self._named()
        topology = self.guest_topology()
        requested = aliases.requests(known, specs, properties)
        changes = {}
        if topology is not None and self.get('numa_topology') is None:
            changes['numa_topology'] = documents.written_guest(topology)
        given = self.get('pci_requests')
        if requested and not any(
                each.alias for each in documents.device_requests(given)):
            # Devices are taken in order, and in Nova those of ports are last.
            changes['pci_requests'] = documents.written_requests(
                requested, given)
        for name, document in changes.items():
            setattr(self, name, document)
        return bool(changes)

    def _named(self) -> tuple[Mapping[str, str], Mapping[str, Any]]:
        """Return the extra specs and the image properties."""
        flavor = self.get('flavor')
        return (flavor.get('extra_specs') or {} if flavor else {},
                self.image_properties())

    def require_of_root(self, trait: str) -> None:
        """Add a trait that the node itself must have, not a child of it."""
        params = copy.deepcopy(self.get('request_level_params') or {
            'nova_object.name': 'RequestLevelParams',
            'nova_object.namespace': 'nova', 'nova_object.version': '1.1'})
        data = params.setdefault('nova_object.data', {})
        data['root_required'] = [*(data.get('root_required') or ()), trait]
        self.request_level_params = params

    def hardware(self) -> fit.Demand | None:
        """Return what one instance asks of NUMA cells and PCI devices.

        Without ``numa_topology`` the flavor and the image decide.

        :returns: None if it asks for nothing
        :raises cellsched.exception.Invalid: a field has another form, or the
            flavor and the image ask for an impossible topology
        """
        given = tuple(self.values_of(_OF_HARDWARE).values())
        kept: Any = self.__dict__.get('_kept_hardware')
        if kept is None or any(map(operator.is_not, kept[0], given)):
            demand = None
            topology, requested = self.guest_topology(), self.device_requests()
            if topology is not None or requested:
                demand = fit.Demand(topology, requested, documents.networks(
                    self.get('network_metadata')))
            kept = self.__dict__['_kept_hardware'] = given, demand
        found: fit.Demand | None = kept[1]
        return found

    def needs_threads(self) -> bool:
        """Return whether the host's cores must have several threads.

        As in Nova, the raw values of the flavor or of the image decide.
        """
        specs = self.flavor.get('extra_specs') or {}
        return all(value in (specs.get(f'hw:{key}'),
                             self.image_property(f'hw_{key}'))
                   for key, value in (('cpu_policy', guest.DEDICATED),
                                      ('cpu_thread_policy', guest.REQUIRE)))

    def group_demand(self) -> request_groups.GroupDemand:
        """Return the request groups of one instance.

        They come from the flavor's extra specs, ``requested_resources`` and
        ``same_subtree`` of ``request_level_params``.

        :raises cellsched.exception.InvalidField: names the invalid field
        """
        more = self.values_of(_BESIDE_FLAVOR)
        return request_groups.parse_groups(
            self.flavor.get('extra_specs'), *more.values())


#: Policies of server groups, by Nova's names.
POLICIES: Final = ('affinity', 'anti-affinity', 'soft-affinity',
                   'soft-anti-affinity')

#: Domains over which members can be spread.
SPREADS: Final = ('cell', 'az', 'host')

#: The bounds of the rules that are numbers.
BOUNDS: Final = {'max_server_per_host': (1, 2 ** 31 - 1),
                 'max_skew': (1, 1000)}


@base.Registry.register
class InstanceGroup(base.Object):
    """A group of servers, with a policy and its rules.

    Rules are texts on the wire, under ``_rules``; read them by :attr:`rules`.
    ``max_server_per_host`` is Nova's; ``spread`` (``cell``, ``az``, ``host``)
    and ``max_skew`` are additions and work with any policy or none. ``hosts``
    has the members' hosts that the sender knew, and may be empty.
    """

    VERSION = '1.11'

    fields = {
        'id': fields.IntegerField(),
        'user_id': fields.StringField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'uuid': fields.UUIDField(),
        'name': fields.StringField(nullable=True),
        'policies': fields.ListOfStringsField(nullable=True),
        'members': fields.ListOfStringsField(nullable=True),
        'hosts': fields.ListOfStringsField(nullable=True),
        'policy': fields.StringField(nullable=True),
        '_rules': fields.DictOfStringsField(nullable=True),
    }

    def __init__(self, context: Any = None, **values: Any) -> None:
        if 'rules' in values:
            values['_rules'] = values.pop('rules')
        super().__init__(context, **values)

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> 'InstanceGroup':
        self = super()._obj_from_primitive(context, objver, primitive)
        assert isinstance(self, cls)
        # Before 1.11 a group had its one policy in the list alone.
        if not self.obj_attr_is_set('policy') and self.get('policies'):
            self.policy = self.policies[0]
        # Parse the rules now, so that an invalid rule is refused when the
        # request is read, and not during a decision.
        _ = self.rules
        return self

    @property
    def rules(self) -> dict[str, Any]:
        """The known rules, with numbers as integers.

        :raises cellsched.exception.InvalidField: a rule is out of bounds
        """
        texts = self.get('_rules') or {}
        rules: dict[str, Any] = {
            name: _number(name, texts[name])
            for name in BOUNDS if name in texts}
        if 'spread' in texts:
            rules['spread'] = texts['spread']
            if rules['spread'] not in SPREADS:
                raise exception.InvalidField(
                    where='InstanceGroup', field='rules.spread',
                    expected='one of ' + ', '.join(SPREADS))
        return rules


def _number(name: str, text: str) -> int:
    least, most = BOUNDS[name]
    # A valid number is short; parsing a very long one would take long.
    if text.isascii() and text.isdigit() and len(text) <= 10:
        if least <= int(text) <= most:
            return int(text)
    raise exception.InvalidField(
        where='InstanceGroup', field=f'rules.{name}',
        expected=f'a whole number from {least} to {most}')


@base.Registry.register
class ImageMetaProps(base.Object):
    """Properties of an image: an open set.

    Properties are kept and passed on unchanged, and so is the version, since
    no property is dropped. They are given to the constructor and read by
    name: ``properties.hw_architecture``,
    ``properties.get('hw_architecture')``, ``'hw_architecture' in properties``.
    """

    VERSION = '1.44'

    def __init__(self, context: Any = None, /, **properties: Any) -> None:
        self._properties: dict[str, Any] = properties
        super().__init__(context)

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> 'ImageMetaProps':
        data = primitive[f'{cls.OBJ_SERIAL_NAMESPACE}.data']
        if not isinstance(data, dict):
            raise exception.InvalidField(
                where=cls.obj_name(), field='data',
                expected='a mapping of names to properties')
        self = cls(context)
        self._properties = dict(data)
        self.VERSION = objver
        return self

    def obj_to_primitive(
        self, target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        primitive = super().obj_to_primitive(target_version, version_manifest)
        primitive[f'{self.OBJ_SERIAL_NAMESPACE}.data'] = dict(self._properties)
        return primitive

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property, or the default where the image has none."""
        return self._properties.get(name, default)

    def items(self) -> ItemsView[str, Any]:
        """Return the properties with their names."""
        return self._properties.items()

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __getattr__(self, name: str) -> Any:
        # copy.copy() asks for attributes before the properties are set.
        if name in self.__dict__.get('_properties', ()):
            return self._properties[name]
        raise AttributeError(f'the image has no property {name!r}')

    def __deepcopy__(self, memo: dict[int, Any]) -> 'ImageMetaProps':
        result = type(self)(self.obj_context)
        result._properties = copy.deepcopy(self._properties, memo)
        result.VERSION = self.VERSION
        return result

    def __repr__(self) -> str:
        return f'ImageMetaProps({self._properties})'


@base.Registry.register
class ImageMeta(base.Object):
    """An image and its requirements; memory in MB, disk in GB.

    Fields that this project does not read are passed on unchanged.
    """

    VERSION = '1.8'

    fields = {
        'id': fields.StringField(nullable=True),
        'name': fields.StringField(nullable=True),
        'status': fields.StringField(nullable=True),
        'visibility': base.RawField(nullable=True),
        'protected': base.RawField(nullable=True),
        'checksum': fields.StringField(nullable=True),
        'owner': fields.StringField(nullable=True),
        'size': fields.IntegerField(nullable=True),
        'virtual_size': base.RawField(nullable=True),
        'container_format': fields.StringField(nullable=True),
        'disk_format': fields.StringField(nullable=True),
        'created_at': base.RawField(nullable=True),
        'updated_at': base.RawField(nullable=True),
        'tags': base.RawField(nullable=True),
        'direct_url': base.RawField(nullable=True),
        'min_ram': fields.IntegerField(nullable=True),
        'min_disk': fields.IntegerField(nullable=True),
        'properties': fields.ObjectField('ImageMetaProps', nullable=True),
    }


@base.Registry.register
class Selection(base.Object):
    """A (host, node) pair that the scheduler selected, with its allocation.

    ``allocation_request`` is a JSON document in Placement's form: the amounts
    by provider, and the providers of each request group.
    """

    VERSION = '1.1'

    fields = {
        'compute_node_uuid': fields.UUIDField(),
        'service_host': fields.StringField(),
        'nodename': fields.StringField(),
        'cell_uuid': fields.UUIDField(),
        'limits': fields.ObjectField('SchedulerLimits', nullable=True),
        'allocation_request': fields.StringField(nullable=True),
        'allocation_request_version': fields.StringField(nullable=True),
        'availability_zone': fields.StringField(nullable=True),
    }

    @staticmethod
    def allocation(provider: str, resources: Mapping[str, int]) -> str:
        """Return an allocation request for one provider.

        The provider serves the group without a suffix. Nova's conductor
        looks up groups in ``mappings`` and fails if they are missing.
        """
        name = json.dumps(provider)
        return (f'{{"allocations": {{{name}: '
                f'{_asked(tuple(resources.items()))}}}, '
                f'"mappings": {{"": [{name}]}}}}')

    @staticmethod
    def allocations(
        allocations: Mapping[str, Mapping[str, int]],
        mappings: Mapping[str, Sequence[str]],
    ) -> str:
        """Return an allocation request for several providers.

        :param allocations: amounts by resource class, by provider
        :param mappings: the providers of each group, by its suffix, which is
            empty for the group without a number
        """
        return json.dumps({
            'allocations': {
                provider: {'resources': dict(amounts)}
                for provider, amounts in allocations.items()},
            'mappings': {suffix: list(providers)
                         for suffix, providers in mappings.items()}})

    def requested(self) -> dict[str, dict[str, int]]:
        """Return the amounts of the allocation request, by provider."""
        request = jsonutils.loads(self.get('allocation_request') or 'null')
        return {provider: dict(asked['resources']) for provider, asked
                in (request or {'allocations': {}})['allocations'].items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the form for callers that do not ask for objects."""
        limits = self.get('limits')
        return {'host': self.service_host, 'nodename': self.nodename,
                'limits': limits.to_dict() if limits else {}}


# Few distinct sizes exist, and writing JSON is the slowest step.
@functools.lru_cache(1024)
def _asked(resources: tuple[tuple[str, int], ...]) -> str:
    return json.dumps({'resources': dict(resources)})


@base.Registry.register
class BuildRequest(base.Object):
    """A request for the build of a server.

    While it exists, readers see the server through it. The process that
    deletes it decides the outcome: the conductor continues the build, or the
    user's deletion wins.

    Two fields are additions: ``buried`` is set while a record in cell0 is
    retried, and ``failure`` says why the build failed if cell0 could not
    record it.
    """

    VERSION = '1.3'

    fields = {
        'id': fields.IntegerField(),
        'instance_uuid': fields.UUIDField(),
        'project_id': fields.StringField(),
        'instance': fields.ObjectField('Instance'),
        'block_device_mappings': fields.ObjectField(
            'BlockDeviceMappingList', nullable=True),
        'tags': fields.ObjectField('TagList', nullable=True),
        'buried': fields.BooleanField(default=False),
        'failure': fields.StringField(nullable=True),
        'created_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
        'updated_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
    }

    @property
    def tag_names(self) -> list[str]:
        """The tags of the requested server."""
        tags = self.get('tags')
        return [] if tags is None else tags.names
