# SPDX-License-Identifier: Apache-2.0
"""A virtualisation driver for hosts with FPGA cards."""

import threading

from oslo_config import cfg
from oslo_config import types

from cellsched.objects import resources
from cellsched.virt import base

SLOT = 'CUSTOM_FPGA_SLOT'


class FPGADriver(base.ComputeDriver):
    """Reports FPGA cards and their slots as child providers.

    It only records servers, and does not run them.
    """

    group = 'fpga'

    @classmethod
    def opts(cls):
        family = types.String(regex='^[a-z0-9]+$', max_length=40)
        return [
            cfg.ListOpt('families', item_type=family, default=['agilex'],
                        help="""
Families of the cards of the host, one for each card.
"""),
            cfg.IntOpt('slots', default=2, min=1, max=16, help="""
Slots of each card.
""")]

    def __init__(self, conf, clock):
        super().__init__(conf, clock)
        self._lock = threading.Lock()
        self._running = set()

    def nodes(self):
        providers = {}
        for number, family in enumerate(self.conf.fpga.families):
            # A card has no inventory. It groups its slots, so that a request
            # can ask for slots on the same card.
            card = f'fpga{number}'
            providers[card] = base.ChildProvider()
            for slot in range(self.conf.fpga.slots):
                providers[f'{card}/slot{slot}'] = base.ChildProvider(
                    {SLOT: resources.Inventory(1, max_unit=1)},
                    frozenset({f'CUSTOM_FPGA_{family.upper()}'}), parent=card)
        return {self.conf.host: base.NodeResources(
            vcpus=16, memory_mb=65536, local_gb=500, hypervisor_type='fpga',
            hypervisor_version=1, providers=providers)}

    def spawn(self, instance, node):
        with self._lock:
            self._running.add(instance.uuid)

    def destroy(self, instance):
        with self._lock:
            self._running.discard(instance.uuid)

    def list_instances(self):
        with self._lock:
            return sorted(self._running)
