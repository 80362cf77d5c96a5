# SPDX-License-Identifier: Apache-2.0
"""Draw the packages of the source as they are.

The layers come from ``.importlinter``; what is in a package, and what it
imports, from the source. Three directives show them: ``layers``,
``package-imports`` and ``packages``.
"""

import ast
import collections
import configparser
import dataclasses
import functools
import html
import pathlib

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import docutils

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = 'cellsched'

#: Directories whose modules are not listed.
_UNSHOWN = ('migrations', '__pycache__')


@dataclasses.dataclass
class Package:
    """A top module or package.

    :param imports: how many modules here import another package, by its name
    """

    name: str
    purpose: str
    modules: list[str]
    imports: collections.Counter


def read_layers() -> list[list[str]]:
    """Return the names of the packages, layer by layer, the highest first."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / '.importlinter', encoding='utf-8')
    lines = parser['importlinter:contract:layers']['layers'].split('\n')
    return [[name.strip(' ()') for name in line.split('|')]
            for line in lines if line.strip()]


# A read of all sources for each directive takes a fifth of the build.
@functools.cache
def read_packages() -> dict[str, Package]:
    """Return the packages that exist, by name."""
    packages = {}
    for path in sorted((ROOT / PACKAGE).iterdir()):
        name = path.name.removesuffix('.py')
        if path.is_dir() and (path / '__init__.py').exists():
            packages[name] = _read_package(
                name, path, sorted(path.rglob('*.py')))
        elif path.suffix == '.py' and name != '__init__':
            packages[name] = _read_package(name, path.parent, [path])
    return packages


def _read_package(
    name: str, top: pathlib.Path, paths: list[pathlib.Path]
) -> Package:
    purpose, modules, imports = '', [], collections.Counter()
    for path in paths:
        if set(_UNSHOWN) & set(path.parts):
            continue
        tree = ast.parse(path.read_text(encoding='utf-8'))
        docstring = ast.get_docstring(tree) or ''
        if not purpose:
            purpose = docstring.partition('\n')[0]
        if path.name != '__init__.py' and len(paths) > 1:
            parts = path.relative_to(top).with_suffix('').parts
            modules.append('.'.join(parts))
        imports.update(_imported_packages(tree) - {name})
    return Package(name, purpose, modules, imports)


def _imported_packages(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f'{node.module}.{alias.name}' for alias in node.names)
    return {name.split('.')[1] for name in found
            if name.startswith(f'{PACKAGE}.')}


# Text has the colour of the page and boxes are transparent, so that the image
# is readable on light and dark pages.
_STYLE = 'font-family: sans-serif; font-size: 12px; fill: currentColor'
_BUILT = 'fill="#5b8dbd" fill-opacity="0.15" stroke="#5b8dbd"'
_UNBUILT = 'fill="none" stroke="#999" stroke-dasharray="4 3"'


def draw_layers(layers: list[list[str]], packages: dict[str, Package]) -> str:
    """Return an image of the layers, in which imports point downwards."""
    width, height, gap = 640, 26, 6
    parts = []
    for row, names in enumerate(layers):
        package_width = (width - gap * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            x, y = column * (package_width + gap), row * (height + gap)
            look = _BUILT if name in packages else _UNBUILT
            title = (packages[name].purpose if name in packages
                     else 'not built yet')
            parts.append(
                f'<g><title>{html.escape(title)}</title>'
                f'<rect x="{x:.0f}" y="{y}" width="{package_width:.0f}" '
                f'height="{height}" rx="3" {look}/>'
                f'<text x="{x + package_width / 2:.0f}" y="{y + 17}" '
                f'text-anchor="middle">{name}</text></g>')
    return _svg(width, len(layers) * (height + gap), parts)


def draw_imports(layers: list[list[str]], packages: dict[str, Package]) -> str:
    """Return an image of imports: rows import columns."""
    names = [name for layer in layers for name in layer if name in packages]
    cell, left, top = 18, 90, 80
    parts = []
    for row, name in enumerate(names):
        y = top + row * cell
        parts.append(f'<text x="{left - 6}" y="{y + 13}" '
                     f'text-anchor="end">{name}</text>')
        parts.append(
            f'<text transform="translate({left + row * cell + 13},{top - 6}) '
            f'rotate(-60)">{name}</text>')
        for column, other in enumerate(names):
            count = packages[name].imports[other]
            look = ('fill="#5b8dbd"' if count else
                    'fill="#999" fill-opacity="0.5"' if row == column else
                    'fill="#999" fill-opacity="0.1"')
            title = f'{name} imports {other} in {count} of its modules'
            parts.append(
                f'<rect x="{left + column * cell}" y="{y}" '
                f'width="{cell - 2}" height="{cell - 2}" {look}>'
                f'<title>{title if count else ""}</title></rect>')
    size = len(names) * cell
    return _svg(left + size + 60, top + size, parts)


def _svg(width: int, height: int, parts: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{height}" viewBox="-1 -1 {width + 2} {height + 2}" '
            f'style="{_STYLE}; max-width: 100%">{"".join(parts)}</svg>')


def table(layers: list[list[str]], packages: dict[str, Package]) -> list[str]:
    """Return reStructuredText that lists the packages from the lowest."""
    lines = ['.. list-table::', '   :header-rows: 1',
             '   :widths: 14 36 30 20', '',
             '   * - Package', '     - Contents', '     - Modules',
             '     - Imports']
    for layer in reversed(layers):
        for name in layer:
            if name in packages:
                package = packages[name]
                lines += [f'   * - ``{name}``', f'     - {package.purpose}',
                          '     - ' + ', '.join(package.modules),
                          '     - ' + ', '.join(sorted(package.imports))]
    return lines


class _Directive(docutils.SphinxDirective):

    def run(self) -> list[nodes.Node]:
        for path in (ROOT / PACKAGE).rglob('*.py'):
            self.env.note_dependency(str(path))
        return self.draw(read_layers(), read_packages())


class Layers(_Directive):

    def draw(self, layers, packages):
        return [nodes.raw('', draw_layers(layers, packages), format='html')]


class PackageImports(_Directive):

    def draw(self, layers, packages):
        return [nodes.raw('', draw_imports(layers, packages), format='html')]


class Packages(_Directive):

    def draw(self, layers, packages):
        container = nodes.container()
        self.state.nested_parse(
            StringList(table(layers, packages), source='packages'),
            self.content_offset, container)
        return container.children


def setup(app):
    app.add_directive('layers', Layers)
    app.add_directive('package-imports', PackageImports)
    app.add_directive('packages', Packages)
    return {'parallel_read_safe': True}
