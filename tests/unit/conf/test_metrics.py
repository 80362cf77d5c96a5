# SPDX-License-Identifier: Apache-2.0
from oslo_config import cfg

from cellsched.conf import metrics
from tests.unit import base


class TestMetrics(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'a.conf'

    def setting(self, text):
        self.path.write_text(f'[metrics]\nweight_setting = {text}\n')
        conf = cfg.ConfigOpts()
        conf.register_opts(metrics.OPTS, group='metrics')
        conf(['--config-file', str(self.path)], default_config_dirs=[])
        return conf.metrics.weight_setting

    def test_setting_is_pairs_of_names_and_ratios(self):
        self.assertEqual([], self.setting(''))
        self.assertEqual(
            [('cpu.percent', 1.0), ('io', -1.3), ('io', 2.0)],
            self.setting('cpu.percent=1, io = -1.3,io=2'))

    def test_value_without_name_and_ratio_is_refused(self):
        for text in ('cpu', '=1', 'cpu=', 'cpu=x', 'cpu=nan', 'cpu=1e999',
                     'a=1,b'):
            error = self.assertRaises(
                cfg.ConfigFileValueError, self.setting, text)
            self.assertIn('name=ratio', str(error))
