# SPDX-License-Identifier: Apache-2.0
"""A configuration as one of several services of a process sees it."""

from oslo_config import cfg

from cellsched.standalone import deployment
from tests.unit import base


class TestView(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf.register_opts(
            [cfg.StrOpt('host', default='all'), cfg.IntOpt('workers')])
        self.conf.register_opts(
            [cfg.IntOpt('vcpus', default=8), cfg.IntOpt('disk', default=9)],
            group='virt')
        self.view = deployment.view(
            self.conf, {'DEFAULT': {'host': 'one'}, 'virt': {'vcpus': 3}})

    def test_overridden_options_precede_the_configuration(self):
        self.assertEqual(('one', 'one', 3, 3, 3), (
            self.view.host, self.view['host'], self.view.virt.vcpus,
            self.view['virt']['vcpus'], self.view.virt['vcpus']))

    def test_options_without_an_override_follow_the_configuration(self):
        self.conf.set_override('workers', 4)
        self.conf.set_override('disk', 7, 'virt')

        self.assertEqual((4, 7, 7), (
            self.view.workers, self.view.virt.disk, self.view['virt']['disk']))
        self.assertEqual(('all', 8), (self.conf.host, self.conf.virt.vcpus))

    def test_view_of_a_view_has_the_values_of_both(self):
        view = deployment.view(self.view, {'virt': {'disk': 7}})

        self.assertEqual((self.view.virt.vcpus, 7), (
            view.virt.vcpus, view.virt.disk))

    def test_view_has_the_names_of_the_configuration(self):
        self.assertEqual([*self.conf], [*self.view])
        self.assertEqual([*self.conf.virt], [*self.view.virt])
        self.assertEqual((len(self.conf), len(self.conf.virt)),
                         (len(self.view), len(self.view.virt)))
        self.assertIn('host', self.view)
        self.assertIn('disk', self.view.virt)
        self.assertNotIn('vcpus', self.view)

    def test_unknown_name_is_the_error_of_oslo_config(self):
        for read in (lambda: self.view.nothing, lambda: self.view['nothing'],
                     lambda: self.view.virt.nothing):
            self.assertRaises(cfg.NoSuchOptError, read)

    def test_later_options_are_in_both_views(self):
        self.view.register_opts([cfg.StrOpt('late', default='x')])

        self.assertEqual(('x', 'x'), (self.conf.late, self.view.late))
