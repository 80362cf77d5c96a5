# SPDX-License-Identifier: Apache-2.0

import importlib
import inspect
import pkgutil

from cellsched import api
from cellsched.api import authorization
from cellsched.api.base import __name__
from cellsched.api.base import Controller
from cellsched.api.base import requires
from cellsched import context
from cellsched import exception
from cellsched.policies import rules
from cellsched.wiring.api import API
from cellsched.wiring.api import CONTROLLERS
from tests.unit import base

UUID = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'

#: Rules that a call asks besides the one that it names.
MORE = {'compute:servers:create:requested_destination',
        'os_compute_api:os-migrate-server:migrate:host',
        'os_compute_api:os-migrations:index:all_projects',
        'os_compute_api:servers:create:forced_host'}

#: What calls call that of which a project is the owner.
OWNED = {'uuid', 'server', 'project_id'}


def controllers():
    """Return the classes that make up the API."""
    for module in pkgutil.iter_modules(api.__path__, 'cellsched.api.'):
        importlib.import_module(module.name)
    found, more = set(), [Controller]
    while more:
        cls = more.pop()
        more += cls.__subclasses__()
        if cls.__module__ != __name__ and (
                cls.__module__.startswith('cellsched.')):
            found.add(cls)
    return found


def calls():
    """Return the public methods of the API, by what they are called."""
    return {
        f'{cls.__name__}.{name}': method
        for cls in controllers()
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith('_') and name != 'check_visible'}


class Refusing(authorization.Authorizer):
    """Allows nothing, and knows what it was asked."""

    def __init__(self):
        self.asked = []

    def authorize(self, context, rule, project_id=None):
        self.asked.append((rule, project_id))
        raise exception.PolicyNotAuthorized(action=rule)


class Shelf(Controller):
    """A part of an API, with one thing of which each project sees its own."""

    def check_visible(self, context, name):
        if name != context.project_id:
            raise exception.InstanceNotFound(uuid=name)

    @requires('take', resource_param='uuid')
    def take(self, context, uuid=None):
        return uuid

    @requires('count', resource_param='project_id', of_project=True)
    def count(self, context, project_id):
        return project_id


class Garage(Shelf):
    """The same with uuids."""

    has_uuids = True


class TestCalls(base.TestCase):

    def test_every_part_of_the_api_is_a_controller(self):
        made = {name: inspect.signature(
            getattr(API, name).func).return_annotation.split('.')[-1]
            for name in CONTROLLERS}

        self.assertEqual(sorted(made.values()),
                         sorted(cls.__name__ for cls in controllers()))

    def test_every_call_names_a_rule(self):
        self.assertLess(30, len(calls()))
        self.assertEqual([], sorted(
            name for name, method in calls().items()
            if not hasattr(method, 'rule')))

    def test_every_call_takes_the_context_first(self):
        for name, method in calls().items():
            self.assertEqual(
                ['self', 'context'],
                list(inspect.signature(method).parameters)[:2], name)

    def test_every_owned_resource_is_named_by_its_call(self):
        for name, method in calls().items():
            if name == 'Services.delete':
                # It is the uuid of a service, which no project owns.
                continue
            owned = OWNED & inspect.signature(method).parameters.keys()
            self.assertEqual(
                owned, set() if method.resource_param is None
                else {method.resource_param},
                name)

    def test_calls_name_all_rules(self):
        self.assertEqual(
            {method.rule for method in calls().values()} | MORE,
            {rule.name for rule in rules.list_rules() if rule.scope_types})


class TestRequires(base.TestCase):

    def setUp(self):
        super().setUp()
        self.authorizer = Refusing()
        self.shelf = Shelf(self.authorizer)
        self.user = context.member('user', 'mine')

    def test_own_resource_is_refused_by_the_rule(self):
        error = self.assertRaises(
            exception.PolicyNotAuthorized, self.shelf.take, self.user, 'mine')

        self.assertEqual('take', error.action)
        self.assertEqual([('take', None)], self.authorizer.asked)

    def test_foreign_resource_is_not_found(self):
        for call in (lambda: self.shelf.take(self.user, 'theirs'),
                     lambda: self.shelf.take(self.user, uuid='theirs'),
                     lambda: self.shelf.count(self.user, 'theirs')):
            self.assertRaises(exception.InstanceNotFound, call)

    def test_unnamed_resource_is_refused_by_the_rule(self):
        self.assertRaises(
            exception.PolicyNotAuthorized, self.shelf.take, self.user)

    def test_rule_is_checked_for_the_named_project(self):
        self.assertRaises(exception.PolicyNotAuthorized, self.shelf.count,
                          self.user, project_id='mine')

        self.assertEqual([('count', 'mine')], self.authorizer.asked)

    def test_call_gets_the_canonical_uuid(self):
        garage, shelf = (kind(authorization.LocalOperator())
                         for kind in (Garage, Shelf))
        for form in UUID.upper(), UUID.replace('-', ''), f'{{{UUID}}}':
            for name in (garage.take(self.user, form),
                         garage.take(self.user, uuid=form)):
                self.assertEqual(UUID, name)
            self.assertEqual(form, shelf.take(self.user, form))
        self.assertEqual('a name', garage.take(self.user, 'a name'))
        self.assertIsNone(garage.take(self.user))

    def test_call_with_a_wrong_argument_is_a_mistake_of_the_caller(self):
        self.assertRaises(TypeError, self.shelf.count, self.user)
        self.assertRaises(TypeError, self.shelf.take, self.user, other=1)
