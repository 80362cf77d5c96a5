# SPDX-License-Identifier: Apache-2.0
"""IsolatedHostsFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import isolated_hosts
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


def request(image):
    return builders.request(image=image and {'id': image, 'properties': {}})


class TestIsolatedHostsFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = isolated_hosts.IsolatedHostsFilter

    def assertVerdicts(self, expected, image, **options):
        names = {'isolated_images': ['secret'], 'isolated_hosts': ['host1']}
        with self.subTest(image=image, options=options):
            self.assertKeeps(expected, builders.hosts(3), request(image),
                             **{**names, **options})

    def test_images_and_hosts_are_for_each_other(self):
        self.assertVerdicts([True, False, False], 'secret')
        self.assertVerdicts([False, True, True], 'other')
        self.assertVerdicts([False, True, True], None)
        self.assertVerdicts([False, False, False], 'secret', isolated_hosts=[])
        self.assertVerdicts([True, True, True], 'other', isolated_hosts=[])
        self.assertVerdicts([False, True, True], 'secret', isolated_images=[])

    def test_hosts_may_be_free_for_all_images(self):
        free = {'restrict_isolated_hosts_to_isolated_images': False}

        self.assertVerdicts([True, False, False], 'secret', **free)
        self.assertVerdicts([True, True, True], 'other', **free)
        self.assertVerdicts([True, True, True], None, **free)
        self.assertVerdicts([True, True, True], 'secret', isolated_images=[],
                            **free)

    def test_no_image_is_isolated_by_default(self):
        self.assertFalse(builders.plugin(self.plugin).applies(request('x')))

    def test_image_without_an_id_is_not_isolated(self):
        asked = builders.request(image={'os_type': 'linux'})
        asked.image.id = None

        self.assertKeeps([False, True], builders.hosts(2), asked,
                         isolated_images=['secret'], isolated_hosts=['host1'])

    @hypothesis.given(
        hosts=strategies.hosts(),
        image=st.sampled_from([None, 'a', 'b']),
        images=st.lists(st.sampled_from(['a', 'c']), max_size=2),
        names=st.lists(st.sampled_from(['alpha', 'gamma', 'beta'])),
        restrict=st.booleans())
    def test_column_verdict_equals_row_verdicts(
            self, hosts, image, images, names, restrict):
        def passes(host, request):
            if restrict:
                return (image in images) == (host.host in names)
            return image not in images or host.host in names

        self.assertAgrees(
            passes, hosts, request(image), isolated_images=images,
            isolated_hosts=names,
            restrict_isolated_hosts_to_isolated_images=restrict)
