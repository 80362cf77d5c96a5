# SPDX-License-Identifier: Apache-2.0
"""Every error of this project."""

import copy
import inspect
import pickle
import re

from cellsched import exception
from tests.unit import base

ERRORS = [each for _, each in inspect.getmembers(exception, inspect.isclass)
          if issubclass(each, exception.CellschedException)]


def fields(error):
    return re.findall(r'%\((\w+)\)s', error.msg_fmt)


class TestErrors(base.TestCase):

    def test_fields_fill_in_the_message_and_stay_readable(self):
        for error in ERRORS:
            values = {name: f'<{name}>' for name in fields(error)}

            raised = error(**values)

            for name, value in values.items():
                self.assertIn(value, str(raised))
                self.assertEqual(value, getattr(raised, name))

    def test_code_travels_with_the_fields(self):
        error = exception.CellMappingNotFound(uuid='u')

        self.assertEqual({'uuid': 'u', 'code': 404}, error.kwargs)

    def test_errors_are_made_again_from_what_travels(self):
        error = exception.NoValidHost(
            reason='None.', rejections=[{'by': 'ComputeFilter', 'hosts': 1}])

        again = type(error)(*error.args, **error.kwargs)

        self.assertEqual(str(error), str(again))
        self.assertEqual(error.kwargs, again.kwargs)
        self.assertEqual(error.rejections, again.rejections)

    def test_errors_can_be_copied(self):
        error = exception.ClaimRefused(
            provider='p', resource='VCPU', amount=1, consumer='c')

        for again in copy.copy(error), pickle.loads(pickle.dumps(error)):
            self.assertIs(type(error), type(again))
            self.assertEqual(str(error), str(again))
            self.assertEqual('c', again.consumer)

    def test_a_message_is_taken_as_it_is(self):
        error = exception.Invalid('100% of %(it)s')

        self.assertEqual('100% of %(it)s', str(error))
        self.assertEqual('100% of %(it)s', error.format_message())

    def test_field_that_it_has_not_is_an_attribute_error(self):
        self.assertFalse(hasattr(exception.NotFound(), 'uuid'))

    def test_what_users_may_read_names_no_host_and_no_url(self):
        for error in ERRORS:
            if error.safe:
                self.assertNotIn('host', fields(error))
                self.assertNotIn('url', fields(error))

    def test_docstring_has_the_whole_tree(self):
        depth = {name: len(indent) // 4 for indent, name in re.findall(
            r'^    ([│├└─ ]*)(\w+)', exception.__doc__, re.M)}

        self.assertEqual(
            {error.__name__: sum(
                base in ERRORS for base in error.__mro__) - 1
             for error in ERRORS},
            depth)
