# SPDX-License-Identifier: Apache-2.0
"""Keys of flavors, images, aggregates and scheduler hints, with their values.

A mistyped value must not count as absent: the server would be built on a host
that does not suit it. So a known key with a value that nothing understands is
refused where it is set, and again where a stored one is read.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import difflib
import functools
import ipaddress
import math
import re
from typing import Any
from typing import NamedTuple
import uuid

from oslo_utils import strutils
from packaging import version

from cellsched import exception
from cellsched.hardware import aliases
from cellsched.objects import queries
from cellsched.objects import request_groups
from cellsched.objects import requests
from cellsched.objects import resources

#: The most servers that a hint names; each is looked up in the cells.
SERVERS_MAX = 100

#: The largest number of bits of an address.
BITS_MAX = 1024

#: Characters of a key that an error shows.
_SHOWN_MAX = 80


def _as_it_is(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """The values that a key may have.

    :param expected: the values in words
    :param understands: predicate of the part ``{name}`` of the key, which is
        empty if the key has none, and of the value
    :param read: returns an understood value in the type and the spelling in
        which Nova's objects have it
    """

    expected: str
    understands: Callable[[str, Any], bool]
    read: Callable[[Any], Any] = _as_it_is


def _any(name: str, value: Any) -> bool:
    return True


#: Values that the product does not read: texts, or objects of Nova.
ANY = Kind('any value', _any)


def _of_value(
    expected: str, test: Callable[[Any], bool],
    read: Callable[[Any], Any] = _as_it_is,
) -> Kind:
    return Kind(expected, lambda name, value: test(value), read)


def _is_boolean(value: Any) -> bool:
    try:
        strutils.bool_from_string(value, strict=True)
    except ValueError:
        return False
    return True


BOOLEAN = _of_value('true or false', _is_boolean, strutils.bool_from_string)


def _number(least: int, most: int | None = None) -> Kind:
    """Return the kind of whole numbers, as numbers or as texts."""
    def test(value: Any) -> bool:
        if isinstance(value, str) and re.fullmatch('-?[0-9]{1,18}', value):
            value = int(value)
        return type(value) is int and least <= value and (
            most is None or value <= most)
    return _of_value(
        f'a whole number of at least {least}' if most is None else
        f'a whole number from {least} to {most}', test, int)


def _decimal(least: float | None = None) -> Kind:
    """Return the kind of finite numbers in texts."""
    def test(value: Any) -> bool:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return False
        return math.isfinite(number) and (least is None or number >= least)
    return _of_value('a number' if least is None else
                     f'a number of at least {least:g}', test)


def _choice(
    *names: str, former: Mapping[str, str] | None = None
) -> Kind:
    """Return the kind of some names.

    :param former: other spellings; with them, upper case is accepted too
    """
    def read(value: str) -> str:
        if former is None:
            return value
        return former.get(value.lower(), value.lower())

    def test(value: Any) -> bool:
        return isinstance(value, str) and read(value) in names
    return _of_value(f'one of {", ".join(names)}', test, read)


def _text(expected: str, pattern: str) -> Kind:
    """Return the kind of texts with a pattern."""
    compiled = re.compile(pattern)
    return _of_value(expected, lambda value: (
        isinstance(value, str) and compiled.fullmatch(value) is not None))


def _list_of(expected: str, test: Callable[[Any], bool]) -> Kind:
    """Return the kind of lists, as Nova's objects have them."""
    return _of_value(expected, lambda value: (
        isinstance(value, (list, tuple, set, frozenset))
        and all(map(test, value))))


ARCHITECTURES = (
    'alpha armv6 armv7l armv7b aarch64 cris i686 ia64 lm32 m68k microblaze '
    'microblazeel mips mipsel mips64 mips64el openrisc parisc parisc64 ppc '
    'ppcle ppc64 ppc64le ppcemb s390 s390x sh4 sh4eb sparc sparc64 unicore32 '
    'x86_64 xtensa xtensaeb').split()

HYPERVISORS = (
    'baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd openvz '
    'parallels phyp prsm qemu test uml vbox vmware vz xen zvm').split()

VM_MODES = ['hvm', 'xen', 'uml', 'exe']

_OF_ARCHITECTURES = {'amd64': 'x86_64', **dict.fromkeys(
    ('i386', 'i486', 'i586', 'x86_32', 'x86_32p'), 'i686')}

