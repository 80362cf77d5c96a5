# SPDX-License-Identifier: Apache-2.0
"""Claims in SQL, on PostgreSQL with psycopg 3.

Each statement is prepared at its first execution; by default psycopg prepares
frequent statements only.
"""

from cellsched.testing.suite import claim_groups
from cellsched.testing.suite import claim_races
from cellsched.testing.suite import claims
from tests.integration import base
from tests.integration.claims import test_at_once
from tests.integration.claims import test_sql
from tests.integration import servers
from tests import profile
from tests.unit.claims import model


class ByPsycopg:

    parameters = '&prepare_threshold=0'

    by_driver = staticmethod(servers.by_psycopg)


@profile.full_only(
    'a second driver; the rules are proven with psycopg2')
class TestRaces(ByPsycopg, test_sql.OnPostgreSQL, model.ModelTests,
                claim_groups.ClaimGroups, claims.ClaimOwners,
                claim_races.ClaimRaces, base.TestCase):
    """A part of the suite; the other driver runs all of it."""


@profile.full_only(
    'a second driver; the rules are proven with psycopg2')
class TestSerializable(ByPsycopg, test_sql.OnPostgreSQL,
                       claim_groups.ClaimGroups, claim_races.ClaimRaces,
                       base.TestCase):

    isolation = 'serializable'


@profile.full_only(
    'a second driver; the rules are proven with psycopg2')
class TestAtOnce(ByPsycopg, test_at_once.TestAtOnce):
    pass
