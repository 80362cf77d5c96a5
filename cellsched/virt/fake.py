# SPDX-License-Identifier: Apache-2.0
"""A driver that builds nothing and can be slow or fail."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import datetime
import functools
import itertools
import json
import threading
from typing import Any

from oslo_config import cfg
from oslo_config import types

from cellsched import exception
from cellsched.hardware import description
from cellsched.hardware.description import Hardware
from cellsched.hardware.instance import InstanceNUMATopology
from cellsched.hardware.instance import PciDevice
from cellsched import objects
from cellsched.objects.request_groups import standard_traits
from cellsched.objects import resources
from cellsched.virt import base

#: Supported image formats, and devices like those of QEMU.
_TRAITS = frozenset(f'COMPUTE_{kind}_{name}' for kind, names in {
    'IMAGE_TYPE': 'AMI ISO QCOW2 RAW VHD VHDX VMDK',
    'STORAGE_BUS': 'FDC IDE SATA SCSI USB VIRTIO',
    'GRAPHICS_MODEL': 'BOCHS CIRRUS NONE QXL VGA VIRTIO',
    'NET_VIF_MODEL': 'E1000 E1000E NE2K_PCI PCNET RTL8139 VIRTIO VMXNET3',
}.items() for name in names.split())

_HARDWARE_OPT = cfg.StrOpt('hardware', default='', help="""
NUMA cells and PCI devices of the host, as a mapping in JSON, such as
``{"cells": [{"id": 0, "memory_mb": 8192, "cpus": "0-1", "dedicated": 2}]}``.

It has the fields of ``hardware`` in a provider configuration file.

Related options:

* ``[compute] provider_config_location``
""")

#: Options for the duration and failures of builds.
_BUILD_OPTS = [
    cfg.FloatOpt('build_delay', default=0.0, min=0.0, help="""
Seconds that each build takes.
"""),
    cfg.IntOpt('fail_builds', default=0, min=0, help="""
Number of builds that fail, the first ones; another host may succeed.
"""),
    cfg.IntOpt('abort_builds', default=0, min=0, help="""
Number of builds that abort without a retry, after those of ``fail_builds``.
"""),
    cfg.BoolOpt('deallocate_networks_on_reschedule', default=False,
                help="""
Whether a rescheduled build gets new networks on the next host, as with
bare-metal drivers.
"""),
    cfg.BoolOpt('supports_migration', default=True, help="""
Whether the host can transfer the disks of servers that migrate.

Without it, only servers without a local disk migrate, unless the data on their
disks may be lost.
"""),
]


#: Numbers of the builds in this process.
_BUILDS = itertools.count(1)


@dataclasses.dataclass
class _Guest:
    """A server on the host.

    :param contents: the contents of its disks
    :param runs: whether it runs; otherwise it is prepared for a migration, or
        is transferred
    :param cells: its NUMA cells
    :param devices: its PCI devices
    """

    spawned_at: datetime.datetime
    contents: str
    runs: bool = True
    prepared: bool = False
    cells: InstanceNUMATopology | None = None
    devices: tuple[PciDevice, ...] = ()


class FakeDriver(base.ComputeDriver):
    """Keeps servers in memory, for tests, demonstrations and simulations.

    The options of ``[fake_virt]`` set its resources and failures.
    :meth:`fail_builds` and :meth:`hold_builds` change them at run time, for
    builds and for the arrival of servers that migrate. The disks of a server
    contain a text, see :meth:`contents`.
    """

    group = 'fake_virt'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.IntOpt('vcpus', default=8, min=0, help="""
Physical CPUs of the host.
"""),
            cfg.IntOpt('memory_mb', default=16384, min=0, help="""
Physical memory of the host, in MB.
"""),
            cfg.IntOpt('local_gb', default=200, min=0, help="""
Physical disk of the host, in GB.
"""),
            cfg.StrOpt('cpu_arch', default='x86_64', help="""
Architecture of the host's CPUs and of the servers that it can run.
"""),
            cfg.StrOpt('hypervisor_type', default='fake', help="""
Hypervisor type that the host reports.
"""),
            cfg.IPOpt('host_ip', help="""
Address of the host.
"""),
            cfg.ListOpt('traits', default=[], help="""
Traits of the host, in addition to the traits of its architecture and of the
supported image formats, buses, graphics and network cards.

It has no TPM, no encryption of disks, no packed virtqueues and no sound,
unless this says so.
"""),
            cfg.Opt('inventories', type=types.Dict(types.Integer(
                0, resources.AMOUNT_MAX)), default={}, help="""
