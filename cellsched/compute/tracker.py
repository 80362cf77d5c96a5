# SPDX-License-Identifier: Apache-2.0
"""Reporting what a host has."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.rpc import compute
from cellsched.virt import base as virt_base


class Tracker:
    """Reports a host's nodes to its cell and to the claim store.

    What is taken on the host is in the claim store alone, so the cell is told
    only what the host has and what it keeps for itself.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, database: session.Database,
        claims: claims_base.ClaimStore, driver: virt_base.Driver,
        clock: clock_.Clock,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        self._conf = conf
        self._database = database
        self._claims = claims
        self._driver = driver
        self._clock = clock
        self._new_uuid = new_uuid
        self._reported: dict[str, dict[str, claims_base.Inventory]] = {}

    def report(self) -> None:
        """Say that the host is alive, and what it has where that changed.

        The service is reported last: a host is chosen only when its nodes and
        inventories are known.
        """
        now = self._clock.now()
        for node, resources in self._driver.nodes().items():
            inventory = self._inventory(resources)
            if self._reported.get(node) == inventory:
                continue
            with self._database.writer() as connection:
                provider = compute_nodes.save(
                    connection, self._new_uuid(), self._conf.host, node,
                    self._values(resources), now)
            self._claims.set_inventory(provider, inventory)
            self._reported[node] = inventory
        with self._database.writer() as connection:
            services.report(
                connection, self._new_uuid(), self._conf.host,
                services.COMPUTE, compute.TOPIC, now)

    def _inventory(
        self, resources: virt_base.NodeResources
    ) -> dict[str, claims_base.Inventory]:
        cpu, ram, disk = self._ratios()
        conf = self._conf
        return {
            'VCPU': claims_base.Inventory(
                resources.vcpus, conf.reserved_host_cpus, cpu,
                max_unit=max(resources.vcpus, 1)),
            'MEMORY_MB': claims_base.Inventory(
                resources.memory_mb, self._reserved_ram_mb(resources), ram,
                max_unit=max(resources.memory_mb, 1)),
            'DISK_GB': claims_base.Inventory(
                resources.local_gb, self._reserved_disk_gb(), disk,
                max_unit=max(resources.local_gb, 1)),
        }

    def _values(self, resources: virt_base.NodeResources) -> dict[str, Any]:
        cpu, ram, disk = self._ratios()
        ram_mb = self._reserved_ram_mb(resources)
        disk_gb = self._reserved_disk_gb()
        return {
            'vcpus': resources.vcpus, 'vcpus_used': 0,
            'memory_mb': resources.memory_mb, 'memory_mb_used': ram_mb,
            'free_ram_mb': resources.memory_mb - ram_mb,
            'local_gb': resources.local_gb, 'local_gb_used': disk_gb,
            'free_disk_gb': resources.local_gb - disk_gb,
            'hypervisor_type': resources.hypervisor_type,
            'hypervisor_version': resources.hypervisor_version,
            'cpu_info': '', 'cpu_allocation_ratio': cpu,
            'ram_allocation_ratio': ram, 'disk_allocation_ratio': disk,
        }

    def _ratios(self) -> tuple[float, float, float]:
        return self._ratio('cpu'), self._ratio('ram'), self._ratio('disk')

    def _ratio(self, kind: str) -> float:
        """Return a ratio; zero is as good as not set, as it is for Nova."""
        name = f'{kind}_allocation_ratio'
        ratio = self._conf[name] or self._conf[f'initial_{name}']
        if not ratio:
            raise exception.ConfigurationInvalid(
                field=f'[DEFAULT] initial_{name}',
                expected='a number above 0, as long as '
                         f'{name} is not set')
        return ratio

    def _reserved_ram_mb(self, resources: virt_base.NodeResources) -> int:
        return min(self._conf.reserved_host_memory_mb, resources.memory_mb)

    def _reserved_disk_gb(self) -> int:
        return -(-self._conf.reserved_host_disk_mb // 1024)
