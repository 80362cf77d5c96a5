# SPDX-License-Identifier: Apache-2.0
"""Every error of this project."""

import copy
import inspect
import pickle
import re

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging

from cellsched import exception
from tests.unit import base

ERRORS = [each for _, each in inspect.getmembers(exception, inspect.isclass)
          if issubclass(each, exception.CellschedException)]


#: Errors of libraries that come over RPC or of it.
OTHERS = (*(each for _, each in inspect.getmembers(
    oslo_messaging.exceptions, inspect.isclass)
    if issubclass(each, Exception)),
    oslo_messaging.RemoteError, kombu_exc.OperationalError,
    amqp_exc.ConnectionForced, KeyError, SystemError)


def made():
    """Return an error of each kind."""
    for kind in ERRORS:
        yield kind(**{name: 'secret' for name in fields(kind)})
    for kind in OTHERS:
        error = kind.__new__(kind)
        Exception.__init__(error, 'secret')
        yield error


def forms(error):
    """Return an error as it may come to who asked for something."""
    name = type(error).__name__
    remote = type(f'{name}_Remote', (type(error),), {})
    there = remote.__new__(remote)
    there.__dict__.update(error.__dict__)
    there.args = error.args
    return [error, there, oslo_messaging.RemoteError(name, 'secret'),
            oslo_messaging.RemoteError(f'{name}_Remote', 'secret')]


def fields(error):
    return re.findall(r'%\((\w+)\)s', error.msg_fmt)


class TestErrors(base.TestCase):

    def test_fields_fill_in_the_message_and_stay_readable(self):
        for error in ERRORS:
            values = {name: f'<{name}>' for name in fields(error)}
            if values.pop('detail', None):
                values |= {'problem': '<problem>', 'expected': '<expected>'}

            raised = error(**values)

            for name, value in values.items():
                self.assertIn(value, str(raised))
                self.assertEqual(value, getattr(raised, name))

    def test_text_has_the_problem_before_the_expectation(self):
        for reasons, text in (
                ({'expected': 'b'}, 'expected b'),
                ({'problem': 'a', 'expected': None}, 'a'),
                ({'problem': 'a', 'expected': 'b'}, 'a; expected b')):
            error = exception.InvalidField(where='w', field='f', **reasons)
            again = exception.ConfigurationInvalid(
                field='g', **error.reasons)

            self.assertEqual(f'w: f: {text}', str(error))
            self.assertEqual(f'Configuration: g: {text}', str(again))
            self.assertEqual(text, again.detail)
            self.assertNotIn(None, error.kwargs.values())

    def test_code_travels_with_the_fields(self):
        error = exception.CellMappingNotFound(uuid='u')

        self.assertEqual({'uuid': 'u', 'code': 404}, error.kwargs)

    def test_errors_are_rebuilt_from_their_wire_form(self):
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

    def test_copies_differ_from_their_error_in_the_traceback_only(self):
        for error in made():
            one, two = exception.copy_of(error), exception.copy_of(error)

            for each in one, two:
                self.assertEqual(
                    (type(error), error.args, vars(error)),
                    (type(each), each.args, vars(each)))
                self.assertIs(error, each.__cause__)
                self.assertRaises(type(error), self.throw, each)
            self.assertIsNot(one.__traceback__, two.__traceback__)
            self.assertIsNone(error.__traceback__)

    def throw(self, error):
        raise error

    def test_message_is_not_formatted(self):
        error = exception.Invalid('100% of %(it)s')

        self.assertEqual('100% of %(it)s', str(error))
        self.assertEqual('100% of %(it)s', error.format_message())

    def test_missing_field_is_an_attribute_error(self):
        self.assertFalse(hasattr(exception.NotFound(), 'uuid'))

    def test_text_for_users_has_no_host_and_no_url(self):
        for error in ERRORS:
            if error.safe:
                self.assertNotIn('host', fields(error))
                self.assertNotIn('url', fields(error))

    def test_text_for_users_has_no_class_and_no_field(self):
        names = {each.__name__ for each in (*ERRORS, *OTHERS)}
        for error in made():
            for form in forms(error):
                told = exception.user_text(form)

                self.assertEqual(
                    set(), {word for word in re.findall(r'\w+', told)
                            if word in names or word.endswith('_Remote')},
                    form)
                if not getattr(form, 'safe', False):
                    self.assertNotIn('secret', told)

    def test_internals_are_for_administrators(self):
        for raised in (
                exception.MoveAbandoned(
                    kind='rebuild', reason='host%(host)s is 100% %(x)s down',
                    internals={'host': ' a1'}),
                exception.InvalidField(
                    where='w', field='f', problem='host%(host)s',
                    expected='%(field)s', internals={'host': ' a1'})):
            again = type(raised)(*raised.args, **raised.kwargs)
            for error in (raised, again, copy.copy(raised),
                          *forms(raised)[:2]):
                self.assertIn('host a1', str(error))
                self.assertEqual(str(error).replace(' a1', ''),
                                 exception.user_text(error))

    def test_text_of_a_configuration_is_for_administrators(self):
        error = exception.ConfigurationInvalid(
            field='transport_url of cell east', problem='rabbit://host/')

        self.assertEqual('a service is not configured correctly',
                         exception.user_text(error))

    def test_text_for_users_is_unchanged(self):
        for form in forms(exception.NoValidHost(reason='All are full.')):
            if isinstance(form, exception.NoValidHost):
                self.assertEqual('No valid host was found. All are full.',
                                 exception.user_text(form))

    def test_missing_object_is_named_to_users(self):
        for kind, field in ((exception.FlavorNotFound, 'flavor'),
                            (exception.InstanceGroupNotFound, 'uuid'),
                            (exception.InstanceNotFound, 'uuid'),
                            (exception.ProjectQuotaNotFound, 'project_id')):
            error = kind(**{field: 'mistyped'})

            self.assertEqual(str(error), exception.user_text(error))
            self.assertIn('mistyped', str(error))

    def test_text_of_a_remote_error_equals_the_local_text(self):
        for error in made():
            for form in forms(error):
                if type(error) in ERRORS and not error.safe:
                    self.assertEqual(exception.user_text(error),
                                     exception.user_text(form), form)

    def test_docstring_has_the_whole_tree(self):
        depth = {name: len(indent) // 4 for indent, name in re.findall(
            r'^    ([│├└─ ]*)(\w+)', exception.__doc__, re.M)}

        self.assertEqual(
            {error.__name__: sum(
                base in ERRORS for base in error.__mro__) - 1
             for error in ERRORS},
            depth)
