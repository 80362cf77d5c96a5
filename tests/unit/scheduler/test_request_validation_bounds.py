# SPDX-License-Identifier: Apache-2.0
"""Bounds of requests are those of the options."""

from cellsched.conf import loader
from cellsched.scheduler import request_validation
from tests.unit import base


class TestBounds(base.TestCase):

    def test_each_option_is_the_bound_of_its_name(self):
        path = self.temporary_directory() / 'conf'
        path.write_text('[scheduler]\nmax_instances_per_request = 3\n'
                        'max_names_per_request = 4\n'
                        'max_values_per_list = 5\n')
        conf = loader.load(files=[str(path)], dirs=[])

        self.assertEqual(
            request_validation.RequestBounds(
                instances_max=3, names_max=4, values_max=5),
            request_validation.bounds(conf.scheduler))