#: Image properties by their former names.
FORMER_PROPERTIES = {
    'architecture': 'hw_architecture',
    'auto_disk_config': 'hw_auto_disk_config',
    'bdm_v2': 'img_bdm_v2',
    'bittorrent': 'img_bittorrent',
    'block_device_mapping': 'img_block_device_mapping',
    'cache_in_nova': 'img_cache_in_nova',
    'hypervisor_type': 'img_hv_type',
    'hypervisor_version_requires': 'img_hv_requested_version',
    'ipxe_boot': 'hw_ipxe_boot',
    'mappings': 'img_mappings',
    'owner_id': 'img_owner_id',
    'root_device_name': 'img_root_device_name',
    'vm_mode': 'hw_vm_mode',
    'vmware_disktype': 'hw_disk_type',
    'vmware_image_version': 'img_version',
    'vmware_linked_clone': 'img_linked_clone',
    'vmware_ostype': 'os_distro',
    'xenapi_device_id': 'hw_device_id',
    'xenapi_image_compression_level': 'img_compression_level',
    'xenapi_skip_agent_inject_files_at_boot':
        'os_skip_agent_inject_files_at_boot',
    'xenapi_skip_agent_inject_ssh': 'os_skip_agent_inject_ssh',
    'xenapi_use_agent': 'img_use_agent',
}

#: Operators of extra specs that compare numbers.
NUMBER_OPERATORS = frozenset({'=', '==', '!=', '>=', '<='})


def _is_comparison(value: Any) -> bool:
    """Return whether an operator for numbers has a number as its operand."""
    if not isinstance(value, str):
        return False
    sign, *words = value.split() or ['']
    if sign not in NUMBER_OPERATORS:
        return True
    try:
        return bool(words) and not math.isnan(float(words[0]))
    except ValueError:
        return False


def _is_trait(name: str, value: Any) -> bool:
    return request_groups.is_trait(name) and value in (
        'required', 'forbidden')


def _is_kept_trait(name: str, value: Any) -> bool:
    return request_groups.is_trait(name) and value == 'required'


def _is_amount(name: str, value: Any) -> bool:
    return resources.is_known(name) and resources.is_amount(value)


def _is_version_predicate(value: Any) -> bool:
    return versions(value) is not None


_TEXT_MAX = 255
_PREDICATE = re.compile(r'\s*([<>]=?|[!=]=)\s*(\S+)\s*')


def versions(text: Any) -> list[tuple[str, version.Version]] | None:
    """Return the operators and versions of ``>=1.2,<8``; None if invalid."""
    if not isinstance(text, str) or len(text) > _TEXT_MAX:
        return None
    found = [_PREDICATE.fullmatch(part) for part in text.split(',')]
    try:
        return [(bound[1], version.Version(bound[2])) for bound in found
                if bound] if all(found) else None
    except version.InvalidVersion:
        return None


_GIVEN = _of_value('a text that is not empty', lambda value: (
    isinstance(value, str) and bool(value.strip())))
_CPUS = _text('numbers of CPUs, such as 0-3,^1',
              r'\^?[0-9]+(-[0-9]+)?(,\^?[0-9]+(-[0-9]+)?)*')
_PAGES = _text('large, small, any or a size such as 2MB',
               '(large|small|any|[0-9]+([kKMGT]i?)?(b|bit|B)?)')
_COMPARISON = _of_value(
    'a value, or an operator with a value; a number after =, ==, !=, >= and '
    '<=', _is_comparison)
_TRAIT = Kind(f'required or forbidden, for {request_groups.TRAITS}',
              _is_trait)
_KEPT_TRAIT = Kind(f'required, for {request_groups.TRAITS}', _is_kept_trait)
_AMOUNT = Kind(f'{resources.AMOUNTS}, for {resources.CLASSES}', _is_amount)
_BUS = _choice('fdc', 'ide', 'sata', 'scsi', 'usb', 'virtio', 'xen', 'lxc',
               'uml')
_SIGNED = _number(-10 ** 18 + 1)
_POSITIVE, _NATURAL = _number(1), _number(0)

