"""The signature of an op, read from flhost's text, and torch's form of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIGNATURE = re.compile(r"\s*(\w+)\s*\((.*)\)\s*->\s*(.*?)\s*$", re.DOTALL)
_VALUE = re.compile(
    r"(?P<type>Tensor|int\[\]|int|float|bool|str)"
    r"(?:\((?P<alias>[a-z])(?P<writes>!?)\))?(?P<optional>\??)\s*(?P<name>\w*)\s*(?:=\s*(?P<default>.+))?$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Value:
    """An argument or result."""

    type: str
    name: str
    optional: bool = False
    alias: str | None = None
    writes: bool = False
    default: str | None = None

    @property
    def is_tensor(self) -> bool:
        return self.type == "Tensor"


@dataclass(frozen=True)
class Schema:
    """What an op takes and gives."""

    name: str
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]

    def place_of(self, result: int) -> int | None:
        """The argument in whose place a result may be written."""
        alias = self.results[result].alias
        if alias is None:
            return None
        return next(i for i, argument in enumerate(self.arguments) if argument.alias == alias)

    @property
    def states(self) -> tuple[int, ...]:
        """The arguments that a call writes though no result stands for them."""
        of_results = {result.alias for result in self.results if result.alias is not None}
        return tuple(i for i, a in enumerate(self.arguments) if a.writes and a.alias not in of_results)


def _split(text: str) -> list[str]:
    """Parts between commas, outside brackets and quotes."""
    parts: list[str] = []
    depth, begin, quoted = 0, 0, ""
    for i, c in enumerate(text):
        if quoted:
            quoted = "" if c == quoted and text[i - 1] != "\\" else quoted
        elif c in "\"'":
            quoted = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return [part.strip() for part in parts if part.strip()]


def _value(text: str, unnamed: str = "") -> Value:
    found = _VALUE.match(text)
    if not found:
        raise ValueError(f"schema: {text!r} is neither an argument nor a result")
    return Value(
        type=found["type"],
        name=found["name"] or unnamed,
        optional=bool(found["optional"]),
        alias=found["alias"],
        writes=bool(found["writes"]),
        default=found["default"],
    )


def parse(text: str) -> Schema:
    """The canonical text of an op (fl_op_schema)."""
    found = _SIGNATURE.match(text)
    if not found:
        raise ValueError(f"schema: {text!r} has not the form 'name(arguments) -> results'")
    name, arguments, results = found.groups()
    if results.startswith("(") and results.endswith(")"):
        results = results[1:-1]
    given = _split(results)
    return Schema(
        name,
        tuple(_value(part) for part in _split(arguments)),
        tuple(_value(part, "out" if len(given) == 1 else f"out{i}") for i, part in enumerate(given)),
    )


# An int may be a symbol: a number of tokens stays one.
_TORCH_TYPES = {"int": "SymInt", "int[]": "SymInt[]"}


def _argument(value: Value, writes: str) -> str:
    mark = f"({writes}!)" if writes else ""
    default = f"={value.default}" if value.default is not None else ""
    kind = _TORCH_TYPES.get(value.type, value.type)
    return f"{kind}{mark}{'?' if value.optional else ''} {value.name}{default}"


def _marked(schema: Schema) -> list[str]:
    """The arguments; those which the call writes in any case are marked."""
    states = schema.states
    return [
        _argument(a, chr(ord("a") + states.index(i)) if i in states else "") for i, a in enumerate(schema.arguments)
    ]


def functional(schema: Schema) -> str:
    """The overload that allocates its results: no result is an argument."""
    results = ", ".join(f"{result.type}{'?' if result.optional else ''}" for result in schema.results)
    results = results if len(schema.results) == 1 else f"({results})"
    return f"{schema.name}({', '.join(_marked(schema))}) -> {results}"


def prepared(schema: Schema) -> str:
    """The functional overload with the handle of prepared weights: a tensor, so that it is no constant of a compiled graph."""
    head, _, results = functional(schema).rpartition(") -> ")
    return f"{head.replace('(', '.prepared(', 1)}, *, Tensor prepared) -> {results}"


def out(schema: Schema) -> str | None:
    """The overload that writes into given results; None where a result is no tensor."""
    if not schema.results or not all(result.is_tensor for result in schema.results):
        return None
    first = ord("a") + len(schema.states)
    results = [
        f"Tensor({chr(first + i)}!){'?' if result.optional else ''} {result.name}{'=None' if result.optional else ''}"
        for i, result in enumerate(schema.results)
    ]
    arguments = ", ".join([*_marked(schema), "*", *results])
    return f"{schema.name}.out({arguments}) -> ()"
