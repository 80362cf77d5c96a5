# SPDX-License-Identifier: Apache-2.0
"""Loading the claim store that is configured."""

import random

from cellsched import claims
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.claims import sql
from cellsched import clock
from cellsched.conf import loader
from cellsched.db import session
from cellsched import exception
from tests.unit import base


class Parts:
    """What a process shares."""

    databases = session.Databases(clock.Clock())
    random = random.Random(1)


class TestLoad(base.TestCase):

    def load(self, **options):
        path = self.temporary_directory() / 'cellsched.conf'
        path.write_text('[claims]\n' + ''.join(
            f'{name} = {value}\n' for name, value in options.items()))
        return claims.load(loader.load(files=[str(path)], dirs=[]), Parts)

    def test_configured_store_is_loaded(self):
        self.assertIsInstance(self.load(store='memory'), memory.MemoryClaims)

    def test_default_is_sql(self):
        store = self.load(connection='sqlite:////nowhere/claims.db')

        self.assertIsInstance(store, sql.SQLClaims)

    def test_unknown_store_is_refused_with_the_installed_stores(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.load, store='stone')

        self.assertIn('memory, placement, sql', str(error))

    def test_store_without_a_required_capability_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.load, store='memory',
            require='atomic, shared, Durable')

        self.assertEqual('[claims] store', error.field)
        self.assertIn('shared and durable', error.detail)
        self.assertNotIn('atomic', error.detail)

    def test_store_with_the_required_capabilities_is_loaded(self):
        self.assertIsInstance(
            self.load(store='memory', require='ATOMIC'), memory.MemoryClaims)
        self.assertIsInstance(
            self.load(connection='sqlite:////nowhere/claims.db',
                      require='atomic, durable, shared'), sql.SQLClaims)

    def test_unknown_capability_is_refused_with_the_capabilities(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.load, store='memory',
            require='fast')

        self.assertEqual('[claims] require', error.field)
        known = ', '.join(trait.value for trait in claims_base.Capability)
        self.assertEqual(
            f"unknown capability in 'fast'; expected some of {known}",
            error.detail)
