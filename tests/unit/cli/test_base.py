# SPDX-License-Identifier: Apache-2.0

from importlib import metadata
import os
import re
import subprocess
import sys

from cliff import hooks
import fixtures
import yaml

from cellsched.cli import app
from cellsched.cli import base as cli_base
from cellsched import exception
from cellsched import plugins
from tests.unit.cli import base
from tests.unit.cmd import processes

#: Runs a command, and prints how often the metadata of all that is installed
#: was asked for.
METADATA = """
import sys
import traceback

from cellsched.cli import app


class Finder:

    asked = 0

    @staticmethod
    def find_spec(*args):
        return None

    @classmethod
    def find_distributions(cls, context):
        cls.asked += context.name is None and not any(
            'stevedore' in frame.filename
            for frame in traceback.extract_stack())
        return ()


# stevedore reads entry points where no file of its cache has them.
sys.meta_path.append(Finder)
code = app.Shell().run(sys.argv[1:])
print('asked', Finder.asked, 'times')
sys.exit(code)
"""

#: Commands whose output has a form of its own.
OWN_FORM = {'host.export'}


class Listing(cli_base.Lister):
    """List.

    It does ``this``::

        list
    """

    columns = ('ID', 'Full Name')
    ran = False

    def take_action(self, parsed_args):
        type(self).ran = True
        return self.columns, [(1, 'x')]


class Foreign(Listing):
    """List something of another distribution."""


# cliff looks for who provides a command by its module.
Foreign.__module__ = 'cliff.lister'


class Hook(hooks.CommandHook):
    """Adds a text to the help of a command."""

    def get_epilog(self):
        return 'See also elsewhere.'

    def get_parser(self, parser):
        return parser

    def before(self, parsed_args):
        return parsed_args

    def after(self, parsed_args, return_code):
        return return_code


class Servers(cli_base.Lister):
    """List servers."""

    columns = ('ID', 'Group', 'Name', 'Reason')
    server_ids = ('ID',)
    rows = [('7a1c2b3d-0000-4000-8000-000000000001',
             '7a1c2b3d-0000-4000-8000-000000000009', 'web', 'lacks ' * 20),
            ('8a1c2b3d-0000-4000-8000-000000000002', '', 'db', '')]

    def take_action(self, parsed_args):
        return self.columns, self.rows


class AlikeServers(Servers):
    """List servers whose uuids begin alike."""

    rows = [(f'7a1c2b3d-0000-4000-8000-00000000000{last}', '', '', 'a ' * 99)
            for last in (1, 2)]


class TestTableOfServers(base.CommandTestCase):

    def listed(self, *argv, kind=Servers):
        ran = self.run_app(app.Shell, 'list', *argv, list=kind)
        self.assertEqual((0, ''), (ran.code, ran.err))
        return ran.out

    def test_wide_table_has_short_ids_and_folded_texts(self):
        out = self.listed('--max-width', '80')

        self.assertIn('| 7a1c2b3d |', out)
        self.assertIn('| 8a1c2b3d |', out)
        self.assertTrue(all(len(line) <= 80 for line in out.splitlines()))
        self.assertEqual(20, out.count('lacks'))
        # Commands on groups need the whole id.
        self.assertNotIn('| 7a1c2b3d | 7a1c2b3d |', out)

    def test_narrow_table_is_unchanged(self):
        for argv in (('--max-width', '500'), ('-c', 'ID', '--max-width', '80'),
                     ()):
            self.assertIn('7a1c2b3d-0000-4000-8000-000000000001',
                          self.listed(*argv))

    def test_formats_for_programs_are_not_changed(self):
        for form in ('csv', 'json', 'value', 'yaml'):
            self.assertIn('7a1c2b3d-0000-4000-8000-000000000001', self.listed(
                '-f', form, '--max-width', '40'))

    def test_ids_differ_in_the_table(self):
        out = self.listed('-c', 'ID', '-c', 'Reason', '--max-width', '60',
                          kind=AlikeServers)

        for line in ('| 7a1c2b3d-0000-4000-8000-   |',
                     '| 000000000001               |',
                     '| 000000000002               |'):
            self.assertIn(line, out)

    def test_table_on_a_terminal_has_the_width_of_the_terminal(self):
        self.useFixture(fixtures.EnvironmentVariable('COLUMNS', '80'))
        terminal = base.Terminal()
        made = app.Shell(terminal)
        made.command_manager.add_command('list', Servers)

        made.run(['list'])

        self.assertIn('| 7a1c2b3d |', terminal.getvalue())


class TestLister(base.CommandTestCase):

    def run_listing(self, *argv):
        Listing.ran = False
        return self.run_app(app.Shell, 'list', *argv, list=Listing)

    def test_columns_are_selected_in_any_spelling(self):
        for name in ('Full Name', 'full_name', 'FULL NAME'):
            ran = self.run_listing('-c', name, '-f', 'value')

            self.assertEqual(base.Ran(0, 'x\n', ''), ran)

    def test_unknown_column_is_refused_before_the_command_runs(self):
        ran = self.run_listing('-c', 'ID', '-c', 'Nix')

        self.assertEnds(1, ran, '--column', 'ID, Full Name', 'Nix')
        self.assertFalse(Listing.ran)

    def test_help_is_the_docstring_without_markup(self):
        ran = self.run_listing('--help')

        self.assertEqual(0, ran.code)
        self.assertIn('It does this:\n\n    list\n', ran.out)

    def test_help_refers_to_global_options(self):
        ran = self.run_listing('--help')

        self.assertIn('cellsched --help', ran.out)

    def test_help_names_the_distribution_of_a_command(self):
        ran = self.run_app(app.Shell, 'list', '--help', list=Foreign)

        self.assertIn('provided by the cliff plugin', ran.out)

    def test_help_has_the_text_of_hooks(self):
        namespace = 'cellsched.cli.flavor_list'
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', {
                namespace: [metadata.EntryPoint(
                    'hook', f'{__name__}:Hook', namespace)]}))

        ran = self.run_app(app.Shell, 'flavor', 'list', '--help')

        self.assertIn('See also elsewhere.', ran.out)

    def test_metadata_of_installed_packages_is_not_read(self):
        self.write_api_conf()
        done = subprocess.run(
            [sys.executable, '-c', METADATA, '--config-file',
             str(self.api_conf), 'flavor', 'list'],
            capture_output=True, text=True, check=False,
            timeout=processes.TIMEOUT_S)

        self.assertIn('asked 0 times', done.stdout, done.stderr)


