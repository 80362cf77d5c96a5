# SPDX-License-Identifier: Apache-2.0
"""Values of extra specs, image properties and hints, as Nova checks them."""

import re
import unittest

from nova.api.openstack.compute.schemas import servers
from nova.api.validation.extra_specs import validators
from nova.api.validation import validators as schema_validators
from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.objects import image_meta

from cellsched import exception
from cellsched.objects import keys

nova_objects.register_all()

#: Values that some keys understand and others do not.
VALUES = ('', ' ', *'''
    -1 0 0-3,^1 1 1.2 1.5 15 16 2.0 2MB 2048 42 CUSTOM False VIRTIO ac97
    amd-sev any auto a:1 bios cdrom custom dedicated disabled emulate
    false forbidden gpu high hvm ide in:x isolate kvm large legacy linux
    lsilogic luks mandatory many maybe mixed no none optional pause pcnet
    plain poweroff prefer preferred qemu-xhci qxl require required reset
    sev share shared smmuv3 socket sockets tpm-crb tpm-tis true tpm uefi
    usb usbtablet user vga virtio virtio-scsi x86-64 x86_64 yes yess
    >=6.0'''.split())

#: The parts of names of Nova's validators.
PARTS = {'group': '1', 'num': '0', 'trait': 'FAST', 'resource': 'GOLD',
         'key': 'ssd', 'filter': ':a'}

SERVER = '10000000-0000-4000-8000-000000000000'

HINTS = {
    'different_host': ([SERVER], ['server'], []),
    'same_host': ([SERVER], ['server']),
    'build_near_host_ip': ('192.0.2.1', '2001:db8::1', 'host', '10.0'),
    'cidr': ('/24', '24', '/x', 'a'),
}


def extra_specs():
    """Yield the names of extra specs that Nova checks."""
    for name in validators.VALIDATORS:
        yield re.sub(r'{(\w+)}', lambda found: PARTS[found[1]], name)


#: Values that Nova takes and the product refuses, of some keys.
EMPTY, NEGATIVE = ('', ' '), '-1'

#: Properties whose values are lists in Nova's objects.
LISTS = {'hw_numa_cpus', 'hw_numa_mem', 'img_block_device_mapping',
         'img_mappings', 'traits_required'}


def is_accepted(check, *args):
    try:
        check(*args)
    except (exception.InvalidField, nova_exception.ValidationError,
            TypeError, ValueError):
        return False
    return True


def check_ours(known, name, value):
    known.check_names([name], 'document', 'field')
    known.check({name: value}, 'document', 'field')


def stricter(known, names, check):
    """Return the values that Nova accepts and the product refuses.

    :raises AssertionError: the product accepts a value that Nova refuses
    """
    found = set()
    for name in names:
        for value in VALUES:
            pair = (is_accepted(check, name, value),
                    is_accepted(check_ours, known, name, value))
            if pair == (True, False):
                found.add((name, value))
            elif pair == (False, True):
                raise AssertionError(f'{name}={value!r} is accepted')
    return found


class TestExtraSpecs(unittest.TestCase):

    def test_known_names_are_names_of_nova(self):
        self.assertEqual([], [
            name for name in extra_specs()
            if keys.EXTRA_SPECS.kind(name) is None])

    def test_values_are_validated_as_in_nova(self):
        # All traits are alike, and so are all resource classes.
        names = [name for name in extra_specs() if not name.startswith((
            'trait1:', 'resources1:')) or 'CUSTOM' in name]

        self.assertEqual(
            {('resources1:CUSTOM_GOLD', NEGATIVE), *(
                (name, text) for text in EMPTY for name in (
                    'accel:device_profile', 'vmware:hw_version',
                    'vmware:storage_policy'))},
            stricter(keys.EXTRA_SPECS, names, validators.validate))

    def test_unknown_names_in_scopes_of_nova_are_refused(self):
        for name in ('hw:cpu_polcy', 'quota:cpu', 'os:boot', 'hw_rng:x',
                     'trait:SSD', 'resources:GPU', 'hw:numa_cpus.a',
                     'trait:CUSTOM_ssd', 'vmware:x', 'accel:x'):
            self.assertFalse(
                is_accepted(validators.validate, name, 'required'), name)
            self.assertFalse(is_accepted(
                check_ours, keys.EXTRA_SPECS, name, 'required'), name)


class TestProperties(unittest.TestCase):

    def test_known_names_are_names_of_nova(self):
        names = {*image_meta.ImageMetaProps.fields,
                 *image_meta.ImageMetaProps._legacy_property_map}

        self.assertEqual(
            set(), {name for name in names
                    if keys.PROPERTIES.kind(name) is None})

    def test_values_are_validated_as_in_nova(self):
        found = stricter(
            keys.PROPERTIES, image_meta.ImageMetaProps.fields.keys() - LISTS,
            lambda name, value: image_meta.ImageMetaProps.from_dict(
                {name: value}))

        # Nova reads any text that is not true as false, and it does not check
        # the bounds of numbers and the form of masks and sizes.
        self.assertEqual(set(), {
            (name, value) for name, value in found
            if keys.PROPERTIES.kind(name) is not keys.BOOLEAN
            and not value.strip().lstrip('-').isdigit()
            and name not in ('hw_cpu_realtime_mask', 'hw_mem_page_size')})


class TestHints(unittest.TestCase):

    def test_values_are_validated_as_in_nova(self):
        schema = schema_validators._SchemaValidator(servers._hints)
        for name, values in HINTS.items():
            for value in values:
                listed = value if isinstance(value, list) else [value]
                self.assertEqual(
                    is_accepted(schema.validate, {name: value}),
                    is_accepted(check_ours, keys.HINTS, name, listed),
                    (name, value))
