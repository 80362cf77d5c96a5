# SPDX-License-Identifier: Apache-2.0
"""URLs that hold passwords, made fit to be seen."""

import re

_SCHEME = re.compile(r'[a-z][a-z0-9+._-]*', re.I)

#: A host, and maybe its port; what stands after a colon is a password else.
_PLACE = re.compile(r'(?:\[[^\]]*\]|[^:\[]*)(?::\d+)?')

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


def _names_hosts(rest: str) -> bool:
    """Whether hosts stand where they do in a URL without credentials."""
    places = re.split('[/?#]', rest, maxsplit=1)[0].split(',')
    return all(_PLACE.fullmatch(place) for place in places)
