# SPDX-License-Identifier: Apache-2.0
"""The rules of the house, kept by reading the source.

Each check of ``tidy`` is run over the tree, and over a source that it must
complain of.
"""

import configparser
import importlib
import inspect
import subprocess

import oslo_messaging

from tests.unit import base
from tests.unit import library_names
from tests.unit import tidy

CHECKS_EVERYWHERE = (
    tidy.global_configuration, tidy.globals_written, tidy.headless,
    tidy.long_functions, tidy.long_plugins, tidy.signed_comments,
    tidy.underscored_aliases, tidy.vague_names,
)
CHECKS_OF_INTEGRATIONS = (
    library_names.imported, tidy.coined_names, tidy.docstrings_that_ask,
    tidy.mocks, tidy.participles,
)
CHECKS_OF_PRODUCT = (
    library_names.imported, tidy.clocks_made, tidy.coined_names,
    tidy.docstrings_that_ask, tidy.made_outside_of_wiring, tidy.mocks,
    tidy.oslo_in_columns, tidy.participles, tidy.reserved_imports,
    tidy.time_read,
)


class TestTree(base.TestCase):
    """The tree keeps the rules."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sources = list(tidy.sources())
        cls.paths = {source.path for source in cls.sources}
        # An author adds files before git tracks them, and others refer to
        # them. They keep the rules when they are added.
        cls.present = [*cls.sources, *(
            source for source in tidy.sources(untracked=True)
            if source.path not in cls.paths)]
        cls.present_paths = {source.path for source in cls.present}
        cls.entry_points = tidy.entry_points(
            (tidy.ROOT / 'setup.cfg').read_text())

    def assertTidy(self, checks, directory, *args):
        complaints = [f'{source.path}: {complaint}'
                      for source in self.sources
                      if source.path.startswith(directory)
                      for check in checks
                      for complaint in check(source, *args)]
        self.assertEqual([], complaints)

    def test_the_tree_is_read(self):
        self.assertIn('cellsched/exception.py', self.paths)
        self.assertIn('tests/unit/test_tidy.py', self.paths)
        self.assertTrue(self.entry_points['cellsched.scheduler.filters'])

    def test_errors_for_users_name_no_internals(self):
        self.assertTidy([tidy.internals_in_texts], 'cellsched/')

    def test_sources_are_tidy(self):
        self.assertTidy(CHECKS_EVERYWHERE, '')

    def test_product_is_tidy(self):
        self.assertTidy(CHECKS_OF_PRODUCT, 'cellsched/')

    def test_docstrings_have_few_pronouns(self):
        for directory in 'cellsched/', 'integrations/':
            found = [source for source in self.sources
                     if source.path.startswith(directory)]

            self.assertLessEqual(
                tidy.pronouns(found), tidy.PRONOUNS_PER_100_WORDS_MAX)

    def test_tests_are_named_by_facts(self):
        self.assertTidy([tidy.riddles], '')

    def test_few_imports_are_in_functions_each_with_its_reason(self):
        found = {(source.path, line, has_reason)
                 for source in self.sources
                 if source.path.startswith(('cellsched/', 'integrations/'))
                 for line, has_reason in tidy.imports_in_functions(source)}

        self.assertLessEqual(
            len([path for path, *_ in found if path.startswith('cellsched/')]),
            tidy.IMPORTS_IN_FUNCTIONS_MAX)
        self.assertEqual([], [each for each in found if not each[-1]])

    def test_integrations_use_public_names(self):
        packages = [source for source in self.sources
                    if source.path.startswith('integrations/')]
        self.assertTidy(CHECKS_OF_INTEGRATIONS, 'integrations/')
        self.assertTidy([library_names.used], 'integrations/nova/cellsched_',
                        library_names.own_classes(packages))

    def test_product_imports_no_integration(self):
        self.assertTidy([tidy.integrations_imported], 'cellsched/')

    def test_no_private_name_of_a_library_is_used(self):
        product = [source for source in self.sources
                   if source.path.startswith('cellsched/')]
        self.assertTidy([library_names.used], 'cellsched/',
                        library_names.own_classes(product))

    def test_no_private_name_of_a_library_is_overridden(self):
        complaints = []
        for source in self.sources:
            # Histories have their classes elsewhere, and need a database.
            if (not source.path.startswith('cellsched/')
                    or '/migrations/' in source.path
                    or source.path.endswith('/__main__.py')
                    or source.is_one_of(library_names.ALLOWED)):
                continue
            name = library_names.module(source)
            complaints += [
                f'{source.path}: {complaint}'
                for cls in vars(importlib.import_module(name)).values()
                if inspect.isclass(cls) and cls.__module__ == name
                for complaint in library_names.overridden(cls)]
        self.assertEqual([], complaints)

    def test_each_requirement_is_imported(self):
        parser = configparser.ConfigParser()
        parser.read(tidy.ROOT / 'setup.cfg')
        lines = [
            *(tidy.ROOT / 'requirements.txt').read_text().splitlines(),
            *(line for extra in parser['extras'].values()
              for line in extra.splitlines())]

        self.assertEqual([], [*tidy.unimported(lines, [
            source for source in self.present
            if source.path.startswith('cellsched/')])])

    def test_unit_tests_mirror_their_modules(self):
        self.assertTidy([tidy.far_test], 'tests/unit/', self.present_paths)

    def test_plugin_modules_are_entry_points_and_the_reverse(self):
        self.assertEqual(
            [], sorted(tidy.plugin_modules(
                self.paths, self.entry_points, self.present_paths)))

    def test_plugins_have_docstrings_and_tests(self):
        self.assertTidy([tidy.unsound_plugins], 'cellsched/',
                        self.entry_points, self.present_paths)

    def test_tests_in_the_documentation_exist(self):
        self.assertEqual([], [
            f'{path.relative_to(tidy.ROOT)}: {complaint}'
            for path in tidy.files('.rst')
            for complaint in tidy.missing_tests(
                path.read_text(encoding='utf-8'))])

    def test_roles_in_docstrings_name_existing_objects(self):
        self.assertEqual([], [*tidy.missing_names([
            source for source in self.sources if source.path.startswith(
                ('cellsched/', 'integrations/', 'examples/'))])])

    def test_text_names_no_place_of_ours(self):
        complaints = []
        for path in tidy.files():
            try:
                text = path.read_text(encoding='utf-8')
            except UnicodeDecodeError:
                continue
            complaints += [f'{path.relative_to(tidy.ROOT)}: {complaint}'
                           for complaint in tidy.places(text)]
        self.assertEqual([], complaints)


class TestChecks(base.TestCase):
    """Each check can fail, and does not fail on what is right."""

    def assertComplains(self, check, path, text, *args):
        self.assertNotEqual([], list(check(tidy.Source(path, text), *args)))

    def assertAccepts(self, check, path, text, *args):
        self.assertEqual([], list(check(tidy.Source(path, text), *args)))

    def test_function_of_51_lines_is_long(self):
        text = 'def f():\n    """It\n\n    is.\n    """\n' + '    x\n' * 50

        self.assertAccepts(tidy.long_functions, 'cellsched/a.py', text)
        self.assertComplains(
            tidy.long_functions, 'cellsched/a.py', text + '    x\n')

    def test_pronouns_are_counted_in_docstrings(self):
        text = '"""Host."""\nclass A:\n    """Those who say it."""\n# Who?\n'

        self.assertEqual(
            40.0, tidy.pronouns([tidy.Source('cellsched/a.py', text)]))

    def test_name_of_a_test_without_a_subject_is_refused(self):
        for text in ('class TestWhatGoes: pass\n',
                     'def test_one_is_told(self): pass\n'):
            for path in ('tests/unit/api/a.py', 'tests/functional/test_a.py',
                         'integrations/a/tests/test_a.py',
                         'cellsched/testing/suite/a.py'):
                self.assertComplains(tidy.riddles, path, text)
            self.assertAccepts(tidy.riddles, 'cellsched/api/a.py', text)
        self.assertAccepts(
            tidy.riddles, 'tests/unit/api/a.py',
            'def _told(): pass\nclass TestMigration:\n'
            '    def test_server_leaves_its_host_alone(self): pass\n')

    def test_alias_with_an_underscore_is_no_name(self):
        self.assertAccepts(tidy.underscored_aliases, 'a.py',
                           'from a import b\nfrom a import base as a_base\n')
        for text in 'import a as a_\n', 'from a import b as b_\n':
            self.assertComplains(tidy.underscored_aliases, 'a.py', text)

    def test_coined_name_is_none(self):
        self.assertAccepts(tidy.coined_names, 'a.py',
                           'class A:\n    left: int\nx = 1\n')
        for text in ('said = 1\n', 'def f(wanted): pass\n',
                     'def _told(): pass\n'):
            self.assertComplains(tidy.coined_names, 'a.py', text)

    def test_class_is_named_by_a_noun(self):
        self.assertAccepts(
            tidy.participles, 'cellsched/listing.py',
            'class Feed: pass\nclass Lost(Exception): pass\n'
            'class BuildAborted(exception.Base): pass\n')
        for text in 'class Taking: pass\n', 'class Wanted: pass\n':
            self.assertComplains(tidy.participles, 'cellsched/a.py', text)
        self.assertComplains(tidy.participles, 'cellsched/settling.py', '')

    def test_import_in_a_function_says_why(self):
        text = ('def f():\n    # Heavy.\n    import a\n    import b\n'
                'def g():\n    import c\n')

        self.assertEqual(
            [(3, True), (4, True), (6, False)], sorted(
                tidy.imports_in_functions(tidy.Source('a.py', text))))

    def test_filter_of_101_lines_is_long(self):
        text = 'x = 1\n' * 100

        for path in ('cellsched/filters/a.py', 'cellsched/weighers/a.py'):
            self.assertAccepts(tidy.long_plugins, path, text)
            self.assertComplains(tidy.long_plugins, path, text + 'x = 1\n')
        for path in ('cellsched/filters/base.py', 'cellsched/a.py'):
            self.assertAccepts(tidy.long_plugins, path, text * 5)

    def test_vague_name_is_refused(self):
        self.assertComplains(tidy.vague_names, 'cellsched/db/utils.py', '')
        self.assertComplains(tidy.vague_names, 'cellsched/db_common/a.py', '')
        self.assertAccepts(tidy.vague_names, 'cellsched/commonwealth.py', '')

    def test_name_of_a_host_in_an_error_for_users_is_refused(self):
        text = "exception.InvalidField(problem=f'{row.host} is down')\n"

        self.assertComplains(tidy.internals_in_texts, 'cellsched/a.py', text)
        for text in (text.replace('problem', 'internals'),
                     text.replace('InvalidField', 'HostInUse'),
                     text.replace('row.host', 'row.uuid')):
            self.assertAccepts(tidy.internals_in_texts, 'cellsched/a.py', text)

    def test_global_statement_is_refused(self):
        self.assertComplains(
            tidy.globals_written, 'cellsched/a.py', 'def f():\n    global x\n')

    def test_head_is_required(self):
        licence = '# SPDX-License-Identifier: Apache-2.0\n'

        self.assertComplains(tidy.headless, 'cellsched/a.py', '"""It is."""\n')
        self.assertComplains(tidy.headless, 'cellsched/a.py', licence)
        self.assertComplains(tidy.headless, 'tests/a.py', '')
        self.assertAccepts(
            tidy.headless, 'cellsched/a.py', licence + '"""It is."""\n')

    def test_docstring_with_a_question_word_first_is_refused(self):
        for text in ('"""What it is."""\n',
                     'class A:\n    """Who it is."""\n',
                     'class A:\n    def f(self):\n        """\n'
                     '        Whether it is.\n        """\n'):
            self.assertComplains(
                tidy.docstrings_that_ask, 'cellsched/a.py', text)
        for text in ('', '"""Whatever it is."""\n',
                     'def f():\n    """Return what it is."""\n'):
            self.assertAccepts(
                tidy.docstrings_that_ask, 'cellsched/a.py', text)

    def test_signed_comment_is_refused(self):
        self.assertComplains(
            tidy.signed_comments, 'cellsched/a.py', '# NO' 'TE(me): it is\n')

    def test_global_configuration_is_refused(self):
        for text in ('from oslo_config import cfg\nx = cfg.CONF.host\n',
                     'import oslo_config.cfg\nx = oslo_config.cfg.CONF\n',
                     'from oslo_config.cfg import CONF\nCONF()\n'):
            self.assertComplains(
                tidy.global_configuration, 'cellsched/a.py', text)
        self.assertAccepts(tidy.global_configuration, 'cellsched/a.py',
                           'from oslo_config import cfg\nx = cfg.Opt()\n')

    def test_reserved_import_is_refused_elsewhere(self):
        for text, home in (
                ('import stevedore\n', 'cellsched/plugins.py'),
                ('from stevedore import driver\n', 'cellsched/plugins.py'),
                ('import sqlalchemy as sa\n', 'cellsched/db/api/models.py'),
                ('from sqlalchemy.orm import x\n', 'cellsched/claims/sql.py'),
                ('from time import sleep\n', 'cellsched/clock.py')):
            self.assertAccepts(tidy.reserved_imports, home, text)
            self.assertComplains(tidy.reserved_imports, 'cellsched/a.py', text)

    def test_time_is_read_by_the_clock_only(self):
        for text in ('import datetime\nx = datetime.datetime.now()\n',
                     'import datetime as d\nx = d.date.today\n',
                     'from datetime import datetime\nx = datetime.utcnow\n',
                     'from oslo_utils import timeutils\n'
                     'x = timeutils.utcnow()\n'):
            self.assertAccepts(tidy.time_read, 'cellsched/clock.py', text)
            self.assertComplains(tidy.time_read, 'cellsched/a.py', text)
        self.assertAccepts(tidy.time_read, 'cellsched/a.py',
                           'import datetime\n'
                           'def f(clock, x: datetime.datetime):\n'
                           '    return clock.now() - x\n')

    def test_threads_and_chance_are_made_by_wiring_only(self):
        for text in ('import random\nx = random.Random()\n',
                     'import random\nx = random.choice([1])\n',
                     'import numpy as np\nx = np.random.default_rng()\n',
                     'import threading\nthreading.Thread()\n',
                     'import threading\ndef f(make=threading.Thread): pass\n',
                     'from concurrent import futures\n'
                     'x = [futures.ThreadPoolExecutor]\n',
                     'import random\nf(chance=random.random)\n',
                     'import threading\nclass A(threading.Thread): pass\n',
                     'from threading import Thread\nThread()\n',
                     'import futurist\nfuturist.ThreadPoolExecutor()\n',
                     'from concurrent import futures\n'
                     'futures.ThreadPoolExecutor()\n'):
            self.assertAccepts(
                tidy.made_outside_of_wiring, 'cellsched/wiring/a.py', text)
            self.assertComplains(
                tidy.made_outside_of_wiring, 'cellsched/a.py', text)
        self.assertAccepts(tidy.made_outside_of_wiring, 'cellsched/a.py',
                           'import random\nimport threading\n'
                           'x = threading.Lock()\n'
                           'thread: threading.Thread | None = None\n'
                           'def f(chance: random.Random, seed):\n'
                           '    return chance.random(), random.Random(seed)\n')

    def test_clock_is_made_by_wiring_only(self):
        for text in ('from cellsched import clock\nx = clock.Clock()\n',
                     'from cellsched import clock as clock_\n'
                     'def f(make=clock_.Clock): pass\n'):
            self.assertAccepts(
                tidy.clocks_made, 'cellsched/wiring/a.py', text)
            self.assertComplains(tidy.clocks_made, 'cellsched/a.py', text)
        self.assertAccepts(tidy.clocks_made, 'cellsched/a.py',
                           'from cellsched import clock\n'
                           'class Then(clock.Clock): pass\n'
                           'def f(x: clock.Clock) -> clock.Clock: pass\n')

    def test_import_of_an_integration_is_refused(self):
        for text in ('import nova\n', 'from nova.scheduler import utils\n',
                     'from cellsched_nova import rows\n'):
            self.assertComplains(
                tidy.integrations_imported, 'cellsched/a.py', text)
        self.assertAccepts(tidy.integrations_imported, 'cellsched/a.py',
                           'from cellsched import objects\nimport novae\n')

    def test_role_without_its_name_in_the_tree_is_refused(self):
        for role, accepted in (
                (':class:`Known`', True), (':meth:`~.a.Known.method`', True),
                (':class:`threading.Lock`', True), (':class:`Gone`', False),
                (':data:`.a.gone.KINDS`', False)):
            source = tidy.Source('cellsched/a.py', (
                f'"""See {role}."""\nKINDS = 1\n'
                'class Known:\n    def method(self): pass\n'))
            self.assertEqual(
                accepted, not list(tidy.missing_names([source])))

    def test_mock_is_refused(self):
        for text in ('from unittest import mock\n', 'import unittest.mock\n',
                     'from unittest.mock import patch\n',
                     'from mock import patch\n'):
            self.assertComplains(tidy.mocks, 'cellsched/a.py', text)
        self.assertAccepts(tidy.mocks, 'cellsched/a.py', 'import unittest\n')

    def test_private_import_is_refused(self):
        for text in ('from a._b import c\n', 'import a._b\n',
                     'from a import _b\n', 'from a import b, _c\n'):
            self.assertComplains(
                library_names.imported, 'cellsched/a.py', text)
            self.assertAccepts(
                library_names.imported, 'cellsched/rpc/local.py', text)
        self.assertAccepts(
            library_names.imported, 'cellsched/a.py',
            'import _thread\nfrom __future__ import annotations\n')

    def test_private_attribute_of_a_library_is_refused(self):
        def check(source):
            return library_names.used(
                source, library_names.own_classes([source]))

        for text in ('def f(x):\n    return x._y\n',
                     'def f(x):\n    x._y = 1\n',
                     'def f(x):\n    return getattr(x, "_y")\n',
                     'class A(B):\n    def f(self):\n'
                     '        return self._y\n',
                     'class A(B):\n    def f(self):\n'
                     '        super()._y()\n'):
            self.assertComplains(check, 'cellsched/a.py', text)
            self.assertAccepts(check, 'cellsched/rpc/local.py', text)
        for text in ('class A:\n    def f(self, other):\n'
                     '        self._y = other._y\n',
                     'class A:\n    def _y(self): pass\n'
                     'class C(A):\n    def f(self):\n'
                     '        return self._y() or super()._y()\n',
                     'def f(x):\n    return x.__class__, x._replace()\n'):
            self.assertAccepts(check, 'cellsched/a.py', text)

    def test_private_override_of_a_library_is_refused(self):
        class Overrides(oslo_messaging.RPCDispatcher):
            def _do_dispatch(self):
                """Do nothing."""

        class Derived(oslo_messaging.RPCDispatcher):
            def _own(self):
                """Do nothing."""

        self.assertNotEqual([], list(library_names.overridden(Overrides)))
        self.assertEqual([], list(library_names.overridden(Derived)))

    def test_columns_know_of_oslo_options_only(self):
        for path in ('cellsched/filters/a.py', 'cellsched/weighers/base.py',
                     'cellsched/hosts/table.py',
                     'cellsched/scheduler/decision/pipeline.py'):
            self.assertAccepts(
                tidy.oslo_in_columns, path, 'from oslo_config import cfg\n')
            self.assertComplains(
                tidy.oslo_in_columns, path, 'from oslo_log import log\n')

    def test_test_of_no_module_is_far(self):
        paths = {'cellsched/db/session.py', 'cellsched/db/__init__.py'}

        def check(source):
            return tidy.far_test(source, paths)

        self.assertAccepts(check, 'tests/unit/db/test_session.py', '')
        self.assertAccepts(check, 'tests/unit/db/test_session_faults.py', '')
        self.assertAccepts(check, 'tests/unit/test_db.py', '')
        self.assertComplains(check, 'tests/unit/test_session.py', '')

    def test_plugin_without_entry_point_is_found(self):
        paths = {'cellsched/filters/__init__.py',
                 'cellsched/filters/base.py', 'cellsched/filters/far.py',
                 'cellsched/claims/sql/__init__.py',
                 'cellsched/claims/sql/models.py'}
        named = {'cellsched.scheduler.filters': ['cellsched.filters.far:Far'],
                 'cellsched.claims': ['cellsched.claims.sql:SQL']}

        self.assertEqual([], list(tidy.plugin_modules(paths, named)))
        self.assertEqual(2, len(list(tidy.plugin_modules(paths, {}))))
        self.assertEqual(2, len(list(tidy.plugin_modules(set(), named))))
        self.assertEqual([], list(tidy.plugin_modules(set(), named, paths)))

    def test_plugin_needs_class_docstring_and_test(self):
        path = 'cellsched/filters/far.py'
        named = {'cellsched.scheduler.filters': ['cellsched.filters.far:Far']}
        tests = {'tests/unit/filters/test_far.py'}
        good = 'class Far:\n    """Is far."""\n'

        self.assertAccepts(tidy.unsound_plugins, path, good, named, tests)
        self.assertComplains(tidy.unsound_plugins, path, good, named, set())
        self.assertComplains(tidy.unsound_plugins, path, '', named, tests)
        self.assertComplains(
            tidy.unsound_plugins, path, 'class Far:\n    pass\n', named, tests)

    def test_requirement_without_an_import_is_found(self):
        read = [tidy.Source('cellsched/a.py', 'from numpy import array\n'
                            'load("jinja2.ext")\n')]

        self.assertEqual(['PyYAML'], [*tidy.unimported(
            ['# a comment', 'numpy>=1,<3 # BSD', 'Jinja2', 'PyYAML>=6'],
            read)])

    def test_files_are_tracked_by_git_or_all_of_an_export(self):
        root = self.temporary_directory()
        for name in ('kept.py', 'deleted.py', 'text.rst', 'tried.py',
                     'build/made.py'):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).touch()

        self.assertEqual(
            [root / name for name in ('deleted.py', 'kept.py', 'tried.py')],
            tidy.files('.py', root=root))
        for command in ('init', 'add kept.py deleted.py text.rst'):
            subprocess.run(['git', '-C', root, *command.split()], check=True,
                           capture_output=True)
        (root / 'deleted.py').unlink()
        self.assertEqual([root / 'kept.py'], tidy.files('.py', root=root))
        self.assertEqual([root / 'kept.py', root / 'text.rst'],
                         tidy.files(root=root))
        (root / '.gitignore').write_text('build')
        self.assertEqual({root / 'kept.py', root / 'tried.py'}, {
            *tidy.files('.py', root=root, untracked=True)})

    def test_missing_test_in_text_is_found(self):
        known = f'{type(self).__module__}.{type(self).__name__}'
        for text in (known, f'{known}.{self._testMethodName}',
                     'tests.unit', 'latests.nothing'):
            self.assertEqual([], list(tidy.missing_tests(f'``{text}``')))
        for text in (f'{known}.test_none', f'{known}None', 'tests.none',
                     'tests.unit.test_none'):
            self.assertNotEqual([], list(tidy.missing_tests(f'``{text}``')))

    def test_place_in_text_is_found(self):
        for text in ('see /ro' 'ot/x', '"/ho' 'me/me"', 'from py' 'pi.org'):
            self.assertNotEqual([], list(tidy.places(text)))
        self.assertEqual(
            [], list(tidy.places('the/home/page is ~/home/x, maven')))

    def test_entry_points_are_read(self):
        self.assertEqual(
            {'x.y': ['a.b:C', 'a.d:E']},
            tidy.entry_points('[entry_points]\nx.y =\n C = a.b:C\n E = a.d:E'))
