# SPDX-License-Identifier: Apache-2.0
"""List the options of ``cellsched-nova``, which is not installed here.

``.. nova-options::`` prints them like ``show-options``, which works only for
installed packages.
"""

import pathlib
import runpy

from docutils import nodes
from sphinx.util import docutils

PATH = (pathlib.Path(__file__).resolve().parents[2]
        / 'integrations' / 'nova' / 'cellsched_nova' / 'options.py')


def describe(opt) -> list[str]:
    """Return reStructuredText about an option."""
    lines = ['', f'.. oslo.config:option:: {opt.dest}', '',
             f'   :Type: {opt.type.type_name}',
             f'   :Default: ``{opt.default}``']
    least = getattr(opt.type, 'min', None)
    if least is not None:
        lines.append(f'   :Minimum Value: {least}')
    lines += ['', *(f'   {line}'.rstrip()
                    for line in opt.help.strip().splitlines())]
    for value, meaning in (getattr(opt.type, 'choices', None) or {}).items():
        lines += ['', f'   * ``{value}``: {meaning}']
    return lines


class NovaOptions(docutils.SphinxDirective):

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(PATH))
        # Further groups are those of cellsched, which the page of options has.
        (group, found), *_ = runpy.run_path(str(PATH))['list_opts']()
        lines = [f'.. oslo.config:group:: {group}']
        for opt in found:
            lines += describe(opt)
        return self.parse_text_to_nodes(
            '\n'.join(lines) + '\n', allow_section_headings=True)


def setup(app):
    app.add_directive('nova-options', NovaOptions)
    return {'parallel_read_safe': True}
