# SPDX-License-Identifier: Apache-2.0
"""Creation of schemas."""

from cellsched.db import api
from cellsched.db import cell
from cellsched import embedding
from cellsched.embedding import schemas
from cellsched import exception
from tests.unit.embedding import embedded


class TestCreateSchemas(embedded.EmbeddedTestCase):

    def test_schemas_are_created_and_stay(self):
        conf = self.conf()
        for _ in range(2):
            schemas.create_schemas(conf, [self.url('cell0')])

        parts = embedding.ConductorParts(conf)
        self.addCleanup(parts.close)
        api.SCHEMA.check(parts.database)
        parts.claims.check()
        cell.SCHEMA.check(parts.databases.get(self.url('cell0'), 'cell'))

    def test_conductor_without_schema_is_refused(self):
        self.assertRaises(
            exception.SchemaOutOfDate, embedding.EmbeddedConductor,
            self.conf())
