# SPDX-License-Identifier: Apache-2.0
"""The driver that is configured."""

from oslo_config import cfg

from cellsched.conf import enabled
from cellsched.conf import quota as quota_conf
from cellsched import exception
from cellsched import plugins
from cellsched.quota import base as quota
from cellsched.quota import db
from cellsched.quota import noop
from tests.unit import base


class TestLoad(base.TestCase):

    def load(self, **values):
        conf = cfg.ConfigOpts()
        conf.register_opts(quota_conf.OPTS, group='quota')
        conf([], default_config_files=[], default_config_dirs=[])
        for name, value in values.items():
            conf.set_override(name, value, 'quota')
        return enabled.make(
            conf, plugins.QUOTA, quota.QuotaDriver, conf, None)

    def test_default_driver_is_the_database_driver(self):
        self.assertIsInstance(self.load(), db.DbQuotaDriver)

    def test_drivers_have_novas_names(self):
        for name in 'NoopQuotaDriver', 'nova.quota.NoopQuotaDriver':
            self.assertIsInstance(
                self.load(driver=name), noop.NoopQuotaDriver)

    def test_unknown_driver_is_refused_with_the_drivers(self):
        exc = self.assertRaises(
            exception.PluginNotFound, self.load,
            driver='nova.quota.PlacementQuotaDriver')

        self.assertIn('DbQuotaDriver, NoopQuotaDriver, UnifiedLimitsDriver',
                      str(exc))