class Change(cli_base.ChangeCommand):
    """Do as it is told."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('names', nargs='+')
        return parser

    def take_action(self, parsed_args):
        done, code = self.change(
            parsed_args.format, 'moved', 'box', parsed_args.names, self.move)
        assert done == [name for name in dict.fromkeys(parsed_args.names)
                        if name != 'missing']
        return code

    def move(self, name):
        if name == 'missing':
            raise exception.NotFound(f'There is no box {name}.')
        if name == 'broken':
            raise ValueError('broken')
        return {'to': 'attic'} if name == 'big' else None


class TestChange(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write('api.conf')

    def change(self, *argv):
        return self.shell('change', *argv, change=Change)

    def test_each_change_is_shown_in_a_line(self):
        self.assertEqual(
            base.Ran(0, 'Moved box big, to attic\nMoved box small\n', ''),
            self.change('big', 'small', 'big'))

    def test_changes_are_data_in_other_formats(self):
        told = [{'action': 'moved', 'kind': 'box', 'name': 'big',
                 'to': 'attic'},
                {'action': 'moved', 'kind': 'box', 'name': 'small'}]

        for form, read in (('json', lambda ran: ran.data),
                           ('yaml', lambda ran: yaml.safe_load(ran.out))):
            ran = self.change('-f', form, 'big', 'small')
            self.assertEqual((0, ''), (ran.code, ran.err))
            self.assertEqual(told, read(ran))

    def test_changes_are_rows_in_csv_and_value(self):
        for form, lines in (
                ('csv', ['"action","kind","name","to"',
                         '"moved","box","big","attic"',
                         '"moved","box","small",""']),
                ('value', ['moved box big attic', 'moved box small None'])):
            ran = self.change('-f', form, 'big', 'small')
            self.assertEqual((0, ''), (ran.code, ran.err))
            self.assertEqual(lines, ran.out.splitlines())

    def test_failed_change_is_reported_and_the_rest_continues(self):
        ran = self.change('-f', 'json', 'missing', 'small')

        self.assertEnds(1, ran, 'no box missing')
        self.assertEqual(['small'], [each['name'] for each in ran.data])

    def test_changes_before_a_fatal_error_are_shown(self):
        ran = self.change('-f', 'json', 'small', 'broken', 'big')

        self.assertEnds(1, ran, 'internal error (ValueError)')
        self.assertEqual(['small'], [each['name'] for each in ran.data])


class TestEveryCommand(base.CommandTestCase):

    def test_every_command_has_the_same_formats(self):
        """One thing has no rows: its variables are for a shell, not csv."""
        application = app.Shell()
        for point in plugins.shipped(app.Shell.namespace):
            kind = point.load()
            help_ = kind(application, None).get_parser(
                point.name).format_help()
            if point.name in OWN_FORM:
                self.assertNotIn('--format', help_, point.name)
                continue
            rows = 'shell' if issubclass(kind, cli_base.ShowOne) else 'csv'
            self.assertEqual(
                sorted([rows, 'json', 'table', 'value', 'yaml']),
                sorted(re.search(r'--format \{([\w,]+)\}', help_)[1].split(
                    ',')), point.name)


class TestEach(base.CommandTestCase):

    def test_failed_deletion_is_reported_and_the_rest_continues(self):
        self.write_api_conf()
        self.shell('flavor', 'create', 'm1', '--ram', '1', '--vcpus', '1')

        ran = self.shell('flavor', 'delete', 'nix', 'm1')

        self.assertEnds(1, ran, 'nix')
        self.assertEqual([], self.shell('flavor', 'list', '-f', 'json').data)


class TestSave(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'file'

    def test_pipe_is_written_and_not_replaced(self):
        os.mkfifo(self.path)
        reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)

        cli_base.save(self.path, lambda stream: stream.write('text'))

        self.assertEqual(b'text', os.read(reader, 1000))
        self.assertTrue(self.path.is_fifo())

    def test_link_to_the_file_stays(self):
        link = self.directory / 'link'
        self.path.write_text('before')
        link.symlink_to(self.path)

        cli_base.save(link, lambda stream: stream.write('text'))

        self.assertTrue(link.is_symlink())
        self.assertEqual('text', self.path.read_text())

    def test_file_is_written_whole_or_not_at_all(self):
        self.path.write_text('before')

        def fail(stream):
            stream.write('half')
            raise KeyError

        self.assertRaises(KeyError, cli_base.save, self.path, fail)

        self.assertEqual('before', self.path.read_text())
        self.assertEqual([self.path], [*self.directory.iterdir()])

        error = self.assertRaises(
            exception.Invalid, cli_base.save, self.directory / 'none' / 'x',
            lambda stream: None)
        self.assertIn('No such file', str(error))
