# SPDX-License-Identifier: Apache-2.0
"""Removal of passwords from URLs."""

import re
import string

#: A scheme, or the field of a template that stands for one.
_SCHEME = re.compile(r'[a-z][a-z0-9+._-]*|\{scheme\}', re.I)

#: Characters of a scheme, and those that cannot be its first.
_SCHEME_OTHER = string.digits + '+._-'
_SCHEME_ANY = string.ascii_letters + _SCHEME_OTHER

#: Characters that are examined after the start of a URL in a text.
_QUOTED_MAX = 1024

#: A host with an optional port; other text after a colon is a password.
_PLACE = re.compile(r'(?:\[[^\]]*\]|[^:\[]*)(?::(?:\d+|\{port\d*\}))?')

#: A query up to its first secret.
_SECRET = re.compile(
    r'\?(?:.*?[?&;])??[^?=&;]*(?:pass|pwd|secret|token|key)[^?=&;]*=',
    re.I | re.S)


def mask(url: str | None) -> str:
    """Return a URL without its passwords.

    The text between the scheme and the last ``@`` may have a password with any
    characters, so only the first user name is kept. A query is cut at its
    first secret. A URL that cannot be parsed safely is cut at that point.
    """
    if not url:
        return ''
    scheme, separator, rest = url.partition('://')
    if not separator or not _SCHEME.fullmatch(scheme):
        return '****'
    secret = _SECRET.search(rest)
    end = secret.end() if secret else len(rest)
    shown, hidden = rest[:end], rest[end:]
    user, colon, _ = shown.partition(':')
    credentials, at, place = shown.rpartition('@')
    if '@' in hidden or not (at or _names_hosts(shown)):
        return f'{scheme}://{user}{colon}****'
    if ':' in credentials:
        shown = f'{user}:****@{place}'
    return scheme + separator + shown + ('****' if secret else '')


def mask_text(text: str) -> str:
    """Return a text without the passwords of the URLs in it.

    A password may have any character, so the end of a URL is unknown. The text
    after the first URL is masked as a part of it, and the text is cut at the
    second URL.
    """
    value, separator, rest = text.partition('://')
    if not separator:
        return text
    before = value.rstrip(_SCHEME_ANY)
    scheme = value[len(before):].lstrip(_SCHEME_OTHER)
    before = value.removesuffix(scheme)
    if not scheme or len(rest) > _QUOTED_MAX:
        return f'{before}{scheme}://****'
    _, _, shown = mask(f'{scheme}://{rest}').partition('://')
    shown, another, _ = shown.partition('://')
    return f'{before}{scheme}://{shown}' + (another and f'{another}****')


def _names_hosts(rest: str) -> bool:
    """Return whether a URL without credentials begins with its hosts."""
    places = re.split('[/?#]', rest, maxsplit=1)[0].split(',')
    return all(_PLACE.fullmatch(place) for place in places)
