# SPDX-License-Identifier: Apache-2.0

from cellsched.cli import app
from cellsched.cli import base as cli_base
from tests.unit.cli import base


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


class TestLister(base.CommandTestCase):

    def run_listing(self, *argv):
        Listing.ran = False
        return self.run_app(app.Shell, 'list', *argv, list=Listing)

    def test_columns_are_chosen_however_they_are_written(self):
        for name in ('Full Name', 'full_name', 'FULL NAME'):
            ran = self.run_listing('-c', name, '-f', 'value')

            self.assertEqual(base.Ran(0, 'x\n', ''), ran)

    def test_unknown_column_is_refused_before_anything_is_done(self):
        ran = self.run_listing('-c', 'ID', '-c', 'Nix')

        self.assertEnds(1, ran, '--column', 'ID, Full Name', 'Nix')
        self.assertFalse(Listing.ran)

    def test_help_is_the_docstring_without_markup(self):
        ran = self.run_listing('--help')

        self.assertEqual(0, ran.code)
        self.assertIn('It does this:\n\n    list\n', ran.out)

    def test_help_says_where_other_options_are(self):
        ran = self.run_listing('--help')

        self.assertIn('cellsched --help', ran.out)


class TestEach(base.CommandTestCase):

    def test_error_with_one_is_reported_and_the_others_go_on(self):
        self.write_api_conf()
        self.shell('flavor', 'create', 'm1', '--ram', '1', '--vcpus', '1')

        ran = self.shell('flavor', 'delete', 'nix', 'm1')

        self.assertEnds(1, ran, 'nix')
        self.assertEqual([], self.shell('flavor', 'list', '-f', 'json').data)
