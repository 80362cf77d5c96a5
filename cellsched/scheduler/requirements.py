# SPDX-License-Identifier: Apache-2.0
"""Requirements of requests: those that no stage reads, and of networks.

A server on an unsuitable host is worse than a failed request. A requirement is
satisfied, or it is refused by name.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import copy
import dataclasses
import functools
import re
from typing import Any

from oslo_log import log
from oslo_utils import strutils

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hardware import aliases
from cellsched.network.base import NetworkAPI
from cellsched import objects
from cellsched.objects import base
from cellsched.objects import request_groups

LOG = log.getLogger(__name__)


#: Prefixes of requirement names; names of request fields have none.
EXTRA_SPEC, PROPERTY = 'flavor.extra_specs.', 'image.properties.'

#: Stands for all unlisted extra specs without a colon.
UNSCOPED = f'{EXTRA_SPEC}unscoped'


@dataclasses.dataclass(frozen=True)
class Condition:
    """The condition on which a value is a requirement.

    :param words: description in reStructuredText
    :param holds: predicate of the value and its request
    """

    words: str
    holds: Callable[[Any, objects.RequestSpec], bool]


@dataclasses.dataclass(frozen=True)
class Requirement:
    """A property that a request can require of hosts.

    :param name: in the form of :attr:`cellsched.filters.base.Filter.reads`
    :param what: description of the requirement
    :param pattern: for the whole name, if a ``*`` at the end of ``name`` does
        not suffice
    """

    name: str
    what: str
    when: Condition
    pattern: str | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the requirement has many names."""
        return self.pattern is not None or self.name.endswith('*')

    def covers(self, name: str) -> bool:
        """Return whether a full name belongs to this requirement."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name) is not None
        if self.name.endswith('*'):
            return name.startswith(self.name[:-1])
        return name == self.name


def extra_spec(request: objects.RequestSpec, name: str) -> str | None:
    """Return an extra spec of the flavor, or None."""
    value: str | None = (request.flavor.get('extra_specs') or {}).get(name)
    return value


def part(document: Any, name: str) -> Any:
    """Return a field of an object, or of its document.

    A value without fields is returned unchanged, because it cannot be known to
    be empty.
    """
    if isinstance(document, base.Object):
        return document.get(name)
    if isinstance(document, dict):
        data = document.get('nova_object.data', document)
        if isinstance(data, dict):
            return data.get(name)
    return document


def _is_true(value: Any) -> bool:
    return bool(strutils.bool_from_string(value))


def _either(request: objects.RequestSpec, key: str) -> Any:
    """Return the flavor's or the image's value of a key of scope ``hw``."""
    return (extra_spec(request, f'hw:{key}')
            or request.image_property(f'hw_{key}'))


def _given_with(
    words: str, test: Callable[[objects.RequestSpec], Any]
) -> Condition:
    return Condition(
        words, lambda value, request: bool(value and test(request)))


def _is_encrypted(request: objects.RequestSpec, key: str) -> bool:
    return (_is_true(extra_spec(request, f'hw:{key}'))
            or _is_true(request.image_property(f'hw_{key}')))


def _has_groups(request: objects.RequestSpec) -> bool:
    return bool(request.get('requested_resources')) or any(
        GROUP.covers(EXTRA_SPEC + name) or TRAIT_GROUP.covers(
            EXTRA_SPEC + name)
        for name in request.flavor.get('extra_specs') or ())


def _is_near_devices(value: Any, request: objects.RequestSpec) -> bool:
    return value == 'socket' or value == 'required' and bool(
        part(request.get('pci_requests'), 'requests')
        or extra_spec(request, aliases.ALIAS))


def _has_network(value: Any, request: objects.RequestSpec) -> bool:
    return bool(request.get('numa_topology') and (
        part(value, 'physnets') or part(value, 'tunneled')))


_ALWAYS = Condition('always', lambda value, request: True)
_GIVEN = Condition('unless it is empty', lambda value, request: bool(value))
_TRUE = Condition('if it is true', lambda value, request: _is_true(value))
_TRAIT = Condition('if it is ``required`` or ``forbidden``', (
    lambda value, request: value in ('required', 'forbidden')))
_TPM = _given_with('with ``hw:tpm_version`` or ``hw_tpm_version``', (
    lambda request: _either(request, 'tpm_version')))
_ENCRYPTED = _given_with('with memory encryption', (
    lambda request: _is_encrypted(request, 'mem_encryption')))
_EPHEMERAL = _given_with('with encryption of disks', (
    lambda request: _is_encrypted(request, 'ephemeral_encryption')))
_REALTIME = _given_with('with ``hw:cpu_realtime``', (
    lambda request: _is_true(extra_spec(request, 'hw:cpu_realtime'))))
_NEAR = Condition('if it is ``socket``, or ``required`` with PCI devices',
                  _is_near_devices)
_STATELESS = Condition('if it is true, with ``hw_firmware_type=uefi``', (
    lambda value, request: _is_true(value)
    and request.image_property('hw_firmware_type') == 'uefi'))
_APART = Condition('if it is ``isolate``, with numbered groups', (
    lambda value, request: value == 'isolate' and _has_groups(request)))


def _is(requested: str) -> Condition:
    return Condition(f'if it is ``{requested}``', (
        lambda value, request: value == requested))


def _is_not(usual: str) -> Condition:
    return Condition(f'unless it is ``{usual}``', (
        lambda value, request: bool(value) and value != usual))


def _of_flavor(
    name: str, what: str, when: Condition, pattern: str | None = None
) -> Requirement:
    return Requirement(EXTRA_SPEC + name, what, when, pattern)


def _of_image(name: str, what: str, when: Condition) -> Requirement:
    return Requirement(PROPERTY + name, what, when)


def _of_both(key: str, what: str, when: Condition) -> Iterator[Requirement]:
    """Yield a flavor's ``hw:key`` and an image's ``hw_key`` requirement."""
    yield _of_flavor(f'hw:{key}', what, when)
    yield _of_image(f'hw_{key}', what, when)


def _has_other(value: Any, request: objects.RequestSpec) -> bool:
    given = request.get('requested_resources')
    return isinstance(given, list) and any(map(request_groups.is_other, given))


_NUMA, _PINNED = 'a NUMA topology', 'dedicated CPUs'
_REALTIME_CPUS, _PCI = 'realtime CPUs', 'PCI devices'
_MODEL = 'a model of memory encryption'
_HYPERVISOR = 'a kind of hypervisor'
_OLD = 'what its new name asks for'

RESOURCES = _of_flavor('resources:*', 'resources by their class', _ALWAYS)
GROUP = _of_flavor(
    'resources{group}:*', 'resources of a numbered group', _ALWAYS,
    f'(?s){re.escape(EXTRA_SPEC)}resources{request_groups.SUFFIX}:.*')
TRAIT_GROUP = _of_flavor(
    'trait{group}:*', 'traits of a numbered group', _TRAIT,
    f'(?s){re.escape(EXTRA_SPEC)}trait{request_groups.SUFFIX}:.*')

REQUIREMENTS: tuple[Requirement, ...] = (
    *_of_both('numa_nodes', _NUMA, _GIVEN),
    _of_flavor('hw:numa_cpus.*', _NUMA, _GIVEN),
    _of_flavor('hw:numa_mem.*', _NUMA, _GIVEN),
    _of_image('hw_numa_cpus', _NUMA, _GIVEN),
    _of_image('hw_numa_cpus.*', _NUMA, _GIVEN),
    _of_image('hw_numa_mem', _NUMA, _GIVEN),
    _of_image('hw_numa_mem.*', _NUMA, _GIVEN),
    Requirement('numa_topology', _NUMA, _GIVEN),
    Requirement('network_metadata', 'NUMA cells near its networks', Condition(
        'with a NUMA topology and networks that have cells', _has_network)),
    *_of_both('cpu_policy', _PINNED, _is_not('shared')),
    _of_flavor('hw:cpu_dedicated_mask', _PINNED, _GIVEN),
    *_of_both('cpu_thread_policy', 'a policy of CPU threads',
              _is_not('prefer')),
    _of_flavor('hw:cpu_realtime', _REALTIME_CPUS, _TRUE),
    *_of_both('cpu_realtime_mask', _REALTIME_CPUS, _REALTIME),
    _of_flavor('hw:emulator_threads_policy', 'a CPU for emulator threads',
               _is('isolate')),
    *_of_both('mem_page_size', 'memory pages of a size', _GIVEN),
    _of_flavor(aliases.ALIAS, _PCI, _GIVEN),
    *_of_both('pci_numa_affinity_policy', 'PCI devices near its CPUs',
              _NEAR),
    Requirement('pci_requests', _PCI, Condition(
        'if there are ``requests`` in it',
        lambda value, request: bool(part(value, 'requests')))),
    RESOURCES, GROUP, TRAIT_GROUP,
    _of_flavor('group_policy', 'groups on different providers', _APART),
    Requirement('requested_resources', 'resources of ports and devices',
                _GIVEN),
    Requirement('requested_resources.other', 'what is no group of resources',
                Condition('if it has other objects than ``RequestGroup``',
                          _has_other)),
    Requirement('request_level_params.root_required', 'traits of the root',
                _GIVEN),
    Requirement('request_level_params.root_forbidden',
                'a root without some traits', _GIVEN),
    Requirement('request_level_params.same_subtree',
                'providers near each other', _GIVEN),
    _of_flavor('accel:device_profile', 'accelerators', _GIVEN),
    *_of_both('tpm_version', 'a virtual TPM', _GIVEN),
    *_of_both('tpm_model', 'a model of virtual TPM', _TPM),
    _of_flavor('hw:tpm_secret_security', 'a keeper of TPM secrets', _TPM),
    *_of_both('mem_encryption', 'memory encryption', _TRUE),
    *_of_both('mem_encryption_model', _MODEL, _ENCRYPTED),
    _of_flavor('hw:pmem', 'persistent memory', _GIVEN),
    _of_flavor('os:secure_boot', 'secure boot', _is('required')),
    _of_image('os_secure_boot', 'secure boot', _is('required')),
    _of_image('hw_firmware_stateless', 'stateless firmware', _STATELESS),
    *_of_both('maxphysaddr_mode', 'a mode of physical addresses', _GIVEN),
    *_of_both('maxphysaddr_bits', 'bits of physical addresses', _GIVEN),
    *_of_both('ephemeral_encryption', 'encryption of disks', _TRUE),
    *_of_both('ephemeral_encryption_format', 'a format of encrypted disks',
              _EPHEMERAL),
    *_of_both('sound_model', 'a virtio sound device', _is('virtio')),
    *_of_both('virtio_packed_ring', 'packed virtqueues', _TRUE),
    _of_flavor('trait:*', 'a trait', _TRAIT),
    _of_image('traits_required', 'traits', _GIVEN),
    _of_image('trait:*', 'a trait', _TRAIT),
    _of_flavor('capabilities:*', 'a capability of the host', _ALWAYS),
    _of_flavor('aggregate_instance_extra_specs:*',
               'metadata of an aggregate', _ALWAYS),
    Requirement(UNSCOPED, 'a capability, or metadata of an aggregate', _ALWAYS,
                f'{re.escape(EXTRA_SPEC)}[^:]*'),
    _of_image('hw_architecture', 'an architecture', _GIVEN),
    _of_image('architecture', _OLD, _GIVEN),
    _of_image('img_hv_type', _HYPERVISOR, _GIVEN),
    _of_image('hypervisor_type', _OLD, _GIVEN),
    _of_image('img_hv_requested_version', 'a version of the hypervisor',
              _GIVEN),
    _of_image('hypervisor_version_requires', _OLD, _GIVEN),
    _of_image('hw_vm_mode', 'a mode of virtual machines', _GIVEN),
    _of_image('vm_mode', _OLD, _GIVEN),
    Requirement('availability_zone', 'an availability zone', _GIVEN),
    Requirement('ignore_hosts', 'other hosts', _GIVEN),
    Requirement('force_hosts', 'one of some hosts', _GIVEN),
    Requirement('force_nodes', 'one of some nodes', _GIVEN),
    Requirement('retry.hosts', 'other hosts than were tried', _GIVEN),
    Requirement('requested_destination.host', 'a host', _GIVEN),
    Requirement('requested_destination.node', 'a node', _GIVEN),
    Requirement('requested_destination.cell', 'a cell', _GIVEN),
    Requirement('requested_destination.aggregates', 'some aggregates', _GIVEN),
    Requirement('requested_destination.forbidden_aggregates',
                'other aggregates', _GIVEN),
)


def _named(prefix: str, *texts: str) -> frozenset[str]:
    return frozenset(prefix + name for text in texts for name in text.split())


#: Names that Nova knows and that do not affect the choice of a host, by topic,
#: in reStructuredText.
NO_REQUIREMENTS: dict[str, frozenset[str]] = {
    'How the guest is made, equally on all hosts': (
        _named(f'{EXTRA_SPEC}hw:', '''
            boot_menu cpu_cores cpu_max_cores cpu_max_sockets cpu_max_threads
            cpu_sockets cpu_threads hide_hypervisor_id locked_memory pmu
            redirected_usb_ports serial_port_count usb_model
            vif_multiqueue_enabled viommu_model watchdog_action''')
        | _named(f'{EXTRA_SPEC}hw_', 'rng:allowed rng:rate_bytes '
                 'rng:rate_period video:ram_max_mb')
        | _named(EXTRA_SPEC, 'hide_hypervisor_id vmware:hw_version '
                 'vmware:storage_policy')
        | _named(f'{PROPERTY}hw_', '''
            auto_disk_config boot_menu cpu_cores cpu_max_cores
            cpu_max_sockets cpu_max_threads cpu_sockets cpu_threads device_id
            disk_type ephemeral_encryption_secret_uuid firmware_type
            floppy_bus input_bus ipxe_boot locked_memory machine_type pmu
            pointer_model qemu_guest_agent redirected_usb_ports rescue_bus
            rescue_device rng_model scsi_model serial_port_count time_hpet
            usb_model video_ram vif_multiqueue_enabled watchdog_action''')
        | _named(f'{PROPERTY}img_', '''
            bdm_v2 bittorrent block_device_mapping cache_in_nova
            compression_level config_drive hide_hypervisor_id linked_clone
            mappings owner_id root_device_name signature
            signature_certificate_uuid signature_hash_method
            signature_key_type use_agent version''')
        | _named(f'{PROPERTY}os_', '''
            admin_user command_line distro require_quiesce
            skip_agent_inject_files_at_boot skip_agent_inject_ssh type''')),
    'How much of its host the guest may use': _named(
        f'{EXTRA_SPEC}quota:', '''
        cpu_limit cpu_period cpu_quota cpu_reservation cpu_shares
        cpu_shares_level cpu_shares_share disk_io_limit disk_io_reservation
        disk_io_shares_level disk_io_shares_share disk_read_bytes_sec
        disk_read_iops_sec disk_total_bytes_sec disk_total_iops_sec
        disk_write_bytes_sec disk_write_iops_sec memory_limit
        memory_reservation memory_shares_level memory_shares_share
        vif_inbound_average vif_inbound_burst vif_inbound_peak vif_limit
        vif_outbound_average vif_outbound_burst vif_outbound_peak
        vif_reservation vif_shares_level vif_shares_share'''),
    'Nova asks it of hosts only with ``[scheduler] image_metadata_prefilter``':
        _named(f'{PROPERTY}hw_', '''
            cdrom_bus disk_bus emulation_architecture video_model vif_model
            viommu_model'''),
    'Nova asks networks for it, with ``[scheduler] '
    'query_placement_for_routed_network_aggregates``':
        _named('', 'requested_networks'),
    'Nova asks it of hosts only with ``[scheduler] '
    'query_placement_for_image_type_support``': _named(
        'image.', 'disk_format'),
    'Amounts, which are always looked at': _named(
        'flavor.', 'ephemeral_gb memory_mb root_gb swap vcpus') | _named(
        '', 'is_bfv num_instances'),
    'What holds names of this page': _named(
        '', 'flavor.extra_specs image.properties'),
    'What has a rule of its own, as :doc:`/admin/decision` says':
        _named('', 'instance_group scheduler_hints'),
    'Which flavor, image or request it is, and whose': _named('flavor.', '''
        created_at deleted deleted_at description disabled flavorid id
        is_public name projects rxtx_factor updated_at vcpu_weight''')
    | _named('image.', '''
        checksum container_format created_at direct_url id min_disk min_ram
        name owner protected size status tags updated_at virtual_size
        visibility''')
    | _named('', '''
        id instance_uuid limits project_id security_groups user_id
        requested_destination.allow_cross_cell_move retry.num_attempts'''),
}


#: Limits of one error: the number of requirements, and a name's length.
_NAMED_MAX, _NAME_MAX = 10, 60

#: The size of the cache of requirements by name.
_NAMES_MAX = 1024

#: Requirements with a single name, by name; and those with many names, in
#: order of precedence.
_EXACT = {each.name: each for each in REQUIREMENTS if not each.is_open}
_OPEN = tuple(each for each in REQUIREMENTS if each.is_open)

_PREFIXES = (EXTRA_SPEC, PROPERTY)

_INDIFFERENT = frozenset[str]().union(*NO_REQUIREMENTS.values())


class RequirementCheck:
    """Finds requirements of requests that no stage reads.

    :param reads: the names that stages declare; see
        :attr:`cellsched.filters.base.Filter.reads`
    :param ignored: whether to accept these requests and log them
    """

    def __init__(self, reads: Iterable[str], ignored: bool = False) -> None:
        reads = frozenset(reads)
        self._ignored = ignored
        self._reads = reads
        self._prefixes = tuple(
            name[:-1] for name in reads if name.endswith('*'))
        #: All requirements that are not read.
        self.requirements = tuple(
            each for each in REQUIREMENTS
            if not self._is_read(each.name, each))
        fields: dict[str, list[tuple[str, Requirement]]] = {}
        for each in self.requirements:
            if not each.name.startswith(_PREFIXES):
                field, _, inner = each.name.partition('.')
                fields.setdefault(field, []).append((inner, each))
        self._fields = fields
        # Cached: few flavors and properties come with most requests.
        self._unread = functools.lru_cache(_NAMES_MAX)(self._find)

    def refusal(
        self, request: objects.RequestSpec, context: RequestContext
    ) -> exception.NoValidHost | None:
        """Return the error that refuses a request, or None."""
        names = self.names(request)
        if not names:
            return None
        reason = _reason(names)
        if self._ignored:
            LOG.warning('Request %s is accepted: %s',
                        context.request_id, reason, context=context)
            return None
        LOG.info('Refused: %s', reason, context=context)
        return exception.NoValidHost(reason=reason, rejections=[], placed=0)

    def names(self, request: objects.RequestSpec) -> list[str]:
        """Return each unread requirement as its description and name."""
        return list(self._names(request))

    def _names(self, request: objects.RequestSpec) -> Iterator[str]:
        named = set[str]()
        specs = request.flavor.get('extra_specs')
        for name, value in specs.items() if specs else ():
            each = self._unread(EXTRA_SPEC, name)
            if each is not None and each.when.holds(value, request):
                named.add(each.what)
                yield _unsupported('flavor extra spec', name, each)
        image = request.get('image')
        given = image.get('properties') if image is not None else None
        for name, value in given.items() if given is not None else ():
            each = self._unread(PROPERTY, name)
            if each is not None and each.when.holds(value, request):
                named.add(each.what)
                yield _unsupported('image property', name, each)
        # The API forms some fields from the flavor and the image, so a field
        # that asks for the same is not named again.
        values = request.values_of(self._fields)
        for field, value in values.items():
            found = self._fields[field]
            for inner, each in found if value is not None else ():
                inside = part(value, inner) if inner else value
                if each.what not in named and each.when.holds(
                        inside, request):
                    yield _unsupported('request field', each.name, each)

    def _find(self, kind: str, name: str) -> Requirement | None:
        """Return the requirement of a name if no stage reads it, else None."""
        full = kind + name
        requirement = find(full)
        if requirement is None or self._is_read(full, requirement):
            return None
        return requirement

    def _is_read(self, name: str, requirement: Requirement) -> bool:
        return (name in self._reads or requirement.name in self._reads
                or name.startswith(self._prefixes))


def find(name: str) -> Requirement | None:
    """Return the requirement with a name, such as ``numa_topology``.

    :param name: with its prefix if it is an extra spec or a property
    """
    if name in _INDIFFERENT:
        return None
    found = _EXACT.get(name)
    return found or next((each for each in _OPEN if each.covers(name)), None)


def is_known(reads: str) -> bool:
    """Return whether a name that a stage declares to read is known."""
    prefix = reads.removesuffix('*')
    return (find(prefix) is not None or prefix in _INDIFFERENT
            or prefix != reads and any(
                each.name.startswith(prefix) for each in REQUIREMENTS))


def _reason(names: Sequence[str]) -> str:
    """Return one sentence for users."""
    named = ', '.join(names[:_NAMED_MAX])
    if len(names) > _NAMED_MAX:
        named += f' and {len(names) - _NAMED_MAX} more'
    return f'No enabled stage reads what is asked for: {named}.'


def _unsupported(kind: str, name: str, requirement: Requirement) -> str:
    # Users write property names, so make them safe for the log.
    shown = ascii(name[:_NAME_MAX])[1:-1]
    if len(name) > _NAME_MAX:
        shown += '…'
    return f'{kind} {shown} ({requirement.what})'


#: The trait of hosts with devices that manage ports remotely.
REMOTE_MANAGED = 'COMPUTE_REMOTE_MANAGED_PORTS'


class NetworkRequirements:
    """Adds the requirements of a request's networks to the request.

    A network plug-in without host requirements is not called.

    :param routed: whether to restrict requests to the aggregates of the
        segments of routed networks
    """

    def __init__(self, network: NetworkAPI, routed: bool) -> None:
        self._network = network
        # Check the class of the plug-in itself, inside its failure wrapper.
        kind = network.__class__
        self._routed = routed and (
            kind.segment_aggregates is not NetworkAPI.segment_aggregates)
        self._managed = (kind.has_remote_managed_port
                         is not NetworkAPI.has_remote_managed_port)

    def add(
        self, context: RequestContext, request: objects.RequestSpec
    ) -> objects.RequestSpec:
        """Return the request with its networks' requirements; may block.

        :raises cellsched.exception.NoValidHost: the plug-in cannot determine
            the requirements
        """
        networks = request.get('requested_networks')
        if not networks or not (self._routed or self._managed):
            return request
        try:
            if self._routed:
                request = _in_aggregates(
                    request, self._network.segment_aggregates(
                        context, networks))
            if self._managed and self._network.has_remote_managed_port(
                    context, networks):
                request = copy.copy(request)
                request.require_of_root(REMOTE_MANAGED)
        except exception.NetworkError as exc:
            raise exception.NoValidHost(
                reason=exception.user_text(exc), rejections=[],
                placed=0) from exc
        return request


def _in_aggregates(
    request: objects.RequestSpec, aggregates: Sequence[Set[str]]
) -> objects.RequestSpec:
    """Return a request for hosts in one aggregate of each set."""
    if not aggregates:
        return request
    request = copy.copy(request)
    target = copy.copy(request.get('requested_destination'))
    if target is None:
        target = objects.Destination()
    target.aggregates = [*(target.get('aggregates') or ()), *(
        ','.join(sorted(each)) for each in aggregates)]
    request.requested_destination = target
    return request