#: Keys of flavors (``hw:KEY``) that images have too (``hw_KEY``).
_OF_BOTH = {
    'boot_menu': BOOLEAN,
    'cpu_cores': _POSITIVE,
    'cpu_max_cores': _POSITIVE,
    'cpu_max_sockets': _POSITIVE,
    'cpu_max_threads': _POSITIVE,
    'cpu_policy': _choice('dedicated', 'shared', 'mixed'),
    'cpu_realtime_mask': _CPUS,
    'cpu_sockets': _POSITIVE,
    'cpu_thread_policy': _choice('prefer', 'isolate', 'require'),
    'cpu_threads': _POSITIVE,
    'ephemeral_encryption': BOOLEAN,
    'ephemeral_encryption_format': _choice('luks', 'luksv2', 'plain'),
    'locked_memory': BOOLEAN,
    'maxphysaddr_bits': _number(0, BITS_MAX),
    'maxphysaddr_mode': _choice('passthrough', 'emulate'),
    'mem_encryption': BOOLEAN,
    'mem_encryption_model': _choice(
        'amd-sev', 'amd-sev-es', 'amd-sev-snp', 'intel-tdx'),
    'mem_page_size': _PAGES,
    'numa_cpus.{number}': _CPUS,
    'numa_mem.{number}': _POSITIVE,
    'numa_nodes': _POSITIVE,
    'pci_numa_affinity_policy': _choice(
        'required', 'preferred', 'legacy', 'socket'),
    'pmu': BOOLEAN,
    'redirected_usb_ports': _number(0, 15),
    'serial_port_count': _NATURAL,
    'sound_model': _choice('ac97', 'es1370', 'ich6', 'ich9', 'pcspk', 'sb16',
                           'usb', 'virtio'),
    'tpm_model': _choice('tpm-tis', 'tpm-crb'),
    'tpm_version': _choice('1.2', '2.0'),
    'usb_model': _choice('none', 'nec-xhci', 'qemu-xhci'),
    'vif_multiqueue_enabled': BOOLEAN,
    'viommu_model': _choice('intel', 'smmuv3', 'virtio', 'auto'),
    'virtio_packed_ring': BOOLEAN,
    'watchdog_action': _choice('none', 'pause', 'poweroff', 'reset',
                               'disabled'),
}


def _quotas() -> Iterable[tuple[str, Kind]]:
    level = _choice('custom', 'high', 'normal', 'low')
    for name in 'cpu', 'memory', 'disk_io', 'vif':
        yield f'{name}_limit', _NATURAL
        yield f'{name}_reservation', _SIGNED
        yield f'{name}_shares_level', level
        yield f'{name}_shares_share', _NATURAL
    yield 'cpu_shares', _NATURAL
    yield 'cpu_period', _NATURAL
    yield 'cpu_quota', _SIGNED
    for name in 'read', 'write', 'total':
        yield f'disk_{name}_bytes_sec', _NATURAL
        yield f'disk_{name}_iops_sec', _NATURAL
    for name in 'inbound', 'outbound':
        for kind in 'average', 'peak', 'burst':
            yield f'vif_{name}_{kind}', _NATURAL


_EXTRA_SPECS: dict[str, Kind] = {
    **{f'hw:{key}': kind for key, kind in _OF_BOTH.items()},
    **{f'quota:{key}': kind for key, kind in _quotas()},
    'accel:device_profile': _GIVEN,
    'aggregate_instance_extra_specs:{name}': _COMPARISON,
    'capabilities:{path}': _COMPARISON,
    'group_policy': _choice('none', 'isolate'),
    'hide_hypervisor_id': BOOLEAN,
    'hw:cpu_dedicated_mask': _CPUS,
    'hw:cpu_realtime': BOOLEAN,
    'hw:emulator_threads_policy': _choice('isolate', 'share'),
    'hw:hide_hypervisor_id': BOOLEAN,
    'hw:pmem': _text('names, with commas between them',
                     '[a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*,?'),
    'hw:tpm_secret_security': _choice('deployment', 'host', 'user'),
    'hw_rng:allowed': BOOLEAN,
    'hw_rng:rate_bytes': _NATURAL,
    'hw_rng:rate_period': _NATURAL,
    'hw_video:ram_max_mb': _NATURAL,
    'os:secure_boot': _choice('disabled', 'required'),
    aliases.ALIAS: _text(aliases.EXPECTED, aliases.PATTERN),
    'resources{group}:{name}': _AMOUNT,
    'trait{group}:{name}': _TRAIT,
    'vmware:hw_version': _GIVEN,
    'vmware:storage_policy': _GIVEN,
    '{unscoped}': _COMPARISON,
}

