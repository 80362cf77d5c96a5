# SPDX-License-Identifier: Apache-2.0
"""The tables of claims and their history."""

from alembic import autogenerate
from alembic.runtime import migration
import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import schema
from tests.unit.claims.sql import base


class TestSchema(base.TestCase):

    def test_tables_and_history_agree(self):
        with self.make_database().reader() as connection:
            context = migration.MigrationContext.configure(
                connection, opts={
                    'version_table': schema.SCHEMA.version_table,
                    'compare_type': True})
            self.assertEqual([], autogenerate.compare_metadata(
                context, schema.METADATA))

    def test_feed_has_its_lanes(self):
        with self.make_database().reader() as connection:
            lanes = connection.execute(sa.select(schema.FEED.table)).all()

        self.assertEqual([(lane, 0) for lane in range(schema.LANES)], lanes)

    def test_texts_sort_by_bytes_on_postgresql(self):
        url = sa.engine.make_url('postgresql://')
        text = str(sa.schema.CreateTable(schema.allocations).compile(
            dialect=url.get_dialect(_is_async=False)()))

        self.assertEqual(2, text.count('VARCHAR(36) COLLATE "C"'), text)

    def test_claim_without_a_project_has_none(self):
        database = self.make_database()
        with database.writer() as connection:
            connection.execute(sa.text(
                'INSERT INTO allocations (consumer, ordinal, provider, '
                "resource_class, amount) VALUES ('c', 0, 'p', 'VCPU', 1)"))

        self.assertEqual({'c': [claims.Claim('c', 'p', {'VCPU': 1})]},
                         sql.SQLClaims(database).claims_of(['c']))
