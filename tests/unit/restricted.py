# SPDX-License-Identifier: Apache-2.0
"""Objects of which only what a protocol names can be used."""


class Restricted:
    """Has the attributes of a protocol, and no others of an object."""

    def __init__(self, protocol, wrapped):
        self._names = {name for name in vars(protocol)
                       if not name.startswith('_')}
        self._wrapped = wrapped

    def __getattr__(self, name):
        if name not in self._names:
            raise AttributeError(f'the contract names no {name}')
        return getattr(self._wrapped, name)
