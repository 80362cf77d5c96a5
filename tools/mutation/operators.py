# SPDX-License-Identifier: Apache-2.0
"""Kinds of changes: cosmic-ray's, and those that remove a guard.

Cosmic-ray replaces what is there by something else. What is forgotten in a
review is left out as a rule: a statement, an argument, a part of a condition.
"""

from collections.abc import Iterator
from typing import Any

from cosmic_ray.operators import operator
from cosmic_ray import plugins
from parso.python import tree

Position = tuple[tuple[int, int], tuple[int, int]]

#: Of cosmic-ray's. Most others make what fails wherever it is looked at.
CHOSEN = (
    'AddNot', 'NumberReplacer', 'ReplaceAndWithOr',
    'ReplaceBinaryOperator_Add_Sub',
    'ReplaceBinaryOperator_BitAnd_BitOr',
    'ReplaceBinaryOperator_BitOr_BitAnd', 'ReplaceBinaryOperator_Mul_Div',
    'ReplaceBinaryOperator_Sub_Add', 'ReplaceBreakWithContinue',
    'ReplaceComparisonOperator_Eq_NotEq',
    'ReplaceComparisonOperator_GtE_Gt', 'ReplaceComparisonOperator_Gt_GtE',
    'ReplaceComparisonOperator_IsNot_Is',
    'ReplaceComparisonOperator_Is_IsNot',
    'ReplaceComparisonOperator_LtE_Lt', 'ReplaceComparisonOperator_Lt_LtE',
    'ReplaceComparisonOperator_NotEq_Eq', 'ReplaceContinueWithBreak',
    'ReplaceFalseWithTrue', 'ReplaceOrWithAnd', 'ReplaceTrueWithFalse',
    'ReplaceUnaryOperator_Delete_Not', 'ZeroIterationForLoop',
)

_CALLS = ('atom_expr', 'power', 'await')
_LEFT_OUT = (*_CALLS, 'expr_stmt', 'del_stmt', 'raise_stmt', 'return_stmt')


class RemoveStatement(operator.Operator):
    """Does nothing instead of a call, an assignment, a raise or a return.

    Assignments to plain names stay: without them the next line fails.
    """

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type == 'simple_stmt':
            first = node.children[0]
            if first.type == 'expr_stmt' and _binds_a_name(first):
                return
            if first.get_code().strip() == 'return None':
                # At the end of a function, that is what happens anyhow.
                return
            if first.type in _LEFT_OUT or first == 'return':
                yield first.start_pos, first.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        first = node.children[0]
        node.children[0] = tree.Keyword(
            'pass', first.start_pos, first.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[operator.Example, ...]:
        return (operator.Example('forget(it)\n', 'pass\n'),
                operator.Example('if a:\n    return b\n',
                                 'if a:\n    pass\n'),
                operator.Example('self.a = b\n', 'pass\n'))


class CatchNothing(operator.Operator):
    """Lets each error pass; cosmic-ray's own knows no names with dots."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type == 'except_clause':
            caught = node.children[1]
            yield caught.start_pos, caught.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.children[1] = tree.Name(
            '()', node.children[1].start_pos, prefix=' ')
        return node

    @classmethod
    def examples(cls) -> tuple[operator.Example, ...]:
        return (operator.Example('try: a\nexcept b.C as exc: pass\n',
                                 'try: a\nexcept () as exc: pass\n'),
                operator.Example('try: a\nexcept (B, c.D): pass\n',
                                 'try: a\nexcept (): pass\n'))


class RemoveOperand(operator.Operator):
    """Leaves out one part of what ``and`` and ``or`` join."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type in ('and_test', 'or_test'):
            for operand in node.children[::2]:
                yield operand.start_pos, operand.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        _without(node, index)
        return node

    @classmethod
    def examples(cls) -> tuple[operator.Example, ...]:
        return (operator.Example('a and b\n', ' b\n'),
                operator.Example('a and b\n', 'a\n', 1),
                operator.Example('a or b or c\n', 'a or c\n', 1))


class RemoveElement(operator.Operator):
    """Leaves out an element of a tuple, a list or a set of several."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if _has_elements(node):
            for element in node.children[::2]:
                yield element.start_pos, element.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        _without(node, index)
        return node

    @classmethod
    def examples(cls) -> tuple[operator.Example, ...]:
        return (operator.Example('[a, b]\n', '[a]\n', 1),
                operator.Example('(a, b, c)\n', '(a, c)\n', 1))


class ReplaceArgument(operator.Operator):
    """Gives ``None`` for a name by place; leaves out what has a name."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        for argument in _arguments(node):
            yield argument.start_pos, argument.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        argument = list(_arguments(node))[index]
        holder = argument.parent
        if argument.type != 'argument':
            place = holder.children.index(argument)
            holder.children[place] = tree.Keyword(
                'None', argument.start_pos, argument.get_first_leaf().prefix)
        elif holder.type == 'arglist':
            _without(holder, holder.children.index(argument) // 2)
        else:
            holder.children.remove(argument)
        return node

    @classmethod
    def examples(cls) -> tuple[operator.Example, ...]:
        return (operator.Example('f(a, b)\n', 'f(a, None)\n', 1),
                operator.Example('f(a, b=c)\n', 'f(a)\n', 1),
                operator.Example('f(a=b)\n', 'f()\n'))


def made() -> dict[str, operator.Operator]:
    """Return the operators by name."""
    own = (CatchNothing, RemoveStatement, RemoveOperand, RemoveElement,
           ReplaceArgument)
    return {
        **{name: plugins.get_operator(f'core/{name}')() for name in CHOSEN},
        **{cls.__name__: cls() for cls in own}}


def _binds_a_name(statement: Any) -> bool:
    target = statement.children[0]
    return (target.type not in _CALLS
            and statement.children[1].type != 'operator'
            or target.type not in _CALLS and statement.children[1] == '=')


def _without(node: Any, place: int) -> None:
    """Leave out one of what separators stand between, and a separator."""
    at = 2 * place
    if at + 1 < len(node.children):
        node.children[at + 1].prefix = ''
        del node.children[at:at + 2]
    else:
        del node.children[at - 1:]


def _has_elements(node: Any) -> bool:
    return (node.type == 'testlist_comp' and len(node.children) > 2
            and node.children[1] == ',') or (
        node.type == 'dictorsetmaker' and len(node.children) > 2
        and node.children[1] == ',')


def _arguments(node: Any) -> Iterator[Any]:
    """Yield the arguments of a call that can be changed."""
    if node.type != 'trailer' or node.children[0] != '(':
        return
    inside = node.children[1:-1]
    if inside and inside[0].type == 'arglist':
        inside = inside[0].children[::2]
    for argument in inside:
        is_named = argument.type == 'argument'
        if is_named and argument.children[1] != '=':
            # Several in one, or a generator.
            continue
        if is_named or _is_plain(argument):
            yield argument


def _is_plain(argument: Any) -> bool:
    """Whether it is a name or an attribute, which may be another one's.

    Without a connection nothing is done at all, and all else is made for
    where it stands.
    """
    if argument.type == 'name':
        return argument.value != 'connection'
    return argument.type in _CALLS and all(
        child.type == 'name' or child.type == 'trailer'
        and child.children[0] == '.' for child in argument.children)