_PROPERTIES: dict[str, Kind] = {
    **{f'hw_{key}': kind for key, kind in _OF_BOTH.items()},
    'hw_architecture': _choice(*ARCHITECTURES, former=_OF_ARCHITECTURES),
    'hw_auto_disk_config': ANY,
    'hw_cdrom_bus': _BUS,
    'hw_device_id': _SIGNED,
    'hw_disk_bus': _BUS,
    'hw_disk_type': ANY,
    'hw_emulation_architecture': _choice(
        *ARCHITECTURES, former=_OF_ARCHITECTURES),
    'hw_ephemeral_encryption_secret_uuid': ANY,
    'hw_firmware_stateless': BOOLEAN,
    'hw_firmware_type': _choice('uefi', 'bios'),
    'hw_floppy_bus': _BUS,
    'hw_input_bus': _choice('usb', 'virtio'),
    'hw_ipxe_boot': BOOLEAN,
    'hw_machine_type': ANY,
    'hw_numa_cpus': _list_of('sets of numbers of CPUs', lambda value: (
        isinstance(value, (list, tuple, set, frozenset))
        and all(type(each) is int and each >= 0 for each in value))),
    'hw_numa_mem': _list_of('amounts of memory in MB', lambda value: (
        type(value) is int and value > 0)),
    'hw_pointer_model': _choice('usbtablet'),
    'hw_qemu_guest_agent': BOOLEAN,
    'hw_rescue_bus': _BUS,
    'hw_rescue_device': _choice('cdrom', 'disk', 'floppy', 'fs', 'lun'),
    'hw_rng_model': _choice('virtio'),
    'hw_scsi_model': _choice(
        'buslogic', 'ibmvscsi', 'lsilogic', 'lsisas1068', 'lsisas1078',
        'virtio-scsi', 'vmpvscsi', former={
            'lsilogicsas': 'lsisas1068', 'paravirtual': 'vmpvscsi'}),
    'hw_time_hpet': BOOLEAN,
    'hw_video_model': _choice('cirrus', 'qxl', 'vga', 'vmvga', 'xen',
                              'virtio', 'gop', 'none', 'bochs'),
    'hw_video_ram': _NATURAL,
    'hw_vif_model': _choice(
        'virtio', 'ne2k_pci', 'pcnet', 'rtl8139', 'e1000', 'e1000e',
        'netfront', 'spapr-vlan', 'lan9118', 'sriov', 'vmxnet', 'vmxnet3',
        'igb', former={
            'virtuale1000': 'e1000', 'virtuale1000e': 'e1000e',
            'virtualpcnet32': 'pcnet', 'virtualsriovethernetcard': 'sriov',
            'virtualvmxnet': 'vmxnet', 'virtualvmxnet3': 'vmxnet3'}),
    'hw_vm_mode': _choice(*VM_MODES, former={
        'pv': 'xen', 'hv': 'hvm', 'baremetal': 'hvm'}),
    'img_bdm_v2': BOOLEAN,
    'img_bittorrent': BOOLEAN,
    'img_block_device_mapping': ANY,
    'img_cache_in_nova': BOOLEAN,
    'img_compression_level': _SIGNED,
    'img_config_drive': _choice('optional', 'mandatory'),
    'img_hide_hypervisor_id': BOOLEAN,
    'img_hv_requested_version': _of_value(
        'versions such as >=6.0,<8', _is_version_predicate),
    'img_hv_type': _choice(*HYPERVISORS, former={'xapi': 'xen'}),
    'img_linked_clone': BOOLEAN,
    'img_mappings': ANY,
    'img_owner_id': ANY,
    'img_root_device_name': ANY,
    'img_signature': ANY,
    'img_signature_certificate_uuid': ANY,
    'img_signature_hash_method': _choice(
        'SHA-224', 'SHA-256', 'SHA-384', 'SHA-512'),
    'img_signature_key_type': _choice(
        'DSA', 'ECC_SECP384R1', 'ECC_SECP521R1', 'ECC_SECT409K1',
        'ECC_SECT409R1', 'ECC_SECT571K1', 'ECC_SECT571R1', 'RSA-PSS'),
    'img_use_agent': BOOLEAN,
    'img_version': _SIGNED,
    'os_admin_user': ANY,
    'os_command_line': ANY,
    'os_distro': ANY,
    'os_require_quiesce': BOOLEAN,
    'os_secure_boot': _choice('required', 'disabled', 'optional'),
    'os_skip_agent_inject_files_at_boot': BOOLEAN,
    'os_skip_agent_inject_ssh': BOOLEAN,
    'os_type': _choice('linux', 'windows', former={}),
    'trait:{name}': _TRAIT,
    'traits_required': _list_of('a list of names of traits', lambda value: (
        isinstance(value, str))),
}
_PROPERTIES |= {former: _PROPERTIES[name]
                for former, name in FORMER_PROPERTIES.items()}

