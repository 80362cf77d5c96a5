# SPDX-License-Identifier: Apache-2.0
"""The guest topology that a flavor and an image ask for.

The rules, their order and the texts of the errors are those of Nova's API.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import re
from typing import Any
from typing import NamedTuple
from typing import NoReturn

from oslo_utils import strutils

from cellsched import exception

CPUs = frozenset[int]

#: Policies for CPUs, for their threads and for the emulator's threads.
SHARED, DEDICATED, MIXED = POLICIES = 'shared', 'dedicated', 'mixed'
PREFER, ISOLATE, REQUIRE = THREAD_POLICIES = 'prefer', 'isolate', 'require'
EMULATOR_POLICIES = 'share', ISOLATE

#: The trait of hosts whose cores have several threads, and its value by the
#: thread policy that asks for it.
HYPERTHREADING = 'HW_CPU_HYPERTHREADING'
_OF_THREADS: Mapping[str | None, str] = {
    REQUIRE: 'required', ISOLATE: 'forbidden'}

#: Page sizes that name no number of KiB.
SMALL, LARGE, ANY = -1, -2, -3

_SIZES = {'small': SMALL, 'large': LARGE, 'any': ANY}

#: The most guest cells that Nova reads from a flavor, and the most CPUs of a
#: range; no host has as many.
CELLS_MAX, CPUS_MAX = 128, 65536

#: Nova's texts, by the name of the error.
_TEXTS = {
    'ImageNUMATopologyForbidden':
        "Image property '%(name)s' is not permitted to override NUMA "
        'configuration set against the flavor',
    'InvalidNUMANodesNumber':
        "The property 'numa_nodes' cannot be '%(nodes)s'. It must be a number "
        'greater than 0',
    'ImageNUMATopologyIncomplete':
        'CPU and memory allocation must be provided for all NUMA nodes',
    'ImageNUMATopologyAsymmetric':
        'Instance CPUs and/or memory cannot be evenly distributed across '
        'instance NUMA nodes. Explicit assignment of CPUs and memory to nodes '
        'is required',
    'ImageNUMATopologyCPUOutOfRange':
        'CPU number %(cpunum)d is larger than max %(cpumax)d',
    'ImageNUMATopologyCPUDuplicates':
        'CPU number %(cpunum)d is assigned to two nodes',
    'ImageNUMATopologyCPUsUnassigned':
        'CPU number %(cpuset)s is not assigned to any node',
    'ImageNUMATopologyMemoryOutOfRange':
        '%(memsize)d MB of memory assigned, but expected %(memtotal)d MB',
    'ImageCPUPinningForbidden':
        "Image property 'hw_cpu_policy' is not permitted to override CPU "
        'pinning policy set against the flavor',
    'ImageCPUThreadPolicyForbidden':
        "Image property 'hw_cpu_thread_policy' is not permitted to override "
        'CPU thread pinning policy set against the flavor',
    'InvalidCPUAllocationPolicy':
        "CPU policy requested from '%(source)s' is invalid, given: "
        "'%(requested)s', available: '%(available)s'.",
    'InvalidCPUThreadAllocationPolicy':
        "CPU thread policy requested from '%(source)s' is invalid, given: "
        "'%(requested)s', available: '%(available)s'.",
    'CPUThreadPolicyConfigurationInvalid':
        'Cannot set cpu thread pinning policy in a non dedicated cpu pinning '
        'policy',
    'InvalidMixedInstanceDedicatedMask':
        'Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. '
        "See 'hw:cpu_dedicated_mask'.",
    'RequiredMixedInstancePolicy':
        "Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.",
    'RequiredMixedOrRealtimeCPUMask':
        "Dedicated CPU set can be specified from either 'hw:cpu_dedicated_"
        "mask' or 'hw:cpu_realtime_mask' when using 'mixed' CPU policy. "
        "'hw:cpu_dedicated_mask' and 'hw:cpu_realtime_mask' can not be "
        'specified at the same time, or be specified with none of them.',
    'RealtimeConfigurationInvalid':
        'Cannot set realtime policy in a non dedicated cpu pinning policy',
    'RealtimeMaskNotFoundOrInvalid':
        'Use of realtime CPUs requires either one or more non-realtime CPU(s) '
        'or offloaded emulator threads.',
    'InvalidEmulatorThreadsPolicy':
        'CPU emulator threads option requested is invalid, given: '
        "'%(requested)s', available: '%(available)s'.",
    'BadRequirementEmulatorThreadsPolicy':
        'An isolated CPU emulator threads option requires a dedicated CPU '
        'policy option.',
    'MemoryPageSizeInvalid': "Invalid memory page size '%(pagesize)s'",
    'MemoryPageSizeForbidden':
        "Page size %(pagesize)s forbidden against '%(against)s'",
    'LockMemoryForbidden':
        'locked_memory value in image or flavor is forbidden when '
        'mem_page_size is not set.',
    'FlavorImageLockedMemoryConflict':
        'locked_memory value in image (%(image)s) and flavor (%(flavor)s) '
        'conflict. A consistent value is expected if both specified.',
    'ImagePCINUMAPolicyForbidden':
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to "
        "override the 'hw:pci_numa_affinity_policy' flavor extra spec.",
    'InvalidPCINUMAAffinity':
        'Invalid PCI NUMA affinity configured: %(policy)s',
    'PciRequestAliasNotDefined': 'PCI alias %(alias)s is not defined',
    'PciInvalidAlias': 'Invalid PCI alias definition: %(reason)s',
}


def refuse(error: str, text: str = '', **values: Any) -> NoReturn:
    """Refuse a request with an error of Nova.

    :param text: replaces the error's own text
    :raises cellsched.exception.HardwareRequestInvalid: always
    """
    raise exception.HardwareRequestInvalid(
        error=error, problem=text or _TEXTS[error] % values)


class GuestCell(NamedTuple):
    """A NUMA cell of a server.

    :param cpus: the vCPUs that share CPUs with other servers
    :param pcpus: the vCPUs with a dedicated CPU each
    :param memory_mb: memory, in MiB
    :param page_size: size of its memory pages in KiB, or :data:`SMALL`,
        :data:`LARGE` or :data:`ANY`; None or 0 if it does not matter
    :param policy: one of :data:`POLICIES`; None is as shared
    :param thread_policy: one of :data:`THREAD_POLICIES`; None is as prefer
    """

    id: int
    cpus: CPUs
    pcpus: CPUs
    memory_mb: int
    page_size: int | None = None
    policy: str | None = None
    thread_policy: str | None = None

    @property
    def is_pinned(self) -> bool:
        """True if any vCPU may have a dedicated CPU."""
        return self.policy in (DEDICATED, MIXED)

    @property
    def is_shared(self) -> bool:
        """True if any vCPU may share a CPU."""
        return self.policy != DEDICATED


class GuestTopology(NamedTuple):
    """The NUMA cells of a server.

    :param emulator_policy: one of :data:`EMULATOR_POLICIES`; None for no
        CPU of their own
    """

    cells: tuple[GuestCell, ...]
    emulator_policy: str | None = None

    @property
    def isolates_emulator(self) -> bool:
        """True if the emulator's threads have a dedicated CPU."""
        return self.emulator_policy == ISOLATE

    @property
    def pcpus(self) -> int:
        """Number of dedicated CPUs, with that of the emulator."""
        return (sum(len(each.pcpus) for each in self.cells)
                + self.isolates_emulator)


