# SPDX-License-Identifier: Apache-2.0
"""The unit tests that a change of one module concerns."""

from collections.abc import Iterable
import pathlib

import grimp

from tests.unit import tidy

TOP = pathlib.Path(__file__).resolve().parents[1]


#: More test modules than these take longer than a change should wait.
MODULES_MAX = 40


class NoModule(Exception):
    """A path that is no module of the product, or one without tests."""


def unit_tests(path: str) -> list[str]:
    """Return the test modules of a module, and of those that import it.

    The tests of the module itself come first. They are all if most modules
    import it: the tests of those are nearly those of the whole part.

    :raises NoModule: names the path
    """
    file = pathlib.Path(path)
    file = (file if file.is_absolute() else TOP / file).resolve()
    if not (file.is_file() and file.suffix == '.py'
            and TOP / 'cellsched' in file.parents):
        raise NoModule(f'{path} is no module; expected the path of one, such '
                       'as cellsched/cells/gather.py')
    graph = grimp.build_graph(
        'cellsched', cache_dir=str(TOP / '.import_linter_cache'))
    changed = file.relative_to(TOP)
    importers = graph.find_modules_that_directly_import(_name(changed))
    own = _tests({_name(changed)})
    found = [*own, *(each for each in _tests(importers) if each not in own)]
    if not found:
        raise NoModule(f'{path} and the modules that import it have no unit '
                       'tests of their own')
    return found if not own or len(found) <= MODULES_MAX else own


def _tests(modules: Iterable[str]) -> list[str]:
    """Return the test modules of modules, by name."""
    paths = {path.relative_to(TOP).as_posix()
             for path in (TOP / 'cellsched').rglob('*.py')}
    return sorted(
        _name(test) for each in (TOP / 'tests/unit').rglob('test_*.py')
        if (tested := tidy.tested_module(
            test := each.relative_to(TOP), paths)) is not None
        and _name(pathlib.PurePath(tested)) in modules)


def _name(path: pathlib.PurePath) -> str:
    return '.'.join(path.with_suffix('').parts).removesuffix('.__init__')
