# SPDX-License-Identifier: Apache-2.0
"""A test with the database of a cell."""

from cellsched.testing import databases
from tests.unit.db.api import base


class TestCase(base.TestCase):

    def make_database(self):
        return self.useFixture(databases.CellDatabase()).database