class _Source:
    """A flavor and an image.

    :param properties: properties of the image by name
    """

    def __init__(
        self, vcpus: int, extra_specs: Mapping[str, Any],
        properties: Mapping[str, Any],
    ) -> None:
        self.vcpus = vcpus
        self.specs = extra_specs
        self.properties = properties

    def both(self, key: str) -> tuple[str | None, str | None]:
        """Return the values of the flavor and of the image."""
        return (_text(self.specs.get(f'hw:{key}')),
                _text(self.properties.get(f'hw_{key}')))

    def spec(self, key: str) -> str | None:
        """Return the value of the flavor."""
        return _text(self.specs.get(f'hw:{key}'))

    @functools.cached_property
    def all(self) -> CPUs:
        """All vCPUs.

        :raises cellsched.exception.HardwareRequestInvalid: they are too many
        """
        if self.vcpus > CPUS_MAX:
            refuse('Invalid', f'{self.vcpus} vCPUs are too many for NUMA '
                   f'cells or dedicated CPUs; expected at most {CPUS_MAX}')
        return frozenset(range(self.vcpus))

    def masked(self, mask: str) -> CPUs:
        """Return the vCPUs of a mask; ``^`` excludes from all."""
        if mask.strip().startswith('^'):
            mask = f'0-{len(self.all) - 1},{mask}'
        return parse_cpus(mask)


