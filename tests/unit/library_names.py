# SPDX-License-Identifier: Apache-2.0
"""Private names of libraries in the product, found by reading its source.

A private name begins with one underscore. Its library may take it away with
any release.
"""

import ast
import inspect

from tests.unit import tidy

#: A transport driver, which oslo.messaging has no public base for.
ALLOWED = ('cellsched/rpc/local.py',)

#: What libraries tell their users to use or to override, by the library.
PUBLISHED = {
    'builtins': {'_asdict', '_fields', '_make', '_replace'},
    'fixtures': {'_setUp'},
    'nova': {'_weigh_object'},
    'os': {'_exit'},
    'oslo_upgradecheck': {'_upgrade_checks'},
    'oslo_versionedobjects': {'_obj_from_primitive'},
}

#: What Python and SQLAlchemy put into classes by themselves.
MADE = {'_abc_impl', '_compiler_dispatch', '_is_protocol',
        '_is_runtime_protocol'}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def is_private(name):
    return name.startswith('_') and not name.startswith('__')


def imported(source):
    """Complain of an import of a private module or of a private name."""
    if source.is_one_of(ALLOWED):
        return
    for line, name in tidy.imports(source):
        top, *parts = name.split('.')
        if top != 'cellsched' and any(map(is_private, parts)):
            yield f'line {line} imports {name}'


def used(source, classes):
    """Complain of a private attribute that nothing of the product defines.

    What is read of ``self`` must be defined by the class or by one of those
    that it is derived from; what is read of anything else, in its module.

    :param classes: as :func:`own_classes` returns them
    """
    if source.is_one_of(ALLOWED):
        return
    published = set().union(*PUBLISHED.values())
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            known = _inherited(f'{module(source)}.{node.name}', classes)
            for each in _private_attributes(node):
                if _is_own(each) and each.attr not in known | published:
                    yield (f'line {each.lineno}: {each.attr} is defined by '
                           f'no class of ours that {node.name} is derived '
                           'from')
    defined = _defined(source.tree)
    for each in _private_attributes(source.tree):
        if not _is_own(each) and each.attr not in defined | published:
            yield f'line {each.lineno} uses {ast.unparse(each)}'
    for node in source.nodes:
        if (isinstance(node, ast.Call) and len(node.args) > 1
                and ast.unparse(node.func) in ('getattr', 'setattr', 'hasattr')
                and isinstance(node.args[1], ast.Constant)
                and is_private(str(node.args[1].value))
                and node.args[1].value not in published):
            yield f'line {node.lineno} uses {node.args[1].value}'


def overridden(cls):
    """Complain of private names of libraries that a class overrides."""
    for name in vars(cls):
        if not is_private(name) or name.endswith('_') or name in MADE:
            continue
        for parent in inspect.getmro(cls)[1:]:
            library = parent.__module__.partition('.')[0]
            if (library != 'cellsched' and name in vars(parent)
                    and name not in PUBLISHED.get(library, ())):
                yield (f'{cls.__qualname__} overrides {name} of '
                       f'{parent.__module__}.{parent.__qualname__}')


def own_classes(sources):
    """Return what each class defines, and its bases, by its full name."""
    found = {}
    for source in sources:
        bound = tidy.imported_names(source)
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                bases = [each.value if isinstance(each, ast.Subscript)
                         else each for each in node.bases]
                found[f'{module(source)}.{node.name}'] = _defined(node), [
                    tidy.full_name(each, bound)
                    or f'{module(source)}.{ast.unparse(each)}'
                    for each in bases]
    return found


def module(source):
    """Return the dotted name of a source."""
    return source.path.removesuffix('.py').replace('/', '.').removesuffix(
        '.__init__')


def _inherited(name, classes):
    defined, bases = classes.get(name, ((), ()))
    return set(defined).union(*(_inherited(each, classes) for each in bases))


def _private_attributes(tree):
    return (node for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and is_private(node.attr)
            and not (isinstance(node.ctx, ast.Store) and _is_own(node)))


def _is_own(node):
    if isinstance(node.value, ast.Name):
        return node.value.id in ('self', 'cls')
    return (isinstance(node.value, ast.Call)
            and ast.unparse(node.value) == 'super()')


def _defined(tree):
    """Return the names that are defined or assigned somewhere in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            names.add(node.name)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store) and _is_own(node):
                names.add(node.attr)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # __slots__ and the like.
            names.add(node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            # vars(self).update(...)
            names.add(node.arg)
    return names
