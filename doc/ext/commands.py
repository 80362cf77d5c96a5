# SPDX-License-Identifier: Apache-2.0
"""List the commands of an application, as cliff's own directive does.

``.. commands:: NAMESPACE`` finds them as the applications do, so that names
are those that people type. ``.. commands:: CLASS`` has an application's own
options.
"""

from cliff import sphinxext
from sphinx.util import rst

from cellsched.cli import app
from cellsched import plugins


def names(namespace: str) -> list[str]:
    """Return the commands that are shipped, whatever else is installed."""
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
            # Help is plain text; an asterisk in it means an asterisk.
            action.help = action.help and rst.escape(action.help)


def setup(app):
    app.setup_extension('cliff.sphinxext')
    app.add_directive('commands', Commands)
    return {'parallel_read_safe': True}
