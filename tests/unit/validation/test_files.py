# SPDX-License-Identifier: Apache-2.0
import os

from cellsched import exception
from cellsched.validation import files
from tests.unit import base


class TestCheck(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'file'

    def refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, files.check, '[a] b', self.path)
        self.assertEqual('[a] b', error.field)
        self.assertIn(str(self.path), str(error))
        return str(error)

    def test_file_and_symbolic_link_are_accepted(self):
        self.assertIn('No such file', self.refused())
        self.path.write_text('')
        files.check('[a] b', self.path)
        link = self.path.with_name('link')
        link.symlink_to(self.path)
        files.check('[a] b', link)

    def test_path_of_another_kind_is_refused(self):
        self.path.symlink_to(self.path.with_name('missing'))
        self.assertIn('No such file', self.refused())
        self.path.unlink()
        self.path.mkdir()
        self.assertIn('is not a file', self.refused())
        self.path.rmdir()
        os.mkfifo(self.path)
        self.assertIn('is not a file', self.refused())

    def test_path_with_a_null_character_is_refused(self):
        self.path = 'a\0b'
        self.refused()


class TestTLS(base.TestCase):

    def options(self, **paths):
        return {'cafile': None, 'certfile': None, 'keyfile': None, **paths}

    def test_each_file_is_checked(self):
        files.check_tls('a', self.options())
        directory = self.temporary_directory()
        for name in self.options():
            error = self.assertRaises(
                exception.ConfigurationInvalid, files.check_tls, 'a',
                self.options(**{name: str(directory)}))
            self.assertEqual(f'[a] {name}', error.field)

    def test_directory_of_authorities_is_accepted(self):
        directory = self.temporary_directory()
        (directory / '0a0b0c0d.0').write_text('')

        files.check_tls('a', self.options(cafile=str(directory)))
        self.assertRaises(
            exception.ConfigurationInvalid, files.check_tls, 'a',
            self.options(certfile=str(directory)))