def _text(value: Any) -> str | None:
    return None if value is None or value == '' else str(value)


def parse_cpus(text: str) -> CPUs:
    """Return the numbers of a text such as ``0-3,^2,6``.

    :raises cellsched.exception.HardwareRequestInvalid: it has another form
    """
    found, excluded = set[int](), set[int]()
    for part in filter(None, map(str.strip, text.split(','))):
        into = excluded if part.startswith('^') else found
        match = re.fullmatch(
            r'\^?\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?', part)
        first, last = match.groups() if match else ('1', '0')
        # Numbers far above those of any flavor are out of range anyway.
        numbers = range(int(first), min(
            int(last or first), int(first) + CPUS_MAX) + 1)
        if not numbers:
            kind = ('range' if '-' in part else
                    'exclusion' if into is excluded else 'inclusion')
            refuse('Invalid', f'Invalid {kind} expression {part!r}')
        into.update(numbers)
    return frozenset(found - excluded)


#: Keys without which a flavor and an image ask for no cells, and cannot
#: contradict each other.
_KEYS = frozenset({
    'numa_nodes', 'cpu_policy', 'cpu_thread_policy', 'cpu_realtime',
    'cpu_dedicated_mask', 'emulator_threads_policy', 'mem_page_size',
    'locked_memory', 'pmem'})
_SPECS = frozenset(f'hw:{key}' for key in _KEYS)
_PROPERTIES = frozenset({
    'traits_required', *(f'hw_{key}' for key in _KEYS)})
_PARTS = 'CPU', 'HYPERTHREADING'


def may_ask(
    extra_specs: Mapping[str, Any], properties: Mapping[str, Any]
) -> bool:
    """Return whether a flavor and an image may ask for a topology.

    It takes less time than :func:`topology`, and most do not.
    """
    return not (
        _SPECS.isdisjoint(extra_specs) and _PROPERTIES.isdisjoint(properties)
        and not any(part in key for key in extra_specs for part in _PARTS))


def topology(
    vcpus: int, memory_mb: int, extra_specs: Mapping[str, Any],
    properties: Mapping[str, Any],
) -> GuestTopology | None:
    """Return the topology that a flavor and an image ask for.

    :param memory_mb: memory of the flavor, in MiB
    :param properties: properties of the image by name
    :returns: None if they ask for none
    :raises cellsched.exception.HardwareRequestInvalid: they contradict each
        other, or a value is invalid
    """
    source = _Source(vcpus, extra_specs, properties)
    # 1. The policies, each from the flavor and the image.
    policy, threads = _policy(source), _thread_policy(source)
    realtime = _realtime(source)
    dedicated = _dedicated(source)
    emulator = _emulator_policy(source)
    # 2. Resources and traits that stand for a policy.
    policy = _policy_of_resources(source, policy, emulator)
    threads = _policy_of_trait(source, threads)
    # 3. The policies together.
    dedicated = _consistent(policy, threads, emulator, realtime, dedicated)
    nodes, size = _nodes(source), page_size(source)
    _check_locked_memory(source)
    pmem = (source.spec('pmem') or '').strip(', ')
    if not (nodes or size or pmem or policy in (DEDICATED, MIXED)):
        return None
    # 4. The CPUs and the memory of each cell.
    pinned = source.all if policy == DEDICATED else dedicated
    return GuestTopology(tuple(
        GuestCell(number, cpus - pinned, cpus & pinned, memory, size, policy,
                  threads)
        for number, (cpus, memory) in enumerate(
            _split(source, memory_mb, nodes or 1))), emulator)


