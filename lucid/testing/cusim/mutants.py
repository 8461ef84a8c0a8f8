"""Mutants of a CUDA source: the same text with one token changed.

A test suite is as good as the faults it finds. Each mutant is a fault that somebody could have written: a
dropped barrier, `<=` for `<`, another operator, a constant that is off by one, an addition that is no longer
atomic. Comments, strings, directives, launch bounds and alignments are left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SWAPS = {
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " == ": " != ",
    " != ": " == ",
    " + ": " - ",
    " - ": " + ",
    " * ": " + ",
    " / ": " * ",
    " % ": " / ",
    " += ": " -= ",
    " -= ": " += ",
    " *= ": " /= ",
    " && ": " || ",
    " || ": " && ",
    " & ": " | ",
    " | ": " & ",
    " ^ ": " & ",
    " << ": " >> ",
    " >> ": " << ",
    " >>= ": " <<= ",
}
_WORDS = {
    "__syncthreads();": ";",
    "__syncwarp();": ";",
    "continue;": ";",
    "return;": ";",
    "min(": "max(",
    "max(": "min(",
    "max_(": "(",  # the second of its arguments
    "fmaxf(": "fminf(",
    "fmax(": "fmin(",
    "(i64)": "(int)",
    "(u64)": "(u32)",
    "threadIdx.x": "threadIdx.y",
    "threadIdx.y": "threadIdx.x",
    "blockIdx.x": "blockIdx.y",
    "blockIdx.y": "blockIdx.x",
    "0xffffffffu": "0x7fffffffu",
    "true": "false",
    "false": "true",
}


def _choice(words: dict[str, str]) -> str:
    # The longest first; a word is not found within a longer one.
    parts = (("\\b" if w[0].isalpha() else "") + re.escape(w) for w in sorted(words, key=len, reverse=True))
    return "|".join(f"(?<![\\w.]){p}" if p.startswith("\\b") else p for p in parts)


def _larger(m: re.Match[str]) -> str:
    return f"{int(m['digits']) + 1}{m['suffix']}"


def _near(m: re.Match[str]) -> str:
    return repr(float(m[0]) * (1 + 1 / 64))


# (pattern, what takes its place)
_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile("|".join(map(re.escape, sorted(_SWAPS, key=len, reverse=True)))), lambda m: _SWAPS[m[0]]),
    (re.compile(_choice(_WORDS)), lambda m: _WORDS[m[0]]),
    (re.compile(r"(?<![\w.])(?P<digits>\d+)(?P<suffix>u|ull|ll|)(?![\w.])"), _larger),
    (re.compile(r"(?<![\w.])\d+\.\d*(?:e[-+]?\d+)?(?=f?(?![\w.]))"), _near),
    (re.compile(r"(?<=if \()(?=\w+(?:\)| &&| \|\|))"), lambda m: "!"),
    (re.compile(r"(?<=if \()!(?=\w)"), lambda m: ""),
    (re.compile(r"(?:(?<=[^=!<>]= )|(?<=[(,])|(?<=, )|(?<=return ))\w+(?= \? )"), lambda m: f"!{m[0]}"),
    (re.compile(r"\bi64 (?=\w+ = )"), lambda m: "int "),
    (re.compile(r"\+\+"), lambda m: " += 2"),
    (re.compile(r"(?<=[(\[=?:,/] )-(?=[\w(])|(?<=[(\[])-(?=[\w(])"), lambda m: ""),
    (re.compile(r"(?<=return )-(?=[\w(])"), lambda m: ""),
)
_ATOMIC = re.compile(r"\batomic(Add|Max)\(")
_COMMENT = re.compile(r"//.*|/\*.*?\*/")
_LEFT_ALONE = re.compile(
    r'"[^"]*"|__launch_bounds__\([^)]*\)|__align__\([^)]*\)|template <[^>]*>|\w+_cast<[^>]*>|'
    r"0x[0-9a-fA-F]{9,}\w*"
)
_DIRECTIVE = re.compile(r"\s*#\s*(?:define\s+\w+(?:\([^)]*\))?|.*)")


@dataclass(frozen=True)
class Mutant:
    """One changed token: `before` at (line, column) of a source becomes `after`.

    code: the line without its comment; change: "before -> after", and " #2" at the second place in the line.
    """

    line: int
    column: int
    before: str
    after: str
    code: str
    change: str

    def apply(self, text: str) -> str:
        """The source `text` with the change."""
        lines = text.split("\n")
        at = lines[self.line - 1]
        assert at.startswith(self.before, self.column)
        lines[self.line - 1] = at[: self.column] + self.after + at[self.column + len(self.before) :]
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.line}: {self.code}  [{self.change}]"


def mutants(text: str) -> list[Mutant]:
    """All mutants of a source, in the order of its lines.

    >>> [m.change for m in mutants("if (i < n) x[i] += 2.0f;")]
    ['< -> <=', '+= -> -=', '2.0 -> 2.03125']
    """
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        hidden = _hidden(line)
        code, seen = _COMMENT.sub("", line).strip(), Counter[str]()
        for column, before, after in sorted(_changes(line, hidden)):
            if (change := _told(before, after)) is None:
                continue
            seen[change] += 1
            place = f" #{seen[change]}" if seen[change] > 1 else ""
            out.append(Mutant(number, column, before, after, code.rstrip("\\").strip(), change + place))
    return out


def _told(before: str, after: str) -> str | None:
    return f"{before.strip() or 'nothing'} -> {after.strip() or 'nothing'}"


def _hidden(line: str) -> set[int]:
    # Columns that hold no code to change.
    spans = [m.span() for m in (*_COMMENT.finditer(line), *_LEFT_ALONE.finditer(line))]
    if m := _DIRECTIVE.match(line):
        spans.append(m.span())
    return {column for start, stop in spans for column in range(start, stop)}


def _changes(line: str, hidden: set[int]) -> Iterator[tuple[int, str, str]]:
    smaller = "__shared__" in line
    for pattern, instead in _RULES:
        for m in pattern.finditer(line):
            if hidden.isdisjoint(range(m.start(), max(m.end(), m.start() + 1))):
                after = instead(m)
                if smaller and m.re is _RULES[2][0]:  # a larger array is no fault
                    after = f"{int(m['digits']) - 1}{m['suffix']}"
                yield m.start(), m[0], after
    for m in _ATOMIC.finditer(line):
        arguments = _arguments(line, m.end())
        if m.start() not in hidden and arguments:
            first, second, stop = arguments
            operator = "+=" if m[1] == "Add" else "="
            yield m.start(), line[m.start() : stop], f"*({first}) {operator} ({second})"


def _arguments(line: str, start: int) -> tuple[str, str, int] | None:
    depth, comma = 1, -1
    for i in range(start, len(line)):
        depth += (line[i] in "([") - (line[i] in ")]")
        if line[i] == "," and depth == 1 and comma < 0:
            comma = i
        if not depth:
            return (line[start:comma], line[comma + 1 : i].strip(), i + 1) if comma >= 0 else None
    return None
