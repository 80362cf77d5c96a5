# SPDX-License-Identifier: Apache-2.0
import datetime

from oslo_versionedobjects import fields

from cellsched import objects
from cellsched.objects import base as objects_base
from tests.unit import base
from tests.unit.objects import wire

TIME = datetime.datetime(2026, 1, 2, 3, 4, 5)

#: What may come, or be given, in place of anything.
ANYTHING = (
    True, 0, -1, 1.5, '', 'text', '1', None, [], ['a'], ['a', 1], ['a', None],
    [['a']], {}, {'a': 'b'}, {'a': 1}, {'a': None}, {'a': ['b']},
    {'a': ['b', 1]}, {'a': 'b', 'c': ['d']}, {1: 'a'}, {1: ['a']},
    '2026-01-02T03:04:05Z', '2026-01-02T03:04:05', '2026-01-02 03:04:05Z',
    '2026-01-02T03:04:05+01:00', '2026-01-02T03:04:05.5Z',
    '2026-13-02T03:04:05Z', '2026-W01-1T03:04:05Z', '20260102T030405.123Z',
    '2026-01-02T24:00:00Z', '٢٠٢٦-01-02T03:04:05Z',
    wire.FLAVOR, wire.IMAGE, [wire.FLAVOR], [wire.FLAVOR, 1], ['a', {}],
    {'nova_object.name': 'Flavor'},
    TIME, TIME.replace(microsecond=6), TIME.replace(tzinfo=datetime.UTC),
    objects.Flavor(name='small'), [objects.Flavor(name='small')])


def outcome(function, *args):
    """Return what a function makes, or that it refuses."""
    try:
        return shown(function(*args))
    except Exception:
        return 'refused'


def shown(value):
    if isinstance(value, objects_base.Object):
        return value.obj_to_primitive()
    if isinstance(value, list):
        return [shown(each) for each in value]
    return type(value) if value is None else value


class TestKinds(base.TestCase):

    def setUp(self):
        super().setUp()
        self.kinds = [
            (newest(), kind)
            for [newest, *_] in objects_base.Registry.obj_classes().values()
            for kind in newest._kinds.values()]

    def test_short_way_of_reading_ends_where_the_long_one_does(self):
        for obj, kind in self.kinds:
            for value in ANYTHING:
                if type(value) in kind.plain:
                    continue
                short = outcome(kind.read, obj, value)
                if short is not objects_base.OTHER:
                    self.assertEqual(outcome(
                        lambda: kind.field.coerce(
                            obj, kind.name, kind.field.from_primitive(
                                obj, kind.name, value))),
                        short, (kind.name, value))

    def test_short_way_of_taking_ends_where_the_long_one_does(self):
        for obj, kind in self.kinds:
            for value in ANYTHING:
                short = (value if type(value) in kind.plain
                         else kind.take(value))
                if short is not objects_base.OTHER:
                    self.assertEqual(
                        outcome(kind.field.coerce, obj, kind.name, value),
                        shown(short), (kind.name, value))

    def test_short_way_of_writing_ends_where_the_long_one_does(self):
        for obj, kind in self.kinds:
            for value in ANYTHING:
                kept = outcome(kind.field.coerce, obj, kind.name, value)
                if kept == 'refused' or type(value) in objects_base.PLAIN:
                    continue
                kept = kind.field.coerce(obj, kind.name, value)
                self.assertEqual(
                    kind.field.to_primitive(obj, kind.name, kept),
                    kind.write(obj, kept), (kind.name, value))

    def test_what_is_kept_is_not_what_came(self):
        for name, came in (('ignore_hosts', ['h']),
                           ('scheduler_hints', {'group': ['g']})):
            spec = objects.RequestSpec(**{name: came})

            spec.get(name).clear()

            self.assertTrue(came)

    def test_time_that_tells_its_zone_is_left_to_the_field(self):
        kind = objects_base.kind_of('at', fields.DateTimeField())

        self.assertIs(
            objects_base.OTHER, kind.read(None, '2026-01-02T03:04:05Z'))
        self.assertIs(objects_base.OTHER, kind.take(TIME))

    def test_every_field_here_has_a_short_way(self):
        for obj, kind in self.kinds:
            if not isinstance(kind.field, objects_base.SetOfStringsField):
                self.assertIsNot(objects_base.Kind, type(kind), kind.name)
