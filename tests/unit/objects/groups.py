# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for groups of resources, and what is refused of them."""

from hypothesis import strategies as st
import os_resource_classes
import os_traits

from cellsched import exception
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.testing import builders
from tests.unit import base

PORT = '20000000-0000-4000-8000-00000000000a'
OTHER = '20000000-0000-4000-8000-00000000000b'

STANDARD = os_traits.HW_CPU_X86_AVX2

SUFFIXES = st.from_regex(request_groups.SUFFIX, fullmatch=True)
UUIDS = st.uuids().map(str)
CLASSES = st.sampled_from([*os_resource_classes.STANDARDS[:4], 'CUSTOM_A',
                           'CUSTOM_B', 'CUSTOM_' + 'Z' * 248])
TRAITS = st.sampled_from([STANDARD, 'COMPUTE_NODE', 'CUSTOM_A', 'CUSTOM_B'])
AMOUNTS = st.dictionaries(
    CLASSES, st.integers(1, resources.AMOUNT_MAX), min_size=1, max_size=4)


@st.composite
def made(draw, **more):
    """Return random groups, sorted by suffix."""
    groups = []
    for suffix in sorted(draw(st.sets(SUFFIXES, min_size=1, max_size=5))):
        traits = draw(st.dictionaries(TRAITS, st.booleans(), max_size=3))
        groups.append(request_groups.RequestGroup(
            suffix, tuple(sorted(draw(AMOUNTS).items())),
            frozenset(each for each in traits if traits[each]),
            frozenset(each for each in traits if not traits[each]),
            **{name: draw(strategy) for name, strategy in more.items()}))
    return tuple(groups)


def parse(extra_specs=None, requested=None, level=None):
    """Return the groups of resources that a request demands."""
    more = {} if level is None else {'request_level_params': level}
    return builders.request(
        extra_specs=extra_specs or {}, requested_resources=requested,
        **more).group_demand()


def envelope(name, **data):
    """Return an object of Nova's as it travels."""
    return {'nova_object.name': name, 'nova_object.namespace': 'nova',
            'nova_object.version': '1.3', 'nova_object.data': data,
            'nova_object.changes': sorted(data)}


def port(**data):
    """Return a group as a port asks for it."""
    return envelope('RequestGroup', **{
        'use_same_provider': True, 'resources': {'VGPU': 1},
        'required_traits': [], 'forbidden_traits': [], 'aggregates': [],
        'forbidden_aggregates': [], 'requester_id': PORT,
        'provider_uuids': [], 'in_tree': None, **data})


def near(*sets):
    """Return parameters that keep groups near each other."""
    return envelope('RequestLevelParams', same_subtree=list(sets))


class TestCase(base.TestCase):

    def refused(self, *args, **kwargs):
        """Return the field and what was expected, of what is refused."""
        error = self.assertRaises(
            exception.InvalidField, parse, *args, **kwargs)
        self.assertTrue(str(error).isprintable(), str(error))
        self.assertLess(len(str(error)), 300)
        return f'{error.where}.{error.field}', error.kwargs.get('expected')
