# SPDX-License-Identifier: Apache-2.0
"""Leaked claims, some of which cannot be released."""

from cellsched.audit import auditor
from cellsched import exception
from tests.unit.audit import base


class TestLeakedClaims(base.TestCase):

    def test_failed_release_does_not_stop_other_releases(self):
        uuids = [self.failed(cell) for cell in ('cell1', 'cell1', 'cell2')]
        for uuid in uuids:
            self.take(uuid, 'b1')
        release = self.claims.release
        for broken in uuids:
            leaked = auditor.LeakedClaims(self.reader, self.repairs)

            def fail(consumers, broken=broken):
                if broken in consumers:
                    raise exception.DatabaseUnreachable(
                        schema='claims', url='sqlite://', reason='as told')
                release(consumers)

            self.claims.release = fail
            leaked.release_leaked()
            self.assertEqual(
                len(self.claims.consumers()) - 1, leaked.release_leaked())

            self.assertEqual([broken], self.claims.consumers())
            self.assertIn(f'[instance: {broken}] Could not release the claim',
                          self.logs.output)
            self.claims.release = release
            self.assertEqual(
                [0, 1], [leaked.release_leaked() for _ in range(2)])
            for uuid in uuids:
                self.take(uuid, 'b1')
