# SPDX-License-Identifier: Apache-2.0
"""The default configuration of Nova and of this package."""

import unittest

import nova.conf

from cellsched_nova import options

CONF = nova.conf.CONF


class TestCase(unittest.TestCase):
    """A test that reads no configuration file of the machine."""

    def setUp(self):
        super().setUp()
        self.addCleanup(CONF.reset)
        options.register_opts(CONF)
        CONF([], project='nova', default_config_files=[],
             default_config_dirs=[])
