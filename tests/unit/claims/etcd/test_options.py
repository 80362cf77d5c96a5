# SPDX-License-Identifier: Apache-2.0
"""The URL of the store, and its options."""

import pathlib
import random
import re
import types

from oslo_config import cfg

from cellsched import claims
from cellsched.claims import etcd
from cellsched.claims.etcd import options
from cellsched import clock
from cellsched.conf import opts
from cellsched import exception
from tests.unit import base
from tests.unit import tidy

PAGE = tidy.ROOT / 'doc/source/admin/claim-stores/etcd.rst'


class TestConnection(base.TestCase):

    def test_members_and_prefix_are_read(self):
        for text, members, prefix, tls in (
                ('etcd://a', [('a', 2379)], '/cellsched/', False),
                ('etcds://a:1,b:2/', [('a', 1), ('b', 2)], '/cellsched/',
                 True),
                ('etcd://[::1]:7,10.0.0.1/x/y/', [
                    ('::1', 7), ('10.0.0.1', 2379)], '/x/y/', False)):
            self.assertEqual(
                options.Endpoints(tuple(members), prefix, tls),
                options.place(text))

    def test_other_connections_are_invalid_and_not_quoted(self):
        for text in (None, '', 'etcd://', 'etcd:///x', 'mysql://a/b',
                     'etcd://me:secret@a/b', 'etcd://a:0', 'etcd://a:x',
                     'etcd://a,,b', 'etcd://a?secret=1', 'etcd://a:99999'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, options.place, text)
            self.assertIn('[claims] connection', str(error))
            self.assertNotIn('secret', str(error))


class TestPage(base.TestCase):

    def configuration(self):
        """Return the configuration that the page shows."""
        text = re.search(r'code-block:: ini\n\n((?:(?:   .*)?\n)+)',
                         PAGE.read_text())[1]
        directory = self.temporary_directory()
        for name in re.findall(r'/etc/cellsched/(.*\.pem)', text):
            (directory / name).touch()
        path = directory / 'cellsched.conf'
        path.write_text(re.sub('^   ', '', text, flags=re.M).replace(
            '/etc/cellsched', str(directory)))
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf(['--config-file', str(path)], default_config_files=[])
        return conf

    def test_example_makes_a_store(self):
        conf = self.configuration()

        store = claims.load(conf, types.SimpleNamespace(
            clock=clock.Clock(), random=random.Random(), locks=None))

        self.assertIsInstance(store, etcd.EtcdClaims)
        self.assertEqual('etcd.pem', pathlib.Path(conf.etcd.certfile).name)

    def test_password_is_secret(self):
        self.assertEqual({'password'}, {
            opt.name for opt in options.opts() if opt.secret})
