# SPDX-License-Identifier: Apache-2.0
"""Finding what can be changed in a module."""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
import pathlib
from typing import Any

from cosmic_ray import ast
from cosmic_ray import mutating
from cosmic_ray.operators import operator


@dataclasses.dataclass(frozen=True, order=True)
class Mutant:
    """A change of a module that is not made yet.

    :param module: its path from the root of the tree
    :param place: line and column
    :param occurrence: which one of its kind it is in the module
    :param function: what it is in, ``Class.method``
    """

    module: str
    place: tuple[int, int]
    kind: str
    occurrence: int
    function: str

    def make(
        self, source: str, kinds: Mapping[str, operator.Operator]
    ) -> 'Change | None':
        """Return the change, or None if it is none or cannot be read."""
        text = mutating.mutate_code(
            source, kinds[self.kind], self.occurrence)
        if text is None or text == source:
            return None
        try:
            compile(text, self.module, 'exec')
        except SyntaxError:
            return None
        return Change(text, _told(source, text))


@dataclasses.dataclass(frozen=True)
class Change:
    """A module as it is when a mutant is made.

    :param told: the lines that are another, before and after
    """

    text: str
    told: str


def find(
    root: pathlib.Path, module: str, kinds: Mapping[str, operator.Operator]
) -> list[Mutant]:
    """Return what can be changed in a module's functions."""
    tree = ast.get_ast_from_path(root / module)
    found = []
    for kind, each in kinds.items():
        positions = (
            (node, start) for node in ast.ast_nodes(tree)
            for start, _ in each.mutation_positions(node))
        found += [
            Mutant(module, start, kind, occurrence, _function(node))
            for occurrence, (node, start) in enumerate(positions)
            if _counts(node)]
    return sorted(found)


def _counts(node: Any) -> bool:
    """Whether a change here is one of what a function does.

    What is said in the log is not, nor are types and assertions, which tell
    a type checker what holds anyway. What is outside of functions is mostly
    options, bounds and names.
    """
    inner, outer = node, node.parent
    if inner.type == 'assert_stmt':
        return False
    while outer is not None:
        if outer.type == 'annassign' and inner is outer.children[1]:
            return False
        if (inner.type == 'simple_stmt'
                and inner.get_first_leaf().value == 'LOG'):
            return False
        if outer.type == 'assert_stmt':
            return False
        if outer.type == 'funcdef':
            return inner is outer.children[-1]
        inner, outer = outer, outer.parent
    return False


def _function(node: Any) -> str:
    return '.'.join(reversed([*_names(node)]))


def _names(node: Any) -> Iterator[str]:
    while node is not None:
        if node.type in ('funcdef', 'classdef'):
            yield node.name.value
        node = node.parent


def _told(before: str, after: str) -> str:
    lines = list(difflib.unified_diff(
        before.splitlines(), after.splitlines(), lineterm='', n=0))[3:]
    sides = [' '.join(line[1:].strip() for line in lines
                      if line.startswith(sign)) for sign in '-+']
    return ' → '.join(sides)
