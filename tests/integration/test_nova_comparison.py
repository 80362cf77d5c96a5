# SPDX-License-Identifier: Apache-2.0
"""What is compared with Nova: traits that are required, and options."""

import itertools
import json
import pathlib
import subprocess

from oslo_config import cfg

from cellsched.conf import scheduler
from cellsched import exception
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import required_traits
from cellsched.testing import builders
from tests.integration import base
from tests.integration.nova import caller
from tests.integration import processes

#: What Nova's python runs.
_NOVA = pathlib.Path(__file__).with_name('nova')

#: The record of Nova's options, for the tests that do without Nova.
_RECORD = (pathlib.Path(__file__).parents[1]
           / 'unit/conf/nova-34-options.json')

OPTIONS = ('query_placement_for_image_type_support',
           'image_metadata_prefilter')

#: Values of extra specs and properties, each with and without the others.
PAIRS = {
    'virtio_packed_ring': (None, 'true', 'false'),
    'ephemeral_encryption': (None, 'true', 'false'),
    'ephemeral_encryption_format': (None, 'luks', 'plain'),
    'sound_model': (None, 'virtio', 'ich9'),
    'tpm_version': (None, '1.2', '2.0'),
    'tpm_model': (None, 'tpm-tis', 'tpm-crb'),
}

DEVICES = {
    'hw_cdrom_bus': 'fdc ide sata scsi usb virtio xen lxc uml',
    'hw_disk_bus': 'fdc ide sata scsi usb virtio xen lxc uml',
    'hw_video_model': 'cirrus qxl vga vmvga xen virtio gop none bochs',
    'hw_vif_model': 'e1000 e1000e ne2k_pci pcnet rtl8139 virtio netfront '
                    'spapr-vlan lan9118 vmxnet vmxnet3 sriov igb '
                    'VirtualE1000 VirtualPCNet32',
    'hw_architecture': 'x86_64 amd64 i386 aarch64 ppc64le s390x armv7l',
    'hw_emulation_architecture': 'x86_64 aarch64 ppc64le mipsel s390x ppc',
}


def case(extra_specs=None, properties=None, disk_format='qcow2',
         is_bfv=False, on=True):
    return {'extra_specs': extra_specs or {}, 'properties': properties or {},
            'disk_format': disk_format, 'is_bfv': is_bfv,
            'options': dict.fromkeys(OPTIONS, on)}


def given(**said):
    return {name: value for name, value in said.items() if value is not None}


def pairs(*names):
    """Yield requests whose flavor and image say these in every way."""
    ways = [PAIRS[name] for name in names for _ in range(2)]
    for values in itertools.product(*ways):
        yield case(given(**{f'hw:{name}': value for name, value
                            in zip(names, values[::2])}),
                   given(**{f'hw_{name}': value for name, value
                            in zip(names, values[1::2])}))


def ours(said):
    """Return the traits that the stages here require; None if refused."""
    conf = cfg.ConfigOpts()
    conf.register_opts(scheduler.OPTS, group='scheduler')
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in said['options'].items():
        conf.set_override(name, value, group='scheduler')
    request = builders.request(
        extra_specs=said['extra_specs'], is_bfv=said['is_bfv'],
        image={'disk_format': said['disk_format'],
               'properties': said['properties']})
    try:
        return sorted(frozenset[str]().union(*(
            stage.required(request) for stage
            in mandatory_stages.request_stages(conf.scheduler)
            if isinstance(stage, required_traits.RequiredTraits))))
    except exception.InvalidField:
        return None


def run(program, said=''):
    """Return what a program of Nova's python prints."""
    return subprocess.run(
        [base.installed(caller.python), '-I', _NOVA / program],
        env=processes.environment(), input=said, text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600).stdout


class TestOptions(base.TestCase):

    def test_record_of_options_is_what_nova_has(self):
        self.assertEqual(
            json.loads(_RECORD.read_text()), json.loads(run('options.py')))


class TestRequiredTraits(base.TestCase):

    def novas(self, cases):
        """Return what Nova requires in each case."""
        lines = run('required.py', '\n'.join(map(json.dumps, cases)))
        return list(map(json.loads, lines.splitlines()))

    def test_same_traits_are_required_and_the_same_requests_refused(self):
        cases = [
            *pairs('virtio_packed_ring'), *pairs('sound_model'),
            *pairs('ephemeral_encryption', 'ephemeral_encryption_format'),
            *pairs('tpm_version', 'tpm_model'),
            *(case({'hw:tpm_version': '2.0', 'hw:tpm_secret_security': who})
              for who in ('user', 'host', 'deployment', 'nobody')),
            *(case(properties={name: value}, on=on)
              for name, values in DEVICES.items() for value in values.split()
              for on in (True, False)),
            *(case(disk_format=name, is_bfv=is_bfv, on=on)
              for name in ('qcow2', 'raw', 'vhdx', 'ploop', 'vdi', 'iso')
              for is_bfv in (True, False) for on in (True, False)),
            case({'trait:CUSTOM_A': 'required', 'trait:CUSTOM_B': 'other'},
                 {'trait:CUSTOM_C': 'required'}),
        ]
        for said in cases:
            named = [name.removeprefix('trait:') for name, value
                     in said['properties'].items()
                     if name.startswith('trait:') and value == 'required']
            said['ours'] = ours({**said, 'properties': {
                **said['properties'], 'traits_required': named}})
        expected = self.novas([{name: value for name, value in said.items()
                                if name != 'ours'} for said in cases])

        self.assertEqual(len(cases), len(expected))
        self.assertIn(None, expected)
        for said, traits in zip(cases, expected):
            with self.subTest(**said):
                self.assertEqual(traits, said['ours'])
