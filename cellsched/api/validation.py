# SPDX-License-Identifier: Apache-2.0
"""Validation of users' input."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched import exception

TEXT_MAX = 255

#: Values that one scheduler hint may have.
HINT_VALUES_MAX = 100

#: Scheduler hints that are read whatever filters are enabled.
HINTS = frozenset({'group'})

#: Characters of a hint's value, where more than other texts may have.
HINT_LENGTHS = {'query': 16384}

#: Tags of one server, and characters of one.
TAGS_MAX = 50
TAG_LENGTH = 60

#: Characters of a wrong value that a message quotes.
_SHOWN_MAX = 60


@dataclasses.dataclass(frozen=True)
class ServerBounds:
    """The bounds that a deployment sets.

    :param instances_max: servers that one request may ask for
    :param limit_max: servers that one listing returns
    :param hints: returns the names of the scheduler hints that enabled
        filters read, and None for any that does not begin with ``_``; is
        asked when somebody has a hint
    :param group_members_max: servers that a server group may have
    """

    instances_max: int
    limit_max: int
    hints: Callable[[], frozenset[str] | None]
    group_members_max: int = 1000


@dataclasses.dataclass(frozen=True)
class ServerRequest:
    """A request for servers, as its user said it."""

    name: Any
    flavor: Any
    image_ref: Any
    availability_zone: Any
    hints: Any
    min_count: Any
    max_count: Any
    tags: Any = ()
    block_device_mappings: Any = ()

    def check(self, bounds: ServerBounds) -> None:
        """Make sure that it can be taken as it is.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        """
        where = 'server'
        check_text(where, 'flavor', self.flavor)
        for name in ('image_ref', 'availability_zone'):
            if getattr(self, name) is not None:
                check_text(where, name, getattr(self, name))
        most = bounds.instances_max
        check_count(where, 'min_count', self.min_count, most)
        check_count(where, 'max_count', self.max_count, most, self.min_count)
        # Servers of one request have their numbers after the name.
        suffix = f'-{self.max_count}' if self.max_count > 1 else ''
        check_text(where, 'name', self.name, TEXT_MAX - len(suffix))
        if not isinstance(self.hints, Mapping):
            raise exception.InvalidField(
                where=where, field='hints',
                expected=f'a mapping, not {shown(self.hints)}')
        for hint, values in self.hints.items():
            _check_hint_name(where, hint, bounds.hints())
            _check_hint(where, hint, values)
        if len(self.hints.get('group', [None])) != 1:
            raise exception.InvalidField(
                where=where, field='hints.group',
                expected='the id of one server group')
        check_tags(where, self.tags)

    @property
    def group(self) -> str | None:
        """The server group that its servers are to be members of."""
        values = self.hints.get('group')
        return values[0] if values else None


def check_text(
    where: str, field: str, value: Any, most: int = TEXT_MAX
) -> None:
    """Make sure that a value is a name that can be kept and shown.

    :raises cellsched.exception.InvalidField: it is not
    """
    good = (isinstance(value, str) and 0 < len(value) <= most
            and value.isprintable() and not value.isspace())
    if not good:
        raise exception.InvalidField(
            where=where, field=field,
            expected=f'1 to {most} printable characters, not '
                     f'{shown(value)}')


def check_count(
    where: str, field: str, value: Any, most: int, least: int = 1
) -> None:
    """Make sure that a value is a whole number between two bounds.

    :raises cellsched.exception.InvalidField: it is not
    """
    good = (isinstance(value, int) and not isinstance(value, bool)
            and least <= value <= most)
    if not good:
        raise exception.InvalidField(
            where=where, field=field,
            expected=f'a whole number from {least} to {most}, not '
                     f'{shown(value)}')


def check_tags(where: str, tags: Any) -> None:
    """Make sure that values can be the tags of a server.

    :raises cellsched.exception.InvalidField: they cannot
    """
    if not isinstance(tags, (list, tuple)) or len(tags) > TAGS_MAX:
        raise exception.InvalidField(
            where=where, field='tags',
            expected=f'a list of at most {TAGS_MAX} texts')
    for tag in tags:
        check_text(where, 'tags', tag, TAG_LENGTH)
        # Cells may keep no characters beyond these.
        if '/' in tag or ',' in tag or max(tag) > '\uffff':
            raise exception.InvalidField(
                where=where, field='tags',
                expected='texts without slash, comma or characters beyond '
                         f'U+FFFF, not {shown(tag)}')


def check_choice(
    where: str, field: str, value: Any, choices: Sequence[str]
) -> None:
    """Make sure that a value is one of a few texts.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and value in choices):
        raise exception.InvalidField(
            where=where, field=field,
            expected=f'one of {", ".join(choices)}, not {shown(value)}')


def _check_hint_name(
    where: str, hint: Any, known: frozenset[str] | None
) -> None:
    if known is None:
        check_text(where, 'hints', hint)
        if hint.startswith('_'):
            raise exception.InvalidField(
                where=where, field='hints',
                expected=f'no name that begins with _, as {shown(hint)}')
    elif hint not in known | HINTS:
        names = ', '.join(sorted(known | HINTS))
        raise exception.InvalidField(
            where=where, field='hints',
            expected='names that are read here, or by an enabled filter ('
                     f'{names}), not {shown(hint)}')


def _check_hint(where: str, hint: str, values: Any) -> None:
    if not isinstance(values, (list, tuple)) or (
            not 1 <= len(values) <= HINT_VALUES_MAX):
        raise exception.InvalidField(
            where=where, field=f'hints.{hint}',
            expected=f'a list of 1 to {HINT_VALUES_MAX} values')
    for value in values:
        check_text(where, f'hints.{hint}', value,
                   HINT_LENGTHS.get(hint, TEXT_MAX))


def shown(value: Any) -> str:
    """Return a value as it may stand in a message: short, and on one line."""
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to write very large ones.
        return 'one that large'
    if isinstance(value, (str, bytes)):
        value = value[:_SHOWN_MAX]
    text = ascii(value)
    return text if len(text) <= _SHOWN_MAX else f'{text[:_SHOWN_MAX - 3]}...'
