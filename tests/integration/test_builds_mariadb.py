# SPDX-License-Identifier: Apache-2.0
"""The life of builds where every database is on MariaDB."""

from cellsched.standalone import deployment
from tests.functional import base as stories
from tests.integration import base
from tests.integration import mariadb
from tests import profile

#: A name with a character that takes four bytes.
NAME = '\U0001f600 web'


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestBuilds(stories.TestCase, base.TestCase):

    def setUp(self):
        super().setUp()
        self.database_url = self.part_of(mariadb.MariaDB).url
        self.deploy({'cell1': [deployment.DeployedHost('a1', vcpus=3)],
                     'cell2': [deployment.DeployedHost('b1', vcpus=2)]},
                    quota={'instances': 20})

    def test_servers_are_built_listed_and_deleted(self):
        # However they race, as many are built as fit.
        found = self.settled([*self.create(NAME, min_count=1, max_count=4),
                              *(uuid for _ in range(3)
                                for uuid in self.create(NAME))])

        built = [each for each in found if each.status == 'ACTIVE']
        buried = [each for each in found if each.status == 'ERROR']
        self.assertEqual((5, 2), (len(built), len(buried)))
        self.assertEqual({'cell1', 'cell2'}, {each.cell for each in built})
        for each in found:
            self.assertIn(NAME, each.name)
            self.assertIsIn(each.cell, each.uuid)
        for each in buried:
            self.assertEqual('cell0', each.cell)
            self.assertIn('VCPU', each.reason)
        self.assertEqual({each.uuid for each in found}, {*self.listed()})
        self.assertClaimsMatch()

        for each in found:
            self.delete(each.uuid)
        self.gone(*(each.uuid for each in found))
        for each in built:
            self.assertLeftNothing(each.uuid)
        self.assertClaimsMatch()
