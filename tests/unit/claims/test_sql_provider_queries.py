# SPDX-License-Identifier: Apache-2.0
"""Queries of a SQL store return the same as those of the reference."""

import hypothesis
from hypothesis import strategies as st

from cellsched.claims import base as claims
from cellsched.claims import memory
from cellsched.claims import sql
from tests.unit.claims.sql import base
from tests.unit.db import samples

UUIDS = samples.uuids(6)

CLASSES = ('VCPU', 'MEMORY_MB', 'VGPU')

TRAITS = st.frozensets(st.sampled_from(['A', 'B', 'C']))

INVENTORIES = st.dictionaries(st.sampled_from(CLASSES), st.builds(
    claims.Inventory, total=st.integers(0, 8),
    max_unit=st.integers(1, 8), min_unit=st.integers(1, 3),
    step_size=st.integers(1, 2)))

#: What a provider has, what is taken, its traits and its root, if it says so.
PROVIDERS = st.tuples(
    INVENTORIES, st.integers(0, 4),
    st.none() | st.tuples(TRAITS, st.sampled_from(UUIDS[:4])))

QUERIES = st.builds(
    claims.ProviderQuery, st.dictionaries(
        st.sampled_from(CLASSES), st.lists(
            st.integers(1, 6), min_size=1, max_size=2)), TRAITS, TRAITS)


class TestFindProviders(base.TestCase):

    @hypothesis.given(st.lists(PROVIDERS, min_size=1, max_size=6),
                      st.lists(QUERIES, min_size=1, max_size=6))
    def test_sql_and_memory_find_the_same_providers(self, providers, queries):
        database = self.make_database()
        with database.writer() as connection:
            for table in reversed(sql.schema.METADATA.sorted_tables):
                if table.name not in ('feed_lanes', 'claim_group_locks'):
                    connection.execute(table.delete())
        stores = sql.SQLClaims(database), memory.MemoryClaims()
        for store in stores:
            self.fill(store, providers)

        for query in queries:
            found, known = (sorted(store.find_providers(query))
                            for store in stores)
            self.assertEqual(known, found)

    @staticmethod
    def fill(store, providers):
        for uuid, (inventory, taken, reported) in zip(UUIDS, providers):
            large = {name: claims.Inventory(total=9) for name in inventory}
            if taken and large:
                # What shrinks afterwards may have less than is taken.
                store.set_inventory(uuid, large)
                store.claim([claims.Claim(
                    f'of-{uuid[-4:]}', uuid, dict.fromkeys(large, taken))])
            store.set_inventory(uuid, inventory)
            if reported is not None:
                store.set_traits(uuid, *reported)
