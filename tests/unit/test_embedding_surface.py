# SPDX-License-Identifier: Apache-2.0
"""The page of the public API says what the modules have."""

import importlib.resources

from cellsched import plugins
from tests.unit import base
from tests.unit import public_surface

#: Kinds of plug-ins whose contract is no class.
WITHOUT_CLASS = {plugins.COLUMNS}


class TestPublicSurface(base.TestCase):

    def setUp(self):
        super().setUp()
        self.page = public_surface.PAGE.read_text(encoding='utf-8')

    def test_page_lists_the_names_of_the_modules(self):
        # python -m tests.unit.public_surface writes the page; what is lost
        # or changed on it, others rely on.
        self.assertEqual(
            public_surface.written(self.page).splitlines(),
            self.page.splitlines())

    def test_change_of_a_signature_is_seen(self):
        changed = self.page.replace('min_count=1', 'min_count=2', 1)

        self.assertNotEqual(changed, self.page)
        self.assertEqual(self.page, public_surface.written(changed))

    def test_every_contract_is_on_the_page(self):
        contracts = {
            cls.__module__ for namespace in plugins.KINDS.values()
            if namespace not in WITHOUT_CLASS
            for plugin in plugins.load_shipped(namespace).values()
            for cls in plugin.__mro__ if cls.__module__.endswith('.base')
            and cls.__module__.startswith('cellsched.')}

        self.assertEqual(7, len(contracts))
        self.assertEqual(
            set(), contracts - set(public_surface.modules(self.page)))

    def test_package_is_marked_as_typed(self):
        self.assertTrue(importlib.resources.files('cellsched').joinpath(
            'py.typed').is_file())
