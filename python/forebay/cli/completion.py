"""`forebay completion`: a script by which a shell completes subcommands, options and the values of options.

The script is made from the parsers, so it has what they have; it starts no Python when a key is pressed.
"""

import argparse
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from forebay.cli.common import add_json, out_of, subcommand

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SHELLS = ("bash", "zsh", "fish")


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "completion",
        "print a script that completes commands and options in a shell",
        "Prints a script for a shell, which completes the subcommands, their options, and the values of options that "
        "have a fixed set of them. Everything else is completed as a file.",
        "  source <(forebay completion bash)      # in ~/.bashrc\n"
        "  source <(forebay completion zsh)       # in ~/.zshrc, after compinit\n"
        "  forebay completion fish > ~/.config/fish/completions/forebay.fish",
        "shell, script",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    add_json(parser)
    parser.set_defaults(run=run, subparsers=subparsers)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Prints the script."""
    script = made(options.shell, options.subparsers)
    out_of(options).write(script)
    return 0, {"shell": options.shell, "script": script}


def made(shell: str, subparsers: "Subparsers") -> str:
    """The script for a shell."""
    commands = {name: list(parser._actions) for name, parser in subparsers.choices.items()}
    if shell == "fish":
        helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
        return "".join(f"{line}\n" for line in in_fish(commands, helps))
    head = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    return "".join(f"{line}\n" for line in [*head, *in_bash(commands)])


def values(action: argparse.Action) -> list[str]:
    """The fixed values of an option; none if it takes anything else."""
    return [str(choice) for choice in action.choices or ()]


def in_bash(commands: Mapping[str, list[argparse.Action]]) -> Iterator[str]:
    """The script for bash; `-o default` completes files where it has nothing."""
    yield "_forebay() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" last="${COMP_WORDS[COMP_CWORD-1]}" words=""'
    yield "  if ((COMP_CWORD == 1)); then"
    yield f"    words={shlex.quote(' '.join([*commands, '--help', '--version']))}"
    yield "  else"
    yield '    case "${COMP_WORDS[1]} $last" in'
    for command, actions in commands.items():
        for action in actions:
            if found := values(action):
                places = " | ".join(shlex.quote(f"{command} {option}") for option in action.option_strings or [command])
                yield f"      {places}) words={shlex.quote(' '.join(found))} ;;"
    yield '      *) if [[ $word == -* ]]; then case "${COMP_WORDS[1]}" in'
    for command, actions in commands.items():
        options = [option for action in actions for option in action.option_strings]
        yield f"        {command}) words={shlex.quote(' '.join(options))} ;;"
    yield "      esac; fi ;;"
    yield "    esac"
    yield "  fi"
    yield '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")'
    yield "}"
    yield "complete -o default -F _forebay forebay"


def in_fish(commands: Mapping[str, list[argparse.Action]], helps: Mapping[str, str]) -> Iterator[str]:
    """The script for fish."""
    yield "complete -c forebay -n __fish_use_subcommand -l version"
    for command, actions in commands.items():
        yield f"complete -c forebay -n __fish_use_subcommand -a {command} -d {quoted(helps.get(command, ''))}"
        for action in actions:
            parts = [f"complete -c forebay -n '__fish_seen_subcommand_from {command}'"]
            for option in action.option_strings:
                parts.append(f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}")
            if found := values(action):
                parts.append(f"{'-x ' if action.option_strings else ''}-a {quoted(' '.join(found))}")
            elif action.option_strings and action.nargs != 0:
                parts.append("-r")
            if action.option_strings or values(action):
                yield " ".join([*parts, f"-d {quoted(action.help or '')}"])


def quoted(text: str) -> str:
    """A text in single quotes, on one line, as fish reads them; the defaults of argparse's help are left out."""
    text = " ".join(text.split("(default")[0].split())
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