def cpu_amounts(
    vcpus: int, extra_specs: Mapping[str, Any], properties: Mapping[str, Any],
) -> dict[str, int]:
    """Return the amounts that a CPU policy asks for in place of the vCPUs.

    :returns: amounts of VCPU and PCPU; none unless CPUs are dedicated
    :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
        image contradict each other, or a value is invalid
    """
    source = _Source(vcpus, extra_specs, properties)
    policy = _policy(source)
    if policy not in (DEDICATED, MIXED):
        return {}
    pinned = len(source.all if policy == DEDICATED else
                 _dedicated(source) or _realtime(source))
    isolates = _emulator_policy(source) == ISOLATE
    return {'VCPU': vcpus - pinned, 'PCPU': pinned + isolates}


def thread_trait(
    extra_specs: Mapping[str, Any], properties: Mapping[str, Any],
) -> dict[str, str]:
    """Return the trait that a policy for CPU threads asks for.

    :returns: ``required`` or ``forbidden``, by the name of the trait
    :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
        image contradict each other, or a value is invalid
    """
    policy = _thread_policy(_Source(0, extra_specs, properties))
    return {HYPERTHREADING: _OF_THREADS[policy]} if (
        policy in _OF_THREADS) else {}


def _checked(
    source: _Source, key: str, error: str, known: Sequence[str]
) -> tuple[str | None, str | None]:
    """Return the values of the flavor and of the image if they are known."""
    found = source.both(key)
    for place, value in zip(('flavor extra specs', 'image properties'), found):
        if value and value not in known:
            refuse(error, source=place, requested=value, available=known)
    return found


def _policy(source: _Source) -> str | None:
    flavor, image = _checked(
        source, 'cpu_policy', 'InvalidCPUAllocationPolicy',
        (DEDICATED, SHARED, MIXED))
    if (flavor == MIXED and image == DEDICATED
            or flavor == SHARED and image in (MIXED, DEDICATED)):
        refuse('ImageCPUPinningForbidden')
    return flavor or image


def _thread_policy(source: _Source) -> str | None:
    flavor, image = _checked(
        source, 'cpu_thread_policy', 'InvalidCPUThreadAllocationPolicy',
        (PREFER, ISOLATE, REQUIRE))
    if flavor in (None, PREFER):
        return flavor or image
    if image and image != flavor:
        refuse('ImageCPUThreadPolicyForbidden')
    return flavor


def _realtime(source: _Source) -> CPUs:
    """Return the realtime vCPUs."""
    if not strutils.bool_from_string(source.spec('cpu_realtime')):
        return frozenset()
    flavor, image = source.both('cpu_realtime_mask')
    mask = image or flavor
    cpus = source.masked(mask) if mask else source.all
    # The policy is checked between the two, as Nova does.
    if not cpus or not _emulator_policy(source) and cpus == source.all:
        refuse('RealtimeMaskNotFoundOrInvalid')
    if not cpus <= source.all:
        refuse('RealtimeMaskNotFoundOrInvalid',
               'Realtime policy vCPU(s) mask is configured with RT vCPUs that '
               'are not a subset of the vCPUs in the flavor. See '
               'hw:cpu_realtime_mask or hw_cpu_realtime_mask')
    return cpus


def _dedicated(source: _Source) -> CPUs:
    """Return the dedicated vCPUs of a mask."""
    mask = source.spec('cpu_dedicated_mask')
    if not mask:
        return frozenset()
    cpus = source.masked(mask)
    if not cpus or cpus >= source.all:
        refuse('InvalidMixedInstanceDedicatedMask')
    if not cpus <= source.all:
        refuse('InvalidMixedInstanceDedicatedMask',
               'Mixed instance dedicated vCPU(s) mask is not a subset of '
               'vCPUs in the flavor. See "hw:cpu_dedicated_mask"')
    return cpus


