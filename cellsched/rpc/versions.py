# SPDX-License-Identifier: Apache-2.0
"""Versions of messages, and pins: the newest version that a client may send.

During a rolling upgrade, a client must not send messages that an older server
does not support. ``[upgrade_levels]`` sets the version for each topic: a
number, or the release of the oldest server.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools
import re

from cellsched import exception

#: A client's version cap: the newest version that it may send, a function
#: that returns it, or None for no cap.
Cap = str | Callable[[], str | None] | None

#: The pin for automatic detection of the version.
AUTO = 'auto'

_LATER_THAN_PIKE = (
    'queens', 'rocky', 'stein', 'train', 'ussuri', 'victoria', 'wallaby',
    'xena', 'yoga', 'zed', '2023.1', 'antelope', '2023.2', 'bobcat',
    '2024.1', 'caracal', '2024.2', 'dalmatian', '2025.1', 'epoxy', '2025.2',
    'flamingo', '2026.1', 'gazpacho', '2026.2', 'hibiscus')

#: RPC versions of releases, by topic. The scheduler has Nova's versions. The
#: other topics are specific to this project; all releases have the newest.
RELEASES: Mapping[str, Mapping[str, str]] = {
    'scheduler': {
        'grizzly': '2.6', 'havana': '2.9', 'icehouse': '3.0', 'juno': '3.0',
        'kilo': '4.2', 'liberty': '4.2', 'mitaka': '4.3', 'newton': '4.3',
        'ocata': '4.3', 'pike': '4.4', **dict.fromkeys(_LATER_THAN_PIKE, '4.5')
    },
}

_NUMBER = re.compile(r'[0-9]{1,4}\.[0-9]{1,4}')

#: Maximum length of a pin that an error quotes.
_QUOTED_MAX = 40


def cap(topic: str, newest: str, pin: Cap) -> Cap:
    """Resolve a pin, if the value is one; see :func:`read_pin`."""
    return read_pin(topic, newest, pin) if isinstance(pin, str) else pin


def read_pin(
    topic: str, newest: str, pin: str, accepted: Iterable[str] = (),
) -> str:
    """Return the version for a pin in the configuration.

    :param newest: the newest version
    :param accepted: further allowed values, for the error
    :raises cellsched.exception.ConfigurationInvalid: it is no version that can
        be sent, and no release
    """
    releases = RELEASES.get(topic, {})
    version = releases.get(pin.lower(), pin)
    if _NUMBER.fullmatch(version) and can_send(version, newest):
        return version
    quoted = repr(pin[:_QUOTED_MAX])
    if version is not pin:
        quoted += f' ({version})'
    raise exception.ConfigurationInvalid(
        field=f'[upgrade_levels] {topic}',
        problem=f'{quoted} is not supported',
        expected=_expected(releases, newest, accepted))


def check(topic: str, cap: Cap, least: str | None) -> None:
    """Check that a cap allows the version that the sender requires.

    A cap that is not resolved yet is not checked.

    :raises cellsched.exception.ConfigurationInvalid: the cap is too low
    """
    if least is None or callable(cap) or can_send(least, cap):
        return
    raise exception.ConfigurationInvalid(
        field=f'[upgrade_levels] {topic}',
        problem=f'this service needs version {least}, and the limit is {cap}',
        expected=f'{least} or later, or no value')


@functools.lru_cache(256)
def can_send(version: str, cap: str | None) -> bool:
    """Return whether a client with a cap may send a version.

    A server supports messages of its major version up to its minor version. So
    this also tells whether a server of version ``cap`` supports the message.
    """
    if cap is None:
        return True
    major, minor = _numbers(version)
    cap_major, cap_minor = _numbers(cap)
    return major == cap_major and minor <= cap_minor


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split('.')
    return int(major), int(minor)


def _expected(
    releases: Mapping[str, str], newest: str, accepted: Iterable[str]
) -> str:
    major, minor = _numbers(newest)
    expected = f'{major}.0 to {newest}' if minor else newest
    names = [*accepted, *(
        name for name, version in releases.items()
        if can_send(version, newest))]
    if names:
        expected += f', or one of: {", ".join(names)}'
    return expected