Totals of other resource classes, such as ``VGPU:4,CUSTOM_LICENCE:2``.
"""),
            cfg.StrOpt('providers', default='', help="""
Child providers of the host by their names, as a mapping in JSON, such as
``{"gpu0": {"inventories": {"VGPU": 4}, "traits": ["CUSTOM_FAST"]}}``.

Each may have ``inventories``, totals by resource class, ``traits``, and
``parent``, the name of the child that it is below.
"""),
            cfg.Opt('metrics', type=types.Dict(types.Float()), default={},
                    help="""
Metrics of the host, such as ``cpu.percent:0.5``.
"""),
            _HARDWARE_OPT, *_BUILD_OPTS,
        ]

    def __init__(self, conf, clock):
        super().__init__(conf, clock)
        options = conf.fake_virt
        for name in options.inventories:
            if not resources.is_known(name):
                raise exception.ConfigurationInvalid(
                    field='[fake_virt] inventories',
                    problem=f'unknown resource class {name!a:.60}',
                    expected='names of resource classes')
        self._providers: Mapping[str, base.ChildProvider] = _parsed(
            'providers', options.providers, providers)
        self._hardware: Hardware = _parsed(
            'hardware', options.hardware,
            lambda value: description.read('hardware', value))
        self._lock = threading.Lock()
        self.supports_migration = options.supports_migration
        #: The uuids of the servers on the machine, and what is known of them.
        self._instances: set[str] = set()
        self._guests: dict[str, _Guest] = {}
        self._to_fail = options.fail_builds
        self._to_abort = options.abort_builds
        self._go_on = threading.Event()
        self._go_on.set()

    def fail_builds(self, count: int) -> None:
        """Make the next builds fail."""
        with self._lock:
            self._to_fail = count

    def hold_builds(self) -> threading.Event:
        """Make builds wait for the returned event."""
        self._go_on = threading.Event()
        return self._go_on

    def nodes(self) -> dict[str, base.NodeResources]:
        options = self.conf.fake_virt
        return {self.conf.host: base.NodeResources(
            vcpus=options.vcpus, memory_mb=options.memory_mb,
            local_gb=options.local_gb,
            hypervisor_type=options.hypervisor_type, hypervisor_version=1,
            cpu_info={'arch': options.cpu_arch},
            supported_instances=(
                (options.cpu_arch, options.hypervisor_type, 'hvm'),),
            host_ip=options.host_ip,
            metrics=[{'name': name, 'value': value}
                     for name, value in options.metrics.items()],
            inventories=_inventories(options.inventories),
            providers=self._providers, topology=self._hardware.topology,
            devices=self._hardware.devices,
            traits=_TRAITS.union(options.traits, _architectures() & {
                f'HW_ARCH_{options.cpu_arch.upper()}'}))}

    def spawn(self, instance: objects.Instance, node: str) -> None:
        now = self.clock.now()
        self._take_time()
        with self._lock:
            if self._runs(instance.uuid):
                return
            self._fail(instance.uuid)
            self._put(instance.uuid, _Guest(
                now, f'build {next(_BUILDS)} at {now}',
                cells=instance.numa_topology, devices=instance.pci_devices))

    def destroy(self, instance: objects.Instance) -> None:
        with self._lock:
            self._instances.discard(instance.uuid)
            self._guests.pop(instance.uuid, None)

    def prepare_migration(
        self, instance: objects.Instance
    ) -> Mapping[str, Any]:
        with self._lock:
            guest = self._guests.get(instance.uuid)
            if guest is None:
                raise exception.BuildFailed(
                    uuid=instance.uuid, reason='it is not on this host')
            guest.runs, guest.prepared = False, True
            return {'contents': guest.contents}

    def transfer_disks(
        self, instance: objects.Instance, node: str, data: Mapping[str, Any],
        progress: Callable[[], None],
    ) -> None:
        guest = _Guest(
            self.clock.now(), data['contents'], runs=False,
            cells=instance.numa_topology, devices=instance.pci_devices)
        self._take_time()
        progress()
        with self._lock:
            self._fail(instance.uuid)
            self._put(instance.uuid, guest)

    def finish_migration(self, instance: objects.Instance, node: str) -> None:
        with self._lock:
            self._guests[instance.uuid].runs = True

    def revert_migration(self, instance: objects.Instance) -> None:
        with self._lock:
            guest = self._guests.get(instance.uuid)
            if guest is not None and guest.prepared:
                guest.runs, guest.prepared = True, False

    def list_prepared(self) -> list[str]:
        with self._lock:
            return sorted(uuid for uuid, guest in self._guests.items()
                          if guest.prepared)

    def is_running(self, uuid: str) -> bool:
        """Return whether a server is on this host and runs."""
        with self._lock:
            return self._runs(uuid)

    def contents(self, uuid: str) -> str | None:
        """Return the contents of a server's disks; None if it is not here.

        Each build makes new contents, and a transfer copies them.
        """
        with self._lock:
            guest = self._guests.get(uuid)
            return None if guest is None else guest.contents

    def hardware_of(
        self, uuid: str
    ) -> tuple[InstanceNUMATopology | None, tuple[PciDevice, ...]]:
        """Return the NUMA cells and the PCI devices of a server."""
        with self._lock:
            guest = self._guests[uuid]
            return guest.cells, guest.devices

    def write(self, uuid: str, contents: str) -> None:
        """Change the contents of the disks of a server on this host."""
        with self._lock:
            self._guests[uuid].contents = contents

    def _runs(self, uuid: str) -> bool:
        guest = self._guests.get(uuid)
        return uuid in self._instances and (guest is None or guest.runs)

    def _put(self, uuid: str, guest: _Guest) -> None:
        self._instances.add(uuid)
        self._guests[uuid] = guest

    def _take_time(self) -> None:
        if self.conf.fake_virt.build_delay:
            self.clock.sleep(self.conf.fake_virt.build_delay)
        self._go_on.wait()

    def _fail(self, uuid: str) -> None:
        """Fail if the next build is to fail."""
        if self._to_fail:
            self._to_fail -= 1
            raise exception.BuildFailed(
                uuid=uuid, reason='the driver is configured to fail')
        if self._to_abort:
            self._to_abort -= 1
            raise exception.BuildAborted(
                uuid=uuid, reason='the driver is configured to abort')

    def deallocate_networks_on_reschedule(
        self, instance: objects.Instance
    ) -> bool:
        return self.conf.fake_virt.deallocate_networks_on_reschedule

    def list_instances(self) -> list[str]:
        with self._lock:
            return sorted(self._instances)

    def spawned_at(self, uuid: str) -> datetime.datetime | None:
        with self._lock:
            guest = self._guests.get(uuid)
            return None if guest is None else guest.spawned_at


def providers(values: Mapping[str, Any]) -> dict[str, base.ChildProvider]:
    """Return the child providers of a mapping in the option's form.

    :raises cellsched.exception.InvalidField: names the field in the mapping
    """
    return {name: _provider(name, fields) for name, fields in values.items()}


def _parsed(
    name: str, text: str, parse: Callable[[dict[str, Any]], Any]
) -> Any:
    """Return the value of an option that is a mapping in JSON, or empty."""
    try:
        values = json.loads(text or '{}')
    except (RecursionError, ValueError):
        values = None
    option = f'[fake_virt] {name}'
    if not isinstance(values, dict):
        raise exception.ConfigurationInvalid(
            field=option, expected='a mapping in JSON')
    try:
        return parse(values)
    except exception.InvalidField as exc:
        raise exception.ConfigurationInvalid(
            field=f'{option}: {exc.field}', **exc.reasons) from None


def _provider(name: str, fields: Any) -> base.ChildProvider:
    def check(holds: bool, field: str, expected: str) -> None:
        if not holds:
            raise exception.InvalidField(
                where='providers', field=f'{name!a:.80}{field}',
                expected=expected)

    check(isinstance(fields, dict) and fields.keys() <= {
        'inventories', 'traits', 'parent'}, '',
        'a mapping of inventories, traits and parent')
    totals = fields.get('inventories', {})
    check(isinstance(totals, dict) and all(
        resources.is_known(each) and type(total) is int
        and 0 <= total <= resources.AMOUNT_MAX
        for each, total in totals.items()), '.inventories',
        'a mapping of resource classes to totals from 0 to '
        f'{resources.AMOUNT_MAX}')
    traits = fields.get('traits', [])
    check(isinstance(traits, list) and all(
        isinstance(trait, str) for trait in traits), '.traits',
        'a list of traits')
    parent = fields.get('parent')
    check(parent is None or isinstance(parent, str), '.parent',
          'the name of another provider')
    return base.ChildProvider(
        _inventories(totals), frozenset(traits), parent)


def _inventories(totals: Mapping[str, int]) -> dict[str, resources.Inventory]:
    return {name: resources.Inventory(total, max_unit=max(total, 1))
            for name, total in totals.items()}


@functools.cache
def _architectures() -> frozenset[str]:
    """Return the traits of processor architectures."""
    return frozenset(trait for trait in standard_traits()
                     if trait.startswith('HW_ARCH_'))
