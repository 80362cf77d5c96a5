# SPDX-License-Identifier: Apache-2.0
"""Completion in bash: ``cellsched complete``."""

import argparse

from cliff import complete

# The script of cliff stops at the first option, and uses words as names of
# variables. So it reads the words without the options of all commands, and
# without characters that a name does not have.
_HEADER = """_{function}()
{{
  local cur=${{COMP_WORDS[COMP_CWORD]}} valued=' {valued} ' index
  local -a words=("${{COMP_WORDS[0]}}")
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    if [[ $valued == *" ${{COMP_WORDS[index]}} "* ]]; then
      # The value follows, or "=" and the value.
      [[ ${{COMP_WORDS[index + 1]}} == '=' ]] && ((index++))
      ((index++))
    elif [[ ${{COMP_WORDS[index]}} != -* || ${{#words[@]}} -gt 1 ]]; then
      words+=("${{COMP_WORDS[index]//[^[:alnum:]_-]/_}}")
    fi
  done
  if ((index > COMP_CWORD)); then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "${{cur#=}}"))
    return 0
  elif [[ $cur == -* && ${{#words[@]}} -eq 1 ]]; then
    COMPREPLY=($(compgen -W '{options}' -- "$cur"))
    return 0
  fi
  words+=("${{cur//[^[:alnum:]_-]/_}}")
"""


class _Bash(complete.CompleteBash):
    """A script for bash.

    :ivar options: whether each option of all commands takes a value
    """

    options: dict[str, bool]

    def get_header(self) -> str:
        return _HEADER.format(
            function=self.escaped_name, options=' '.join(self.options),
            valued=' '.join(filter(self.options.get, self.options)))


class Complete(complete.CompleteCommand):
    """Print a script that completes commands, options and files in bash.

    Example::

        source <(cellsched complete)
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.shell != 'bash':
            result: int = super().take_action(parsed_args)
            return result
        shell = _Bash(parsed_args.name or self.app.NAME, self.app.stdout)
        # An option without a value is a boolean.
        shell.options = {'--help': False, '--version': False, **{
            f'--{name.replace("_", "-")}': not isinstance(value, bool)
            for name, value in vars(self.app.options).items()}}
        everywhere = [argparse.Action([*shell.options], 'options')]
        names = complete.CompleteDictionary()
        for name, _ in self.app.command_manager:
            words = name.split()
            names.add_command(words, self.get_actions(words) + everywhere)
        shell.write(names.get_commands(), names.get_data())
        return 0
