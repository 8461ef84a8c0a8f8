"""The `lucid` command line: a table of subcommands.

Each is a module with `add_arguments(parser)` and `run(args)`. `run` returns the exit code; it raises
UsageError for what the user can put right, which becomes one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from lucid._cli.usage import UsageError

# A new subcommand is one line here: its words, one line of help, its module.
COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("train digits", "train a classifier of handwritten digits", "lucid._cli.train_digits"),
    ("train resnet", "train a residual network on handwritten digits", "lucid._cli.train_resnet"),
    ("train lstm", "train an LSTM on text, character by character", "lucid._cli.train_lstm"),
    ("train gpt", "train a small GPT on text, character by character", "lucid._cli.train_gpt"),
    ("info", "versions, devices and libraries on this machine", "lucid._cli.info"),
    ("kernels", "list the CUDA kernels, compile them without a GPU", "lucid._cli.kernels"),
)
GROUPS = {"train": "train an example model"}

OK, ERROR, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser(argv: Sequence[str]) -> Parser:
    """The argument parser of all COMMANDS; the parsed `run` is the function of the one that `argv` names.

    Only that one's module is imported: `lucid info` must work, and fast, where another command cannot.
    """
    from lucid import __version__

    about = "GPU-backed autograd: PyTorch's programming model on NumPy and CuPy."
    parser = Parser(prog="lucid", description=about)
    parser.add_argument("--version", action="version", version=f"lucid {__version__}")
    levels = {"": parser.add_subparsers(metavar="COMMAND", required=True)}
    for words, help_line, module_name in COMMANDS:
        group, _, name = words.rpartition(" ")
        if group not in levels:
            inner = levels[""].add_parser(group, help=GROUPS[group], description=GROUPS[group])
            levels[group] = inner.add_subparsers(metavar="WHAT", required=True)
        command = levels[group].add_parser(name, help=help_line, description=help_line)
        if list(argv[: words.count(" ") + 1]) == words.split():
            module = import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(run=module.run, prog=command.prog)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the command in `argv` (default: sys.argv[1:]).

    0: done. 2: the user asked for something that cannot be, and one line on stderr says what. 130: Ctrl-C.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        args, unknown = build_parser(argv).parse_known_args(argv)
        if unknown:
            raise UsageError(f"unrecognized arguments: {' '.join(unknown)} (see {args.prog} --help)")
        return args.run(args)
    except SystemExit as stop:  # argparse: --help, --version, a bad argument
        return stop.code if isinstance(stop.code, int) else OK
    except UsageError as error:
        print(f"{args.prog}: error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `lucid info | head -1`; at exit the interpreter would flush into the pipe again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