def _emulator_policy(source: _Source) -> str | None:
    policy = source.spec('emulator_threads_policy')
    if policy and policy not in EMULATOR_POLICIES:
        refuse('InvalidEmulatorThreadsPolicy', requested=policy,
               available=EMULATOR_POLICIES)
    return policy


def _policy_of_resources(
    source: _Source, policy: str | None, emulator: str | None
) -> str | None:
    """Return the policy, which amounts of VCPU and PCPU may stand for."""
    # Any group counts. A value that is no number is refused elsewhere.
    vcpus, pcpus = (sum(
        int(value) for key, value in source.specs.items()
        if re.match(f'resources([1-9][0-9]*)?:{name}', key)
        and re.fullmatch(r'\s*[-+]?\d+\s*', str(value)))
        for name in ('VCPU', 'PCPU'))
    if policy and (vcpus or pcpus):
        refuse('InvalidRequest',
               "It is not possible to use the 'resources:VCPU' or "
               "'resources:PCPU' extra specs in combination with the "
               "'hw:cpu_policy' extra spec or 'hw_cpu_policy' image metadata "
               'property; use one or the other')
    if vcpus and pcpus:
        refuse('InvalidRequest',
               "It is not possible to specify both 'resources:VCPU' and "
               "'resources:PCPU' extra specs; use one or the other")
    if pcpus and emulator == ISOLATE and pcpus != source.vcpus + 1:
        refuse('InvalidRequest',
               "You have requested 'hw:emulator_threads_policy=isolate' but "
               'have not requested sufficient PCPUs to handle this policy; '
               'you must allocate exactly flavor.vcpus + 1 PCPUs.')
    if pcpus and emulator != ISOLATE and pcpus != source.vcpus:
        refuse('InvalidRequest',
               'There is a mismatch between the number of PCPUs requested via '
               "'resourcesNN:PCPU' and the flavor); you must allocate exactly "
               'flavor.vcpus PCPUs')
    return DEDICATED if pcpus else SHARED if vcpus else policy


def _policy_of_trait(source: _Source, policy: str | None) -> str | None:
    """Return the thread policy, which a trait may stand for."""
    trait = next(
        (value for key, value in source.specs.items()
         if re.match(f'trait([1-9][0-9]*)?:{HYPERTHREADING}', key)), None)
    if trait is None and HYPERTHREADING in (
            source.properties.get('traits_required') or ()):
        trait = 'required'
    if policy and trait:
        refuse('InvalidRequest',
               "It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' "
               "extra spec in combination with the 'hw:cpu_thread_policy' "
               "extra spec or 'hw_cpu_thread_policy' image metadata property; "
               'use one or the other')
    return {'forbidden': ISOLATE, 'required': REQUIRE}.get(
        str(trait), policy)


def _consistent(
    policy: str | None, threads: str | None, emulator: str | None,
    realtime: CPUs, dedicated: CPUs,
) -> CPUs:
    """Return the dedicated vCPUs of a mixed policy, if all policies agree."""
    if policy == MIXED:
        if bool(realtime) == bool(dedicated):
            refuse('RequiredMixedOrRealtimeCPUMask')
        return dedicated or realtime
    if policy != DEDICATED:
        if threads:
            refuse('CPUThreadPolicyConfigurationInvalid')
        if emulator == ISOLATE:
            refuse('BadRequirementEmulatorThreadsPolicy')
    if dedicated:
        refuse('RequiredMixedInstancePolicy')
    if policy != DEDICATED and realtime:
        refuse('RealtimeConfigurationInvalid')
    return frozenset()


def _nodes(source: _Source) -> int | None:
    """Return the number of guest cells; None if it is not given."""
    flavor, image = source.both('numa_nodes')
    if flavor and image:
        refuse('ImageNUMATopologyForbidden', name='hw_numa_nodes')
    nodes = flavor or image
    if nodes is None:
        return None
    if not re.fullmatch('[1-9][0-9]{0,17}', nodes):
        refuse('InvalidNUMANodesNumber', nodes=nodes)
    if int(nodes) > CELLS_MAX:
        refuse('Invalid', f"The property 'numa_nodes' cannot be '{nodes}'. "
               f'It must be at most {CELLS_MAX}')
    return int(nodes)


