# SPDX-License-Identifier: Apache-2.0
"""Pages of servers whose names differ in one character."""

from cellsched.db.cell import instance_list
from cellsched.db.cell import instances
from cellsched.listing import query
from tests.integration.db import base
from tests.unit.db import samples

#: Names that a collation of a server may take for equal, or sort by language
#: or by UTF-16.
NAMES = (
    'a', 'a ', 'a  ', 'a\t', 'a\x01', 'a\xa0', 'A', 'A ', 'á', 'a\u0301', 'b',
    'B', 'ss', 'ß', 'ı', 'i', ' a', '-a', 'a-b', 'ab', '\ue000', '\uffee',
    '\U0001f600', '\U0001f601', '', ' ', 'x' * 254 + 'a', 'x' * 254,
    '\U0001f600' * 254 + 'b', '\U0001f600' * 254 + 'a')


class TestOnPostgreSQL(base.CellTestCase):

    def setUp(self):
        super().setUp()
        self.make_database()
        # Ties are broken by uuids, which are in the opposite order.
        uuids = sorted(samples.uuids(len(NAMES)), reverse=True)
        self.names = dict(zip(uuids, sorted(NAMES)))
        with self.database.writer() as connection:
            instances.create(connection, [
                samples.instance(uuid, display_name=name)
                for uuid, name in self.names.items()], samples.NOW)

    def pages(self, order, limit):
        """Return the names of all pages."""
        found, after = [], None
        with self.database.reader() as connection:
            while rows := instance_list.page(
                    connection, instance_list.InstanceFilter(), order, after,
                    limit):
                after = instance_list.sort_values(order, rows)[-1]
                found += [row.display_name for row in rows]
                self.assertLessEqual(len(found), len(NAMES))
        return found

    def test_pages_have_each_server_in_the_order_of_python(self):
        for way, limit in ('asc', 1), ('desc', 7):
            order = query.order(['display_name'], [way])

            self.assertEqual(sorted(NAMES, reverse=way == 'desc'),
                             self.pages(order, limit))

    def test_name_matches_a_trailing_space(self):
        with self.database.reader() as connection:
            rows = instance_list.page(
                connection, instance_list.InstanceFilter(name='a '),
                query.order())

        self.assertEqual({'a ', 'a  ', 'A '}, {
            row.display_name for row in rows})


class TestOnMariaDB(base.OnMariaDB, TestOnPostgreSQL):
    pass
