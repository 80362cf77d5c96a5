# SPDX-License-Identifier: Apache-2.0
"""Completion in bash: ``cellsched complete``."""

import argparse

from cliff import complete

# The script of cliff stops at the first option, so it completes nothing after
# "cellsched --config-file FILE".
_HEADER = """_{function}()
{{
  local cur=${{COMP_WORDS[COMP_CWORD]}} valued=' {valued} ' index word
  local -a words=()
  COMPREPLY=()

  # Commands and their options:
"""

_TRAILER = """
  # 1. Collect the words before the cursor without options of all commands.
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${{COMP_WORDS[index]}}
    if [[ $valued == *" $word "* ]]; then
      # The value follows, or "=" and the value.
      [[ ${{COMP_WORDS[index + 1]}} == '=' ]] && ((index++))
      ((index++))
    elif [[ $word != -* || ${{#words[@]}} -gt 0 ]]; then
      words+=("$word")
    fi
  done
  # 2. Complete the value of such an option as a file.
  if ((index > COMP_CWORD)); then
    [[ $cur == '=' ]] && cur=''
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
    return 0
  fi
  # 3. Find the command.
  local path='' found=$cmds name
  for word in "${{words[@]}}"; do
    name="cmds_${{path}}${{word//-/_}}"
    [[ $name =~ ^[A-Za-z0-9_]+$ && -n ${{!name}} ]] || break
    found=${{!name}}
    path="${{path}}${{word//-/_}}_"
  done
  # 4. Complete an option, the rest of the command, or a file.
  if [[ $cur == -* ]]; then
    [[ $found == -* ]] || found=''
    COMPREPLY=($(compgen -W "$found {options}" -- "$cur"))
  elif [[ $found == -* ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$found" -- "$cur"))
  fi
  return 0
}}
complete -F _{function} {name}
"""


class _Bash(complete.CompleteShellBase):
    """A script for bash.

    :ivar options: whether each option of all commands takes a value
    """

    options: dict[str, bool]

    def get_header(self) -> str:
        return self._formatted(_HEADER)

    def get_trailer(self) -> str:
        return self._formatted(_TRAILER)

    def _formatted(self, text: str) -> str:
        return text.format(
            function=self.escaped_name, name=self.name,
            options=' '.join(self.options),
            valued=' '.join(option for option, takes in self.options.items()
                            if takes))


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
        names = complete.CompleteDictionary()
        for name, _ in self.app.command_manager:
            words = name.split()
            names.add_command(words, self.get_actions(words))
        shell.write(names.get_commands(), names.get_data())
        return 0
