# SPDX-License-Identifier: Apache-2.0
"""What commands say of what they did."""

import yaml

from cellsched.cli import app
from cellsched.cli import report
from cellsched import exception
from cellsched import plugins
from tests.unit.cli import base

#: Commands whose output has a form of its own.
OWN_FORM = {'host.export'}


class Change(report.ChangeCommand):
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

    def test_each_change_is_told_of_in_a_line(self):
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

    def test_what_goes_wrong_with_one_is_reported_and_others_go_on(self):
        ran = self.change('-f', 'json', 'missing', 'small')

        self.assertEnds(1, ran, 'no box missing')
        self.assertEqual(['small'], [each['name'] for each in ran.data])

    def test_what_was_done_before_an_error_that_ends_it_is_told(self):
        ran = self.change('-f', 'json', 'small', 'broken', 'big')

        self.assertEnds(1, ran, 'broken')
        self.assertEqual(['small'], [each['name'] for each in ran.data])


class TestEveryCommand(base.CommandTestCase):

    def test_output_of_every_command_is_data_on_request(self):
        application = app.Shell()
        for point in plugins.shipped(app.Shell.namespace):
            parser = point.load()(application, None).get_parser(point.name)
            self.assertEqual(
                point.name not in OWN_FORM,
                '--format' in parser.format_help(), point.name)
