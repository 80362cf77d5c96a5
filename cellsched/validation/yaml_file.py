# SPDX-License-Identifier: Apache-2.0
"""Strict reading of YAML files of users, within limits."""

import pathlib
from typing import Any

import yaml

from cellsched.validation.json_schema import invalid

#: Values in a document, each counted as often as aliases repeat it.
VALUES_MAX = 1_000_000

#: Lists and mappings within each other.
DEPTH_MAX = 50


def read(path: pathlib.Path) -> Any:
    """Return the content of a YAML file.

    :raises cellsched.exception.InvalidField: names the file, the line and
        the expectation
    """
    try:
        return yaml.load(path.read_text(encoding='utf-8'), _Loader)
    except OSError as exc:
        raise invalid(
            path, (), 'a readable file',
            f'the file cannot be read: {exc.strerror}') from None
    except UnicodeDecodeError:
        raise invalid(path, (), 'text in UTF-8') from None
    except yaml.YAMLError as exc:
        mark = getattr(exc, 'problem_mark', None)
        where = f'line {mark.line + 1}' if mark else 'document'
        problem = getattr(exc, 'problem', None) or 'it cannot be parsed'
        raise invalid(path, (where,), 'valid YAML', problem) from None


class _Loader(yaml.SafeLoader):
    """Makes plain data; a few lines cannot be made into very much of it."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._values = 0
        self._depth = 0
        #: The values of each node that is complete.
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        before = self._values
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _error(event, f'nested deeper than {DEPTH_MAX} times')
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if not isinstance(event, yaml.AliasEvent):
            self._values += 1
            self._sizes[node] = self._values - before
        elif node in self._sizes:
            self._values += self._sizes[node]
        else:
            raise _error(event, f'*{event.anchor} is within itself')
        if self._values > VALUES_MAX:
            raise _error(event, f'more than {VALUES_MAX} values')
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, OverflowError,
                ValueError) as exc:
            # A number or a date that only looks like one, or a tag such as
            # !!bool or !!timestamp of another text.
            raise _error(node, str(exc) if isinstance(exc, ValueError)
                         else 'it does not fit its tag') from None

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        if not isinstance(node, yaml.MappingNode):
            raise _error(node, 'it is not a mapping')
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _error(key, f'{key.value!r:.60} is given twice')
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else key)
        return super().construct_mapping(node, deep)


def _error(where: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)
