# SPDX-License-Identifier: Apache-2.0
"""The configuration of Nova and of this package, as it is by default."""

import unittest

import nova.conf

from cellsched_nova import options

CONF = nova.conf.CONF


class TestCase(unittest.TestCase):
    """A test in which no file of this machine says otherwise."""

    def setUp(self):
        super().setUp()
        self.addCleanup(CONF.reset)
        options.register_opts(CONF)
        CONF([], project='nova', default_config_files=[],
             default_config_dirs=[])
