# SPDX-License-Identifier: Apache-2.0
"""Queries in Cassandra return the same as those of the reference."""

import hypothesis
from hypothesis import strategies as st

from cellsched.claims import memory
from tests.unit import base as tests
from tests.unit.claims.cassandra import base
from tests.unit.claims import test_sql_provider_queries


class TestFindProviders(tests.TestCase):

    @hypothesis.given(
        st.lists(test_sql_provider_queries.PROVIDERS, min_size=1, max_size=6),
        st.lists(test_sql_provider_queries.QUERIES, min_size=1, max_size=6))
    def test_cassandra_and_memory_find_the_same_providers(
            self, providers, queries):
        stores = base.make_store(base.make_model()), memory.MemoryClaims()
        for store in stores:
            test_sql_provider_queries.TestFindProviders.fill(store, providers)

        for query in queries:
            found, known = (sorted(store.find_providers(query))
                            for store in stores)
            self.assertEqual(known, found)