_METADATA: dict[str, Kind] = {
    'availability_zone': _GIVEN,
    'cell_allowed_projects': ANY,
    'cell_denied_projects': ANY,
    'cpu_allocation_ratio': _decimal(0),
    'disk_allocation_ratio': _decimal(0),
    'filter_tenant_id{any}': _GIVEN,
    'instance_type': _GIVEN,
    'max_instances_per_host': _NATURAL,
    'max_io_ops_per_host': _NATURAL,
    'ram_allocation_ratio': _decimal(0),
    'trait:{name}': _KEPT_TRAIT,
    '{any}_weight_multiplier': _decimal(),
}


def _one(expected: str, test: Callable[[str], bool]) -> Kind:
    """Return the kind of hints with one value."""
    return _of_value(expected, lambda values: (
        len(values) == 1 and test(values[0])))


_UUID = re.compile(r'[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}',
                   re.ASCII | re.IGNORECASE)
_SERVERS = _of_value(
    f'at most {SERVERS_MAX} uuids of servers', lambda values: (
        len({*values}) <= SERVERS_MAX and all(map(_UUID.fullmatch, values))))


def servers(values: Iterable[str]) -> list[str]:
    """Return the uuids of a hint in their usual form, without duplicates."""
    return list(dict.fromkeys(str(uuid.UUID(value)) for value in values))


def _is_address(text: str) -> bool:
    try:
        return '%' not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _is_prefix(text: str) -> bool:
    if not text.startswith('/'):
        return False
    try:
        ipaddress.ip_network(f'::{text}', strict=False)
    except ValueError:
        try:
            ipaddress.ip_network(f'0.0.0.0{text}', strict=False)
        except ValueError:
            return False
    return True


_HINTS: dict[str, Kind] = {
    'build_near_host_ip': _one('an IP address', _is_address),
    'cidr': _one('the length of a network prefix, such as /24', _is_prefix),
    'different_host': _SERVERS,
    'group': ANY,
    'max_skew': _one(
        'a whole number from {} to {}'.format(*requests.BOUNDS['max_skew']),
        lambda value: _number(*requests.BOUNDS['max_skew']).understands(
            '', value)),
    'query': _of_value(
        'one JSON list of an operator and its arguments', lambda values: (
            not any(values) or len(values) == 1
            and queries.is_query(values[0]))),
    'same_host': _SERVERS,
    'spread': _one(f'one of {", ".join(requests.SPREADS)}',
                   requests.SPREADS.__contains__),
}


#: Patterns of the parts of names in the tables.
_PARTS = {
    'any': '.*', 'group': f'(?:{request_groups.SUFFIX})?', 'name': '(.*)',
    'number': '[0-9]{1,9}', 'path': '(?!_)[^:]+(?::(?!_)[^:]+)*',
    'unscoped': '[^:]*'}

#: The least likeness of a mistyped scope to a known one. No other scope is as
#: like to one of two letters.
_LIKENESS = 0.81


