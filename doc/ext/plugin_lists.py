# SPDX-License-Identifier: Apache-2.0
"""Lists of this project's own plug-ins, columns, objects and requirements.

Plug-ins of other installed packages are left out.

``plugins``
   The plug-ins of a kind, with their docstrings and options.
``claim-store-capabilities``
   The capabilities of claim stores.
``columns``
   The columns of the host table.
``object-fields``
   The versioned objects.
``demands``
   The requirements of requests, and the stages that read them.
``no-demands``
   Names of Nova that are not requirements.
``keys``
   The keys of flavors, images, aggregates or hints, and their values.
"""

import inspect

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import docutils

from cellsched.claims import base as claims_base
from cellsched.hosts import columns
from cellsched import objects
from cellsched.objects import keys
from cellsched import plugins
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler import requirements


def names(kind: str) -> list[str]:
    """Return the names of the listed plug-ins of a kind."""
    return [*plugins.load_shipped(plugins.KINDS[kind])]


def describe(name: str, plugin: type) -> list[str]:
    """Return the documentation of a plug-in as reStructuredText."""
    lines = [f'``{name}``', '']
    lines += [f'   {line}'.rstrip()
              for line in inspect.getdoc(plugin).splitlines()]
    lines += ['', f'   Class: ``{plugin.__module__}.{plugin.__qualname__}``',
              '']
    reason = getattr(plugin, 'reason', None)
    if reason:
        lines += [f'   Reason: "This host {reason}."', '']
    unit = getattr(plugin, 'unit', '')
    for title, values in (
            ('Unit', [unit] if unit else []),
            ('Options', [f':oslo.config:option:`{plugin.group}.{opt.dest}`'
                         if plugin.group != 'DEFAULT' else
                         f':oslo.config:option:`{opt.dest}`'
                         for opt in getattr(plugin, 'opts', list)()]),
            ('Scheduler hints', sorted(
                f'``{hint}``'
                for hint in getattr(plugin, 'hints', None) or ())),
            ('Reads', sorted(
                f'``{name}``'
                for name in getattr(plugin, 'reads', None) or ())),
            ('Capabilities', sorted(
                f'``{capability.value}``'
                for capability in getattr(plugin, 'capabilities', ())))):
        if values:
            lines += [f'   {title}: {", ".join(values)}', '']
    return lines


class _Listing(docutils.SphinxDirective):

    def run(self) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(
            StringList(self.lines(), source=self.name),
            self.content_offset, container)
        return container.children


class Plugins(_Listing):
    """``.. plugins:: KIND``, a kind of ``cellsched plugin list``."""

    required_arguments = 1

    def lines(self) -> list[str]:
        found = plugins.load_shipped(plugins.KINDS[self.arguments[0]])
        return [line for name, plugin in found.items()
                for line in describe(name, plugin)]


class ClaimStoreCapabilities(_Listing):

    def lines(self) -> list[str]:
        stores = plugins.load_shipped(plugins.CLAIMS)
        lines = ['.. list-table::', '   :header-rows: 1',
                 f'   :widths: 16 44{" 10" * len(stores)}', '',
                 '   * - Capability', '     - Meaning',
                 *(f'     - ``{name}``' for name in stores)]
        for capability, meaning in claims_base.MEANINGS.items():
            lines += [f'   * - ``{capability.value}``', f'     - {meaning}',
                      *('     - ' + 'yes' * (capability in store.capabilities)
                        for store in stores.values())]
        return lines


class Columns(_Listing):

    def lines(self) -> list[str]:
        lines = ['.. list-table::', '   :header-rows: 1', '',
                 '   * - Column', '     - Type', '     - Meaning']
        for column in (*columns.STANDARD, *columns.CELL_FACTS):
            lines += [f'   * - ``{column.name}``', f'     - {column.dtype}',
                      f'     - {column.doc}']
        return lines


class ObjectFields(_Listing):

    def lines(self) -> list[str]:
        lines = []
        for name in objects.__all__:
            found = getattr(objects, name)
            if isinstance(found, type):
                lines += self._fields(name, found)
        return lines

    def _fields(self, name: str, found: type) -> list[str]:
        lines = [f'``{name}`` {found.VERSION}', '']
        lines += [f'   {line}'.rstrip()
                  for line in (inspect.getdoc(found) or '').splitlines()]
        fields = ', '.join(f'``{field}``' for field in found.fields)
        return [*lines, '', f'   Fields: {fields}', '']


class Demands(_Listing):

    def lines(self) -> list[str]:
        stages = [*map(type, mandatory_stages.destination_stages(0.0)),
                  *mandatory_stages.REQUEST_STAGES, capacity.Capacity,
                  *plugins.load_shipped(plugins.FILTERS).values()]
        lines = ['.. list-table::', '   :header-rows: 1',
                 '   :widths: 40 22 20 18', '', '   * - Name',
                 '     - Requirement', '     - When', '     - Read by']
        for each in requirements.REQUIREMENTS:
            readers = sorted({
                f'``{stage.__name__}``' for stage in stages
                if each not in requirements.RequirementCheck(
                    stage.reads).requirements})
            lines += [f'   * - ``{each.name}``', f'     - {each.what}',
                      f'     - {each.when.words}',
                      f'     - {", ".join(readers) or "No shipped stage"}']
        return lines


class NoDemands(_Listing):

    def lines(self) -> list[str]:
        lines = []
        for about, names in requirements.NO_REQUIREMENTS.items():
            listed = ', '.join(f'``{name}``' for name in sorted(names))
            lines += [about, f'   {listed}', '']
        return lines


class Keys(_Listing):
    """``.. keys:: KIND``: EXTRA_SPECS, PROPERTIES, METADATA or HINTS."""

    required_arguments = 1

    def lines(self) -> list[str]:
        lines = ['.. list-table::', '   :header-rows: 1', '   :widths: 45 55',
                 '', '   * - Key', '     - Values']
        known = getattr(keys, self.arguments[0])
        for name, kind in sorted(known.kinds.items()):
            lines += [f'   * - ``{name}``',
                      '     - ' + kind.expected.replace('_', r'\_')]
        return lines


def setup(app):
    app.add_directive('keys', Keys)
    app.add_directive('demands', Demands)
    app.add_directive('no-demands', NoDemands)
    app.add_directive('plugins', Plugins)
    app.add_directive('claim-store-capabilities', ClaimStoreCapabilities)
    app.add_directive('columns', Columns)
    app.add_directive('object-fields', ObjectFields)
    return {'parallel_read_safe': True}