def page_size(source: _Source) -> int | None:
    """Return the page size in KiB, or the number of its keyword."""
    flavor, image = source.both('mem_page_size')
    if flavor is None:
        if image:
            refuse('MemoryPageSizeForbidden', pagesize=image,
                   against='<empty>')
        return None
    size = _size(flavor)
    if image is None:
        return size
    if size not in (ANY, LARGE):
        refuse('MemoryPageSizeForbidden', pagesize=image, against=flavor)
    return _size(image)


def _size(text: str) -> int:
    if text in _SIZES:
        return _SIZES[text]
    if re.fullmatch('[0-9]{1,18}', text):
        return int(text)
    try:
        return int(strutils.string_to_bytes(text, return_int=True)) // 1024
    except (OverflowError, ValueError):
        refuse('MemoryPageSizeInvalid', pagesize=text)


def _check_locked_memory(source: _Source) -> None:
    """Refuse locked memory without a page size."""
    flavor, image = source.both('locked_memory')
    values = [strutils.bool_from_string(each)
              for each in (flavor, image) if each is not None]
    if len(set(values)) > 1:
        refuse('FlavorImageLockedMemoryConflict', image=values[1],
               flavor=values[0])
    if any(values) and not any(source.both('mem_page_size')):
        refuse('LockMemoryForbidden')


def _split(
    source: _Source, memory_mb: int, nodes: int
) -> Iterator[tuple[CPUs, int]]:
    """Yield the vCPUs and the memory of each cell, in MiB."""
    cpus = _listed(source, 'numa_cpus', parse_cpus)
    memory = _listed(source, 'numa_mem', _whole)
    if cpus is None and memory is None:
        if source.vcpus % nodes or memory_mb % nodes:
            refuse('ImageNUMATopologyAsymmetric')
        each = source.vcpus // nodes
        for number in range(nodes):
            yield (frozenset(range(number * each, (number + 1) * each)),
                   memory_mb // nodes)
        return
    if cpus is None or memory is None or not (
            len(cpus) == len(memory) == nodes):
        refuse('ImageNUMATopologyIncomplete')
    unassigned = set(source.all)
    for assigned in cpus:
        for cpu in sorted(assigned):
            if cpu >= source.vcpus:
                refuse('ImageNUMATopologyCPUOutOfRange', cpunum=cpu,
                       cpumax=source.vcpus - 1)
            if cpu not in unassigned:
                refuse('ImageNUMATopologyCPUDuplicates', cpunum=cpu)
            unassigned.remove(cpu)
    if unassigned:
        refuse('ImageNUMATopologyCPUsUnassigned', cpuset=unassigned)
    if sum(memory) != memory_mb:
        refuse('ImageNUMATopologyMemoryOutOfRange', memsize=sum(memory),
               memtotal=memory_mb)
    yield from zip(cpus, memory)


def _whole(text: str) -> int:
    if not re.fullmatch(r'\s*\d+\s*', text):
        refuse('Invalid', f'Invalid amount of memory {text!a:.60}')
    return int(text)


def _listed(
    source: _Source, key: str, parse: Callable[[str], Any]
) -> list[Any] | None:
    """Return the values of a key for each cell; None if it is not given."""
    flavor = list(_numbered(source.specs, f'hw:{key}.', parse))
    image = list(_numbered(source.properties, f'hw_{key}.', parse))
    given = source.properties.get(f'hw_{key}')
    if given is not None:
        # An image's list, as the versioned object has it.
        image = [frozenset(each) if isinstance(each, (list, set, tuple))
                 else each for each in given]
    if flavor and image:
        refuse('ImageNUMATopologyForbidden', name=f'hw_{key}')
    return flavor or image or None


def _numbered(
    values: Mapping[str, Any], prefix: str, parse: Callable[[str], Any]
) -> Iterator[Any]:
    for number in range(CELLS_MAX):
        value = _text(values.get(f'{prefix}{number}'))
        if value is None:
            return
        yield parse(value)
