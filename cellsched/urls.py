# SPDX-License-Identifier: Apache-2.0
"""URLs that hold passwords, made fit to be seen."""

import re
import string

#: A scheme, or the field of a template that stands for one.
_SCHEME = re.compile(r'[a-z][a-z0-9+._-]*|\{scheme\}', re.I)

#: What a scheme consists of, and what it does not begin with.
_SCHEME_OTHER = string.digits + '+._-'
_SCHEME_ANY = string.ascii_letters + _SCHEME_OTHER

#: Characters after the beginning of a URL in a text that are looked at.
_QUOTED_MAX = 1024

#: A host, and maybe its port; what stands after a colon is a password else.
_PLACE = re.compile(r'(?:\[[^\]]*\]|[^:\[]*)(?::(?:\d+|\{port\d*\}))?')

#: A query up to where its first secret begins.
_SECRET = re.compile(
    r'\?(?:.*?[?&;])??[^?=&;]*(?:pass|pwd|secret|token|key)[^?=&;]*=',
    re.I | re.S)


def mask(url: str | None) -> str:
    """Return the URL with its passwords left out.

    What stands between the scheme and the last ``@`` may hold a password,
    whatever characters it has, so of that only the first user name is kept.
    Nothing is kept of a query from its first secret on. Where nobody can tell
    one from the other, the URL ends there.
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
    """Return a text that may quote URLs, without their passwords.

    Where a URL ends nobody can tell, for a password may have any character.
    So what comes after the first one is masked as if it were a part of it,
    and the text ends where a second one begins.
    """
    said, separator, rest = text.partition('://')
    if not separator:
        return text
    before = said.rstrip(_SCHEME_ANY)
    scheme = said[len(before):].lstrip(_SCHEME_OTHER)
    before = said.removesuffix(scheme)
    if not scheme or len(rest) > _QUOTED_MAX:
        return f'{before}{scheme}://****'
    _, _, shown = mask(f'{scheme}://{rest}').partition('://')
    shown, another, _ = shown.partition('://')
    return f'{before}{scheme}://{shown}' + (another and f'{another}****')


def _names_hosts(rest: str) -> bool:
    """Return whether hosts stand where a URL without credentials has them."""
    places = re.split('[/?#]', rest, maxsplit=1)[0].split(',')
    return all(_PLACE.fullmatch(place) for place in places)
