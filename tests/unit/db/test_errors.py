# SPDX-License-Identifier: Apache-2.0
"""Each error of a driver or a library is one of this project."""

import sqlite3

from oslo_db import exception as db_exc
import psycopg
import psycopg2
import psycopg2.errorcodes
import pymysql
import sqlalchemy as sa

from cellsched.db import errors
from cellsched import exception
from tests.unit import base

URL = 'postgresql+psycopg://me:s3cr3t@there/api'

DRIVERS = (psycopg, psycopg2, pymysql.err, sqlite3)


def translate(error, driver=psycopg, schema='API'):
    return errors.translate(error, schema, URL, driver)


def classes_of(base_class):
    """Return a class and all classes that inherit from it."""
    found = {base_class}
    for each in base_class.__subclasses__():
        found |= classes_of(each)
    return found


class TestTranslate(base.TestCase):

    def test_errors_of_drivers_are_translated(self):
        for driver in DRIVERS:
            for kind in classes_of(driver.Error) | classes_of(driver.Warning):
                for args in ((), (0, ''), ('odd',)):
                    # Some classes require arguments of their own.
                    error = kind.__new__(kind, *args)
                    error.args = args
                    for each in (error, self.wrapped(error, driver),
                                 self.wrapped(error, driver, None),
                                 db_exc.DBError(self.wrapped(error, driver))):
                        ours = translate(each, driver)

                        self.assertIsInstance(ours, exception.DatabaseError)
                        self.assertNotIn("(0, '')", str(ours))
                        self.assertNotEqual('', ours.reason)

    def wrapped(self, error, driver, statement='UPDATE'):
        return sa.exc.DBAPIError.instance(
            statement, {}, error, driver.Error)

    def test_errors_of_libraries_are_translated(self):
        kinds = classes_of(sa.exc.SQLAlchemyError) | {
            each for each in vars(db_exc).values()
            if isinstance(each, type) and issubclass(each, Exception)
            and each.__module__ == db_exc.__name__}
        self.assertIn(sa.exc.ResourceClosedError, kinds)
        self.assertIn(db_exc.DBInvalidUnicodeParameter, kinds)
        for kind in kinds:
            if issubclass(kind, sa.exc.DBAPIError):
                error = kind('UPDATE', {}, Exception('odd'))
            elif issubclass(kind, sa.exc.StatementError):
                error = kind('odd', 'UPDATE', {}, ValueError('odd'))
            elif issubclass(kind, db_exc.CausedByException):
                error = kind.__new__(kind)
                error.table = 'things'
                db_exc.CausedByException.__init__(error, 'odd')
            else:
                error = kind.__new__(kind)
                error.args = ('odd',)

            self.assertIsInstance(
                translate(error), exception.DatabaseError, kind)

    def test_errors_outside_of_databases_are_not_translated(self):
        for error in (KeyError(1205), ValueError(1020), OSError(2013),
                      exception.InstanceNotFound(uuid='a'),
                      KeyboardInterrupt()):
            self.assertIsNone(translate(error))

    def test_state_of_postgresql_decides(self):
        for states, kind in (
                (('40001', '40P01'), exception.TransactionLost),
                (('55P03', '57014'), exception.DatabaseBusy),
                (('08000', '08003', '08006', '08P01', '25006', '25P03',
                  '25P04', '26000', '42P05', '57P01', '57P02', '57P03',
                  '57P04', '57P05'), exception.ConnectionLost),
                (('40003', '42703', '53100', '58030', 'XX000', '25P02'),
                 exception.DatabaseError)):
            for state in states:
                for driver, error in self.with_state(state):
                    ours = translate(error, driver)

                    self.assertIs(kind, type(ours), state)
                    self.assertEqual(
                        kind is exception.ConnectionLost,
                        errors.discards(errors.of_driver(error), driver))

    def with_state(self, state):
        """Return a state's errors of both drivers, plain and wrapped."""
        for driver, error in (
                (psycopg, psycopg.errors.lookup(state)('odd')),
                (psycopg2, psycopg2.errors.lookup(state)('odd'))):
            if driver is psycopg2:
                error = type('Error', (type(error),), {'pgcode': state})('odd')
            yield driver, error
            wrapped = self.wrapped(error, driver)
            yield driver, wrapped
            yield driver, db_exc.DBError(wrapped)

    def test_number_of_mariadb_decides(self):
        read_only = ('The MariaDB server is running with the --read-only '
                     'option so it cannot execute this statement')
        secure = ('The MariaDB server is running with the --secure-file-priv '
                  'option so it cannot execute this statement')
        for numbers, text, kind in (
                ((1020, 1213), 'odd', exception.TransactionLost),
                ((1205, 1317, 1969, 3024), 'odd', exception.DatabaseBusy),
                ((1047, 1053, 1180, 1792, 1836, 1927, 2006, 2013, 2055, 4031),
                 'odd', exception.ConnectionLost),
                ((1290,), read_only, exception.ConnectionLost),
                ((1290,), read_only.replace('--r', '--super-r'),
                 exception.ConnectionLost),
                ((1290,), secure, exception.DatabaseError),
                ((1021, 1054, 1064, 1114), 'odd', exception.DatabaseError)):
            for number in numbers:
                error = pymysql.err.OperationalError(number, text)
                error.sqlstate = '42000'
                for each in error, self.wrapped(error, pymysql.err):
                    ours = translate(each, pymysql.err)

                    self.assertIs(kind, type(ours), number)
                    self.assertIn(f'{number}', ours.reason)
                self.assertEqual(
                    kind is exception.ConnectionLost,
                    errors.discards(error, pymysql.err))

    def test_outdated_plan_is_a_lost_transaction_of_a_single_connection(self):
        error = psycopg.errors.FeatureNotSupported(
            'cached plan must not change result type')
        other = psycopg.errors.FeatureNotSupported('not yet')

        self.assertIs(exception.TransactionLost, type(translate(error)))
        self.assertTrue(errors.discards(error, psycopg))
        self.assertIs(exception.DatabaseError, type(translate(other)))
        self.assertFalse(errors.discards(other, psycopg))

    def test_error_of_a_connect_has_no_lost_connection(self):
        for driver, error in (
                (psycopg, psycopg.OperationalError('connection refused')),
                (pymysql.err, pymysql.err.OperationalError(2003, 'refused')),
                (pymysql.err, pymysql.err.OperationalError(1040, 'many'))):
            ours = translate(self.wrapped(error, driver, None), driver)

            self.assertIs(exception.DatabaseUnreachable, type(ours))

    def test_constraint_is_not_taken_for_a_failure(self):
        for driver, error in (
                (psycopg, psycopg.errors.UniqueViolation('odd')),
                (psycopg2, psycopg2.errors.ForeignKeyViolation('odd')),
                (pymysql.err, pymysql.err.IntegrityError(1062, 'odd')),
                (sqlite3, sqlite3.IntegrityError('odd'))):
            wrapped = self.wrapped(error, driver)
            for each in (error, wrapped, db_exc.DBDuplicateEntry(
                    ['name'], inner_exception=wrapped)):
                ours = translate(each, driver)

                self.assertIs(exception.ConstraintViolated, type(ours))
                self.assertTrue(errors.is_mistake(ours))

    def test_missing_table_names_its_command(self):
        for driver, error in (
                (psycopg, psycopg.errors.UndefinedTable(
                    'relation "things" does not exist\nLINE 1: …')),
                (pymysql.err, pymysql.err.ProgrammingError(
                    1146, "Table 'api.things' doesn't exist")),
                (sqlite3, sqlite3.OperationalError('no such table: things'))):
            error.sqlite_errorcode = 1
            for each in error, self.wrapped(error, driver):
                ours = translate(each, driver)

                self.assertIsInstance(ours, exception.SchemaOutOfDate)
                self.assertIn('table things', str(ours))
                self.assertIn('cellsched-manage api_db sync', str(ours))

    def test_reason_is_a_single_line_without_the_password(self):
        ours = translate(psycopg.OperationalError(
            'no entry for me, s3cr3t\nsecond line'))

        self.assertEqual('no entry for me, ****', ours.reason)

    def test_error_without_a_text_is_described(self):
        self.assertEqual(
            'the connection was closed',
            translate(pymysql.err.InterfaceError(0, ''), pymysql.err).reason)
        self.assertIn(
            'OperationalError', translate(psycopg.OperationalError()).reason)
