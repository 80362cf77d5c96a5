# SPDX-License-Identifier: Apache-2.0
"""The suite of virtualisation drivers finds what is wrong."""

import itertools

from oslo_config import cfg

from cellsched.objects import resources
from cellsched.testing import clock
from cellsched.testing.suite import virt as suite
from cellsched.virt import base as virt
from cellsched.virt import fake
from tests.unit import base
from tests.unit.testing.suite import runner

NUMBERS = itertools.count()


class Suite(suite.DriverSuite):
    """Is the suite over a driver that is made like the fake one."""

    def make_driver(self):
        conf = cfg.ConfigOpts()
        conf.register_opts(fake.FakeDriver.opts(), group='fake_virt')
        conf.register_opt(cfg.StrOpt('host', default='host1'))
        conf([], default_config_files=[], default_config_dirs=[])
        return self.plugin(conf, clock.FakeClock())


def having(**fields):
    """Return what says that the node has only this."""
    said = {'vcpus': 1, 'memory_mb': 1, 'local_gb': 1, **fields}
    return lambda self: {'host1': virt.NodeResources(**said)}


class TestDriverSuite(base.TestCase):

    def assertFinds(self, expected, **wrong):
        """Check which test finds what is wrong."""
        kind = type('Wrong', (fake.FakeDriver,),
                    {'__doc__': 'Is wrong.'} | wrong)
        self.assertIn(expected, runner.failures(Suite, kind))

    def test_sound_driver_passes(self):
        self.assertEqual(set(), runner.failures(Suite, fake.FakeDriver))

    def test_uninstalled_driver_is_detected(self):
        self.assertFinds('test_entry_point_names_a_driver')

    def test_driver_or_option_without_documentation_is_found(self):
        self.assertFinds('test_class_has_documentation', __doc__=None)
        self.assertFinds('test_options_have_help', opts=classmethod(
            lambda cls: [cfg.StrOpt('x')]))

    def test_invalid_node_is_detected(self):
        for nodes in (lambda self: {}, lambda self: {'host1': None},
                      having(vcpus=-1), having(memory_mb=1.5),
                      having(inventories={
                          'CUSTOM_X': resources.Inventory(-1)})):
            self.assertFinds('test_node_reports_its_resources', nodes=nodes)

    def test_invalid_child_provider_is_detected(self):
        for child in (virt.ChildProvider(parent='nobody'),
                      virt.ChildProvider(traits=frozenset({'small'})),
                      virt.ChildProvider({'GPU': resources.Inventory(1)})):
            self.assertFinds('test_child_providers_are_below_their_node',
                             nodes=having(providers={'gpu': child}))

    def test_changing_names_are_detected(self):
        self.assertFinds(
            'test_names_of_nodes_and_providers_are_stable',
            nodes=lambda self: having(
                providers={str(next(NUMBERS)): virt.ChildProvider()})(self))

    def test_ineffective_spawn_or_destroy_is_detected(self):
        for method in 'spawn', 'destroy':
            self.assertFinds('test_server_runs_until_its_destruction',
                             **{method: lambda *args: None})

    def test_duplicate_spawn_is_detected(self):
        def spawn(self, instance, node):
            self.running = [*getattr(self, 'running', ()), instance.uuid]

        self.assertFinds(
            'test_spawn_of_a_running_server_has_no_effect', spawn=spawn,
            list_instances=lambda self: getattr(self, 'running', []))

    def test_failing_destroy_of_a_missing_server_is_detected(self):
        def destroy(self, instance):
            self.list_instances().remove(instance.uuid)

        self.assertFinds('test_destroy_of_a_missing_server_succeeds',
                         destroy=destroy)

    def test_inventory_reduced_by_running_servers_is_detected(self):
        def nodes(self):
            left = 4 - len(self.list_instances())
            child = virt.ChildProvider({'VGPU': resources.Inventory(left)})
            return having(providers={'gpu': child})(self)

        self.assertFinds(
            'test_running_servers_do_not_reduce_inventories', nodes=nodes)

    def test_ineffective_preparation_or_revert_is_detected(self):
        for method in 'list_prepared', 'revert_migration':
            self.assertFinds(
                'test_server_moves_with_its_disks_or_comes_back',
                **{method: lambda *args: []})
