# SPDX-License-Identifier: Apache-2.0
"""List the commands of an application, based on cliff's own directive.

``.. commands:: NAMESPACE`` lists the commands under the names that users type.
``.. commands:: CLASS`` lists the options of an application.
"""

from cliff import sphinxext
from sphinx.util import rst

from cellsched.cli import app
from cellsched import plugins


def names(namespace: str) -> list[str]:
    """Return this project's commands; others are left out."""
    return [point.name.replace('.', ' ')
            for point in plugins.shipped(namespace)]


class Commands(sphinxext.AutoprogramCliffDirective):

    def _load_commands(self):
        manager = app.Commands(self.arguments[0])
        return {name: self._load_command(manager, name)
                for name in names(self.arguments[0])}

    def _drop_ignored_options(self, parser, ignored_opts):
        super()._drop_ignored_options(parser, ignored_opts)
        for action in parser._actions:
            # Help is plain text, so escape asterisks and other markup.
            action.help = action.help and rst.escape(action.help)


def setup(app):
    app.setup_extension('cliff.sphinxext')
    app.add_directive('commands', Commands)
    return {'parallel_read_safe': True}