class Keys:
    """The known keys of one kind of mapping, and their kinds of values.

    :param kinds: by name; a name may have parts, such as ``{number}``
    :ivar kinds: the same
    """

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = kinds
        self._open = [(re.compile(f'(?s){_pattern(name)}'), kind)
                      for name, kind in kinds.items() if '{' in name]
        #: The scopes of the keys, which have no other keys.
        self._scopes = frozenset(
            re.split('[{:]', name)[0] for name in kinds if ':' in name)
        # Few keys exist, and each request has some of them.
        self._known = functools.lru_cache(1024)(self._search)

    def kind(self, key: str) -> Kind | None:
        """Return the kind of values of a key; None if the key is unknown."""
        found = self._find(key)
        return None if found is None else found[0]

    def check(
        self, values: Mapping[str, Any] | None, where: str, field: str
    ) -> None:
        """Check that the values of known keys are understood.

        A key with None has no value.

        :param where: the document, and ``field`` its part with the keys
        :raises cellsched.exception.InvalidField: names the key
        """
        for key, value in values.items() if values else ():
            found = self._find(key) if value is not None else None
            if found is None:
                continue
            kind, name = found
            if not kind.understands(name, value):
                raise exception.InvalidField(
                    where=where, field=f'{field}.{shown(key)}',
                    expected=kind.expected)

    def check_names(
        self, names: Iterable[str], where: str, field: str
    ) -> None:
        """Check that the keys in known or mistyped scopes are known.

        :raises cellsched.exception.InvalidField: names the key
        """
        for key in names:
            scope, colon, _ = key.partition(':')
            if not colon or self._find(key) is not None:
                continue
            if scope in self._scopes:
                problem = f'the scope {scope} has no such key'
                near = difflib.get_close_matches(key, self.kinds, 1)
            else:
                # Other scopes are those of other programs, and are ignored.
                near = difflib.get_close_matches(
                    scope.strip().lower(), self._scopes, 1, _LIKENESS)
                if not near:
                    continue
                problem = 'the scope is unknown'
            raise exception.InvalidField(
                where=where, field=f'{field}.{shown(key)}', problem=problem,
                expected='a known key' + (
                    f'; did you mean {near[0]}?' if near else ''))

    def canonical(self, key: str, value: Any) -> Any:
        """Return the value of a key as Nova's objects have it.

        :returns: the value as it is if it is not understood
        """
        found = self._find(key)
        if found is None or not found[0].understands(found[1], value):
            return value
        return found[0].read(value)

    def _find(self, key: str) -> tuple[Kind, str] | None:
        # A longer key comes from no API, and would fill the cache.
        find = self._known if len(key) <= _TEXT_MAX else self._search
        return find(key)

    def _search(self, key: str) -> tuple[Kind, str] | None:
        kind = self.kinds.get(key)
        if kind is not None:
            return kind, ''
        for pattern, kind in self._open:
            found = pattern.fullmatch(key)
            if found is not None:
                return kind, ''.join(found.groups(''))
        return None


def _pattern(name: str) -> str:
    """Return the pattern of a name with parts in braces."""
    texts = re.split('{([a-z]+)}', name)
    return ''.join(_PARTS[text] if place % 2 else re.escape(text)
                   for place, text in enumerate(texts))


#: The keys of flavors, images, aggregates and hints.
EXTRA_SPECS, PROPERTIES = Keys(_EXTRA_SPECS), Keys(_PROPERTIES)
METADATA, HINTS = Keys(_METADATA), Keys(_HINTS)


def check_request(
    request: requests.RequestSpec, where: str, field: str,
    hints: Collection[str] | None = None,
) -> None:
    """Check the flavor, the image and the hints of a request.

    :param hints: the hints that are read; None for any
    :raises cellsched.exception.InvalidField: names the key
    """
    flavor, image = request.get('flavor'), request.get('image')
    if flavor is not None:
        EXTRA_SPECS.check(flavor.get('extra_specs'), where,
                          f'{field}.flavor.extra_specs')
    properties = image.get('properties') if image is not None else None
    if properties is not None:
        PROPERTIES.check(dict(properties.items()), where,
                         f'{field}.image.properties')
    check_hints({hint: values for hint, values in (
        request.get('scheduler_hints') or {}).items()
        if hints is None or hint in hints}, where, f'{field}.scheduler_hints')


#: Hints that have no meaning without another one.
_NEEDED = {'cidr': 'build_near_host_ip', 'max_skew': 'spread'}


def check_hints(
    hints: Mapping[str, Sequence[str]], where: str, field: str
) -> None:
    """Check that hints are understood, each and together.

    :raises cellsched.exception.InvalidField: names the hint
    """
    given = {hint: values for hint, values in hints.items() if values}
    HINTS.check(given, where, field)
    for hint, needed in _NEEDED.items():
        if hint in given and needed not in given:
            raise exception.InvalidField(
                where=where, field=f'{field}.{needed}',
                expected=HINTS.kinds[needed].expected)
    if 'cidr' in given:
        [near], [size] = given['build_near_host_ip'], given['cidr']
        try:
            ipaddress.ip_network(f'{near}{size}', strict=False)
        except ValueError:
            raise exception.InvalidField(
                where=where, field=f'{field}.cidr',
                expected=HINTS.kinds['cidr'].expected) from None


def shown(key: str) -> str:
    """Return a key for an error: short, and on one line."""
    # Users write keys, and operators read them in the log.
    return ascii(key[:_SHOWN_MAX])[1:-1][:_SHOWN_MAX]
