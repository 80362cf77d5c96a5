# SPDX-License-Identifier: Apache-2.0

from tests.unit.cli import base


class TestFlavor(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf()

    def create(self, *argv):
        return self.shell('flavor', 'create', '-f', 'json', *argv)

    def test_flavor_is_created_with_its_options(self):
        ran = self.create('m1', '--ram', '2048', '--vcpus', '2', '--disk',
                          '20', '--ephemeral', '5', '--swap', '512', '--id',
                          'small')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual(
            {'id': 'small', 'name': 'm1', 'ram': 2048, 'vcpus': 2, 'disk': 20,
             'ephemeral': 5, 'swap': 512, 'properties': ''}, ran.data)
        self.assertEqual(
            ran.data,
            self.shell('flavor', 'show', 'm1', '-f', 'json').data)

    def test_properties_are_set_and_removed(self):
        self.create('m1', '--ram', '1', '--vcpus', '1')

        def changed(*argv):
            ran = self.shell('flavor', *argv, '-f', 'json')
            self.assertEqual((0, ''), (ran.code, ran.err))
            return ran.data['properties']

        self.assertEqual("a='1', b='x=y'", changed(
            'set', 'm1', '--property', 'b=x=y', '--property', 'a=1'))
        self.assertEqual("a='1'", changed('unset', 'm1', '--property', 'b'))
        self.assertEqual("c='2'", changed(
            'set', 'm1', '--no-property', '--property', 'c=2'))
        for argv, text in ((('m1',), '--property'),
                           (('m1', '--property', 'a'), 'KEY=VALUE'),
                           (('m1', '--property', 'a='), 'extra_specs.a'),
                           (('nix', '--property', 'a=1'), 'nix')):
            self.assertEnds(1, self.shell('flavor', 'set', *argv), text)

    def test_id_is_generated_by_default(self):
        ran = self.create('m1', '--ram', '1', '--vcpus', '1')
        auto = self.create('m2', '--ram', '1', '--vcpus', '1', '--id', 'auto')

        self.assertEqual(36, len(ran.data['id']))
        self.assertEqual(36, len(auto.data['id']))

    def test_empty_table_is_shown_as_a_sentence(self):
        self.assertEqual(
            'Nothing found.\n', self.shell('flavor', 'list').out)
        self.assertEqual([], self.shell('flavor', 'list', '-f', 'json').data)

    def test_list_has_the_columns_of_openstackclient(self):
        self.create('m1', '--ram', '2048', '--vcpus', '2', '--id', '1')

        ran = self.shell('flavor', 'list', '-f', 'json')

        self.assertEqual(
            [{'ID': '1', 'Name': 'm1', 'RAM': 2048, 'Disk': 0,
              'Ephemeral': 0, 'VCPUs': 2}], ran.data)

    def test_similar_name_is_suggested(self):
        self.create('m1.small', '--ram', '1', '--vcpus', '1')

        self.assertEnds(1, self.shell('flavor', 'show', 'm1.smal'),
                        'There is no flavor m1.smal; did you mean m1.small?')
        self.assertEnds(1, self.shell('flavor', 'show', 'x'),
                        'There is no flavor x.')

    def test_deleted_flavor_is_not_found(self):
        self.create('m1', '--ram', '1', '--vcpus', '1')

        ran = self.shell('flavor', 'delete', 'm1')

        self.assertEqual(base.Ran(0, 'Deleted flavor m1\n', ''), ran)
        self.assertEnds(1, self.shell('flavor', 'show', 'm1'), 'm1')

    def test_duplicate_name_is_refused(self):
        self.create('m1', '--ram', '1', '--vcpus', '1')

        ran = self.create('m1', '--ram', '1', '--vcpus', '1')

        self.assertEnds(1, ran, 'm1', 'already')

    def test_size_out_of_bounds_is_refused(self):
        for option, value in (('--ram', '-1'), ('--ram', '0'),
                              ('--vcpus', '-5'), ('--disk', '-1'),
                              ('--swap', str(2 ** 31))):
            sizes = {'--ram': '1', '--vcpus': '1', option: value}

            ran = self.create(
                'm1', *(word for pair in sizes.items() for word in pair))

            self.assertEnds(1, ran, f'{option[2:]}:', value, 'from')
        self.assertEqual([], self.shell('flavor', 'list', '-f', 'json').data)
