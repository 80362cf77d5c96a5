# SPDX-License-Identifier: Apache-2.0
"""One record of the claim store that cannot be read stops no build."""

import io
from typing import Any

from cellsched.cli import app
from tests.functional import base as stories
from tests.integration import base
from tests.integration import etcd


class TestUnreadableKeys(base.TestCase, stories.TestCase):
    """A deployment whose claims are in etcd."""

    def setUp(self) -> None:
        super().setUp()
        self.etcd = self.part_of(etcd.Etcd)
        url = self.etcd.url('claims')
        self.prefix = '/' + url.rpartition('/')[2]
        self.client = self.etcd.server.client()
        self.deploy({'cell1': ['a1', 'a2']},
                    claims={'store': 'etcd', 'connection': url})

    def put(self, key: str, value: str) -> str:
        """Write a key as an operator does; return the earlier value."""
        path = f'{self.prefix}/{key}'
        [(before)] = self.client.get(path)
        self.client.put(path, value)
        return before.decode()

    def audit(self, *args: str) -> tuple[int, str]:
        out = io.StringIO()
        code = app.Manage(out, out).run([
            f'--config-file={self.world.directory}/etc/api.conf', 'audit',
            '--settle', '0', *args])
        return code, out.getvalue()

    def test_unreadable_provider_is_skipped_until_readable(self) -> None:
        [first] = self.built()
        key = f'p/{self.provider("cell1", "a1")}'
        for junk in 'junk', '{"a": 5}', '{"i": {"VCPU": ["x"]}, "v": 2}':
            right = self.put(key, junk)

            found = self.built(min_count=3, max_count=3)

            self.assertEqual({('ACTIVE', 'a2')}, {
                (each.status, each.host) for each in found})
            code, text = self.audit('--fix')
            self.assertEqual(1, code, text)
            self.assertIn(key, text)
            self.assertNotIn('unexpected', text)
            for each in found:
                self.delete(each.uuid)
            self.gone(*(each.uuid for each in found))

            # It is back without a restart.
            self.put(key, right)
            self.until(lambda: self.is_used('a1'), 'a1 gets servers again')
        self.assertEqual('ACTIVE', self.get(first.uuid).status)

    def is_used(self, host: str) -> bool:
        found: list[Any] = self.built(min_count=4, max_count=4)
        for each in found:
            self.delete(each.uuid)
        self.gone(*(each.uuid for each in found))
        return host in {each.host for each in found}

    def test_consumer_is_named_by_the_audit(self) -> None:
        [first], [second] = self.built(), self.built()
        right = self.put(f'c/{first.uuid}', '{"a": 5}')

        code, text = self.audit('--fix')

        self.assertEqual(1, code, text)
        self.assertIn(f'c/{first.uuid}', text)
        self.assertNotIn('unexpected', text)
        self.delete(second.uuid)
        self.gone(second.uuid)
        self.put(f'c/{first.uuid}', right)
        self.assertEqual(0, self.audit()[0])
