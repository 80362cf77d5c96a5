# SPDX-License-Identifier: Apache-2.0
"""Groups of servers that are placed with regard to each other."""

from typing import Any
from typing import Final

from oslo_versionedobjects import fields

from cellsched import exception
from cellsched.objects import base

#: What a group can ask of where its members are; Nova's names.
POLICIES: Final = ('affinity', 'anti-affinity', 'soft-affinity',
                   'soft-anti-affinity')

#: What members can be spread over.
SPREADS: Final = ('cell', 'az', 'host')

#: The bounds of the rules that are numbers.
BOUNDS: Final = {'max_server_per_host': (1, 2 ** 31 - 1),
                 'max_skew': (1, 1000)}


@base.Registry.register
class InstanceGroup(base.Object):
    """A group of servers, with a policy and its rules.

    Rules are texts on the wire, under ``_rules``; read them by :attr:`rules`.
    ``max_server_per_host`` is Nova's; ``spread`` (``cell``, ``az``, ``host``)
    and ``max_skew`` are ours, and go with any policy or none. ``hosts`` is
    what the sender knew of the members' hosts, and may be empty.
    """

    VERSION = '1.11'

    fields = {
        'id': fields.IntegerField(),
        'user_id': fields.StringField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'uuid': fields.UUIDField(),
        'name': fields.StringField(nullable=True),
        'policies': fields.ListOfStringsField(nullable=True),
        'members': fields.ListOfStringsField(nullable=True),
        'hosts': fields.ListOfStringsField(nullable=True),
        'policy': fields.StringField(nullable=True),
        '_rules': fields.DictOfStringsField(nullable=True),
    }

    def __init__(self, context: Any = None, **values: Any) -> None:
        if 'rules' in values:
            values['_rules'] = values.pop('rules')
        super().__init__(context, **values)

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> 'InstanceGroup':
        self = super()._obj_from_primitive(context, objver, primitive)
        assert isinstance(self, cls)
        # Before 1.11 a group had its one policy in the list alone.
        if not self.obj_attr_is_set('policy') and self.get('policies'):
            self.policy = self.policies[0]
        # A rule that cannot be read is told here, by whom it came from, and
        # not in the midst of a decision.
        _ = self.rules
        return self

    @property
    def rules(self) -> dict[str, Any]:
        """The rules that are known, numbers as numbers.

        :raises cellsched.exception.InvalidField: a rule is out of bounds
        """
        texts = self.get('_rules') or {}
        rules: dict[str, Any] = {
            name: _number(name, texts[name])
            for name in BOUNDS if name in texts}
        if 'spread' in texts:
            rules['spread'] = texts['spread']
            if rules['spread'] not in SPREADS:
                raise exception.InvalidField(
                    where='InstanceGroup', field='rules.spread',
                    expected='one of ' + ', '.join(SPREADS))
        return rules


def _number(name: str, text: str) -> int:
    least, most = BOUNDS[name]
    # A number within bounds is short; to read a long one would take long.
    if text.isascii() and text.isdigit() and len(text) <= 10:
        if least <= int(text) <= most:
            return int(text)
    raise exception.InvalidField(
        where='InstanceGroup', field=f'rules.{name}',
        expected=f'a whole number from {least} to {most}')
