# SPDX-License-Identifier: Apache-2.0
"""The embedded conductor: what it is made of, and what it closes."""

import threading

from cellsched.claims import memory
from cellsched import embedding
from cellsched.embedding import conductor
from cellsched import exception
from tests.unit.embedding import embedded


class TestEmbeddedConductor(embedded.EmbeddedTestCase):

    def test_periodic_functions_are_as_often_as_configured(self):
        made = self.make(conductor={
            'build_lease': 6, 'recovery_interval': 3,
            'cast_check_interval': 4, 'claims_check_interval': 5})

        self.assertEqual([2, 3, 4, 5], [
            spacing_s for _, spacing_s in made.periodic])
        for function, _ in made.periodic:
            function()

    def test_compute_versions_are_asked_for_where_that_is_configured(self):
        made = self.make(upgrade_levels={'compute': 'auto'})

        self.assertEqual(5, len(made.periodic))

    def test_nothing_is_left_when_it_is_closed(self):
        before = threading.enumerate()
        with self.make() as made:
            made.mappings.create_cell(
                'cell1', f'local://{self.world}/cell1', self.url('cell1'))
            for function, _ in made.periodic:
                function()

        for thread in threading.enumerate():
            if thread not in before:
                thread.join(60)
        self.assertEqual([], [
            each for each in threading.enumerate() if each not in before])

    def test_parts_that_are_handed_over_stay_open(self):
        self.make()
        claims = memory.MemoryClaims()
        parts = embedding.ConductorParts(self.conf(), claims=claims)
        self.addCleanup(parts.close)

        made = conductor.EmbeddedConductor(parts.conf, parts)
        made.close()

        self.assertIs(claims, made.parts.claims)
        self.assertEqual([], made.mappings.cells())

    def test_database_that_is_not_named_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, conductor.EmbeddedConductor,
            embedding.configuration('', f'local://{self.world}/api'))

        self.assertEqual('[api_database] connection', error.field)

    def test_run_of_what_nobody_accepted_does_nothing(self):
        self.make().run(None, ['11111111-1111-4111-8111-111111111111'])
