# SPDX-License-Identifier: Apache-2.0
"""Required traits and options are the same as in Nova."""

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
from tests import profile

#: Directory of the scripts for Nova's python.
_NOVA = pathlib.Path(__file__).with_name('nova')

#: The recorded options of Nova, for tests without Nova.
_RECORD = (pathlib.Path(__file__).parents[1]
           / 'unit/conf/nova-34-options.json')

OPTIONS = ('query_placement_for_image_type_support',
           'image_metadata_prefilter')

#: Values of extra specs and properties, combined with each other.
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


def given(**values):
    return {name: value for name, value in values.items() if value is not None}


def pairs(*names):
    """Yield requests with all combinations in flavor and image."""
    ways = [PAIRS[name] for name in names for _ in range(2)]
    for values in itertools.product(*ways):
        yield case(given(**{f'hw:{name}': value for name, value
                            in zip(names, values[::2])}),
                   given(**{f'hw_{name}': value for name, value
                            in zip(names, values[1::2])}))


def ours(fields):
    """Return the traits that this scheduler requires; None if refused."""
    conf = cfg.ConfigOpts()
    conf.register_opts(scheduler.OPTS, group='scheduler')
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in fields['options'].items():
        conf.set_override(name, value, group='scheduler')
    request = builders.request(
        extra_specs=fields['extra_specs'], is_bfv=fields['is_bfv'],
        image={'disk_format': fields['disk_format'],
               'properties': fields['properties']})
    try:
        return sorted(frozenset[str]().union(*(
            stage.required(request) for stage
            in mandatory_stages.request_stages(conf.scheduler)
            if isinstance(stage, required_traits.RequiredTraits))))
    except exception.InvalidField:
        return None


def run(program, text=''):
    """Return the output of a script that Nova's python runs."""
    return subprocess.run(
        [base.installed(caller.python), '-I', _NOVA / program],
        env=processes.environment(), input=text, text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600).stdout


@profile.full_only(
    'a pinned release of Nova; unit tests use the recorded options')
class TestOptions(base.TestCase):

    def test_recorded_options_equal_the_options_of_nova(self):
        self.assertEqual(
            json.loads(_RECORD.read_text()), json.loads(run('options.py')))


class TestRequiredTraits(base.TestCase):

    def novas(self, cases):
        """Return the traits that Nova requires in each case."""
        lines = run('traits.py', '\n'.join(map(json.dumps, cases)))
        return list(map(json.loads, lines.splitlines()))

    def test_required_traits_and_refusals_equal_nova(self):
        cases = [
            *pairs('virtio_packed_ring'), *pairs('sound_model'),
            *pairs('ephemeral_encryption', 'ephemeral_encryption_format'),
            *pairs('tpm_version', 'tpm_model'),
            *(case({'hw:tpm_version': '2.0', 'hw:tpm_secret_security': value})
              for value in ('user', 'host', 'deployment', 'nobody')),
            *(case(properties={name: value}, on=on)
              for name, values in DEVICES.items() for value in values.split()
              for on in (True, False)),
            *(case(disk_format=name, is_bfv=is_bfv, on=on)
              for name in ('qcow2', 'raw', 'vhdx', 'ploop', 'vdi', 'iso')
              for is_bfv in (True, False) for on in (True, False)),
            case({'trait:CUSTOM_A': 'required', 'trait:CUSTOM_B': 'other'},
                 {'trait:CUSTOM_C': 'required'}),
        ]
        for each in cases:
            named = [name.removeprefix('trait:') for name, value
                     in each['properties'].items()
                     if name.startswith('trait:') and value == 'required']
            each['ours'] = ours({**each, 'properties': {
                **each['properties'], 'traits_required': named}})
        expected = self.novas([{name: value for name, value in each.items()
                                if name != 'ours'} for each in cases])

        self.assertEqual(len(cases), len(expected))
        self.assertIn(None, expected)
        for each, traits in zip(cases, expected):
            with self.subTest(**each):
                self.assertEqual(traits, each['ours'])
