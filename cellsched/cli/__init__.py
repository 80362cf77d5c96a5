# SPDX-License-Identifier: Apache-2.0
"""Commands for operators: ``cellsched`` and ``cellsched-manage``.

``app`` has the two applications, ``base`` the base classes of commands and
the decorators that declare commands, and ``backend`` the deployment that
commands work on. Each other module has the commands for one noun. To add a
command, declare it there and name it in the entry points of
``cellsched.cli`` or ``cellsched.manage``, with a dot where a user types a
space.

The help of all commands imports the module of each command. So a command
imports SQLAlchemy or numpy, which take long, when it runs.
"""
