"""The rules of an op, evaluated: shapes and dtypes of its results from those of its arguments.

The language is described at fl_op_def.rules in <flhost/plugin.h>, and core/schema matches it in C. This is the same over
whatever counts as an integer, so that a number of tokens may be a symbol. A tensor is given by its shape and the name of
its dtype; everything else as it is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .schema import Schema

Size = Any  # an int, or a symbol for one
_TOKEN = re.compile(r"\s*(?:(\w+)|(\.\.\.|//|<=|>=|==|!=|[][(),:;|=<>+*/-]))")


class RulesError(ValueError):
    """The arguments do not go with the rules."""


@dataclass(frozen=True)
class Tensor:
    """Shape and dtype, as rules know a tensor."""

    shape: tuple[Size, ...]
    dtype: str


class Integers:
    """How sizes are compared: plain integers. Symbols have a class of their own."""

    def same(self, a: Size, b: Size) -> bool:
        """Of two sizes that should be equal."""
        return bool(a == b)

    def holds(self, condition: Any) -> bool:
        """Of a condition by which one of several ways is taken."""
        return bool(condition)

    def least(self, a: Size, b: Size) -> Size:
        return min(a, b)

    def largest(self, a: Size, b: Size) -> Size:
        return max(a, b)


# ------------------------------------------------------------------------------------------------------------- form

Node = tuple[Any, ...]  # ("number", 2), ("name", "n"), ("+", left, right)...
_UNSOLVABLE = ("//", "min", "max")
_JOIN: dict[str, Callable[[Size, Size], Size]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARE: dict[str, Callable[[Size, Size], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass
class Alternative:
    source: str
    dtypes: list[str] = field(default_factory=list)
    variable: str | None = None
    dimensions: list[Node] | None = None  # None: any shape
    leading: bool = False
    like: str | None = None
    conditions: list[Node] = field(default_factory=list)


class _Parser:
    def __init__(self, text: str, schema: Schema, over_ranks: bool):
        self.text = text
        self.over_ranks = over_ranks
        self.schema = schema
        self.types = {value.name: value.type for value in schema.arguments}
        self.at = 0
        self.clauses: dict[str, list[Alternative]] = {}
        self.limits: dict[str, list[str]] = {}
        self.named_by: dict[str, str] = {}  # a dtype variable, and the str argument that names it

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        return found[1] or found[2] if found else ""

    def next(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        if not found:
            raise ValueError(f"rules {self.text!r}: column {self.at + 1}: unexpected end")
        self.at = found.end()
        return found[1] or found[2]

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.next()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise ValueError(f"rules {self.text!r}: column {self.at + 1}: expected {token!r}")

    def factor(self) -> Node:
        token = self.next()
        if token == "(":
            node = self.sum()
            self.expect(")")
            return node
        if token[0].isdigit():
            return ("number", int(token))
        if self.over_ranks and token == "ranks":
            return ("number", 1)  # groups are C's: in Python a call is this process's alone
        if self.peek() == "(":
            return self.function(token)
        if self.peek() == "[" and self.types.get(token) == "int[]":
            self.next()
            node = ("element", token, int(self.next()))
            self.expect("]")
            return node
        return ("flag" if self.types.get(token) == "bool" else "name", token)

    def function(self, name: str) -> Node:
        self.expect("(")
        node: Node
        if name == "numel":
            self.expect("...")
            node = ("numel",)
        elif name == "given":
            node = ("given", self.next())
        else:
            left = self.sum()
            self.expect(",")
            node = (name, left, self.sum())
        self.expect(")")
        return node

    def chain(self, signs: tuple[str, ...], read: Callable[[], Node]) -> Node:
        node = read()
        while self.peek() in signs:
            node = (self.next(), node, read())
        return node

    def product(self) -> Node:
        return self.chain(("*", "/", "//"), self.factor)

    def sum(self) -> Node:
        return self.chain(("+", "-"), self.product)

    def condition(self) -> Node:
        node = self.sum()
        if self.peek() in _COMPARE:
            return (self.next(), node, self.sum())
        return node

    def alternative(self) -> Alternative:
        begin = self.at
        built = Alternative("")
        if self.accept("like"):
            built.like = self.next()
        else:
            while True:
                word = self.next()
                if len(word) == 1 and word.isupper():
                    built.variable = word
                else:
                    built.dtypes.append(word)
                if not self.accept("|"):
                    break
            if self.accept("["):
                built.dimensions = []
                built.leading = self.accept("...")
                first = not built.leading
                while not self.accept("]"):
                    if not first:
                        self.expect(",")
                    first = False
                    built.dimensions.append(self.sum())
        built.source = self.text[begin : self.at].strip()
        if self.accept("when"):
            built.conditions.append(self.condition())
            while self.accept("and"):
                built.conditions.append(self.condition())
        return built

    def rules(self) -> None:
        while self.peek():
            name = self.next()
            if self.accept("="):
                self.limits[name] = [self.next()]
                while self.accept("|"):
                    self.limits[name].append(self.next())
                if self.accept("by"):
                    self.named_by[name] = self.next()
            else:
                self.expect(":")
                self.clauses[name] = [self.alternative()]
                while self.accept("or"):
                    self.clauses[name].append(self.alternative())
            if self.peek():
                self.expect(";")


# --------------------------------------------------------------------------------------------------------- matching


class _Mismatch(Exception):
    """An expression has no value, or a size is not what it should be."""


class _Bindings:
    """What the arguments of one call say."""

    def __init__(self, rules: Rules, values: dict[str, Any], integers: Integers):
        self.rules = rules
        self.values = values
        self.integers = integers
        self.variables: dict[str, str] = {}
        self.leading: tuple[Size, ...] | None = None
        self.open = False
        self.names: dict[str, Size] = {
            a.name: values[a.name] for a in rules.schema.arguments if a.type == "int" and values[a.name] is not None
        }
        for variable, argument in rules.named_by.items():
            named = values[argument]
            if named not in rules.limits[variable]:
                expected = " or ".join(rules.limits[variable])
                raise RulesError(f"{rules.schema.name}: argument '{argument}': {named!r}, expected {expected}")
            self.variables[variable] = named

    def state(self) -> tuple[Any, ...]:
        return dict(self.names), dict(self.variables), self.leading, self.open

    def restore(self, state: tuple[Any, ...]) -> None:
        names, variables, self.leading, self.open = state
        self.names, self.variables = dict(names), dict(variables)

    def compute(self, operation: str, a: Size, b: Size) -> Size:
        if operation == "/":
            if not self.integers.holds(b != 0) or not self.integers.same(a % b, 0):
                raise _Mismatch
            return a // b
        if operation == "//":
            if not self.integers.holds(b != 0):
                raise _Mismatch
            return a // b
        if operation == "min":
            return self.integers.least(a, b)
        if operation == "max":
            return self.integers.largest(a, b)
        return _JOIN[operation](a, b)

    def leaf(self, node: Node) -> Size | None:
        kind = node[0]
        if kind == "number":
            return node[1]
        if kind == "name":
            return self.names.get(node[1])
        if kind == "given":
            return int(self.values[node[1]] is not None)
        if kind == "flag":
            return None if self.values[node[1]] is None else int(self.values[node[1]])
        if kind == "element":
            given = self.values[node[1]]
            return given[node[2]] if given is not None and node[2] < len(given) else None
        if self.leading is None:
            return None
        product: Size = 1
        for size in self.leading:
            product = product * size
        return product

    def evaluate(self, node: Node) -> Size | None:
        """None: something in it is not known."""
        if len(node) < 3 or node[0] == "element":
            return self.leaf(node)
        left, right = self.evaluate(node[1]), self.evaluate(node[2])
        if left is None or right is None:
            return None
        return self.compute(node[0], left, right)

    def check(self, is_so: bool) -> None:
        if not is_so:
            raise _Mismatch

    def solve_left(self, operation: str, b: Size, size: Size) -> Size | None:
        """x + b = size, x - b = size..."""
        if operation == "*" and not self.integers.holds(b != 0):
            self.check(self.integers.same(size, 0))
            return None
        if operation == "/" and not self.integers.holds(b != 0):
            raise _Mismatch
        return self.compute({"+": "-", "-": "+", "*": "/", "/": "*"}[operation], size, b)

    def solve_right(self, operation: str, a: Size, size: Size) -> Size | None:
        if operation in "+*":
            return self.solve_left(operation, a, size)
        if operation == "/" and not self.integers.holds(size != 0):
            self.check(self.integers.same(a, 0))
            return None
        return self.compute(operation, a, size)

    def solve(self, node: Node, size: Size) -> None:
        """Makes the node equal size, by binding its one unknown name if it has one."""
        known = self.evaluate(node)
        if known is not None:
            self.check(self.integers.same(known, size))
        elif node[0] == "name":
            self.check(not self.integers.holds(size < 0))
            self.names[node[1]] = size
        elif len(node) < 3 or node[0] == "element" or node[0] in _UNSOLVABLE:
            self.open = True
        else:
            left, right = self.evaluate(node[1]), self.evaluate(node[2])
            wanted = None
            if left is None and right is not None:
                wanted = self.solve_left(node[0], right, size)
            elif right is None and left is not None:
                wanted = self.solve_right(node[0], left, size)
            if wanted is None:
                self.open = True
            else:
                self.solve(node[1] if left is None else node[2], wanted)

    def match_dtype(self, alternative: Alternative, dtype: str) -> None:
        variable = alternative.variable
        if dtype in alternative.dtypes:
            return
        if variable is None:
            raise _Mismatch
        if variable in self.variables:
            self.check(self.variables[variable] == dtype)
            return
        self.check(dtype in self.rules.limits.get(variable, (dtype,)))
        if alternative.dtypes:
            self.open = True
        else:
            self.variables[variable] = dtype

    def match_shape(self, alternative: Alternative, shape: tuple[Size, ...]) -> None:
        if alternative.dimensions is None:
            return
        n = len(shape) - len(alternative.dimensions)
        self.check(n >= 0 if alternative.leading else n == 0)
        if alternative.leading:
            leading = tuple(shape[:n])
            if self.leading is None:
                self.leading = leading
            self.check(len(self.leading) == n and all(map(self.integers.same, self.leading, leading)))
        for node, size in zip(alternative.dimensions, shape[n:], strict=True):
            self.solve(node, size)

    def match(self, alternative: Alternative, tensor: Tensor) -> None:
        self.match_dtype(alternative, tensor.dtype)
        self.match_shape(alternative, tensor.shape)

    def match_clause(self, name: str, alternatives: list[Alternative], tensor: Tensor) -> Alternative:
        before = self.state()
        for alternative in alternatives:
            try:
                self.match(alternative, tensor)
                return alternative
            except _Mismatch:
                self.restore(before)
        raise self.rules.error("argument", name, tensor, alternatives)

    def match_all(self) -> None:
        chosen: dict[str, Alternative] = {}
        for name, alternatives in self.rules.of_arguments.items():
            if self.values[name] is not None:
                chosen[name] = self.match_clause(name, alternatives, self.values[name])
        while self.open:
            before = len(self.names)
            self.open = False
            for name, alternative in chosen.items():
                try:
                    self.match(alternative, self.values[name])
                except _Mismatch:
                    raise self.rules.error("argument", name, self.values[name], [alternative]) from None
            if len(self.names) == before:
                break

    def result(self, alternative: Alternative) -> Tensor | None:
        """None: its condition does not hold, or something in it is not known or has no value."""
        try:
            for node in alternative.conditions:
                if not self.condition(node):
                    return None
            if alternative.like is not None:
                like: Tensor | None = self.values[alternative.like]
                return like
            dtype = alternative.dtypes[0] if alternative.variable is None else self.variables.get(alternative.variable)
            leading = self.leading if alternative.leading else ()
            sizes = [self.evaluate(node) for node in alternative.dimensions or ()]
            if dtype is None or leading is None or any(s is None or self.integers.holds(s < 0) for s in sizes):
                return None
        except _Mismatch:
            return None
        return Tensor((*leading, *sizes), dtype)

    def condition(self, node: Node) -> bool:
        if node[0] not in _COMPARE:
            value = self.evaluate(node)
            return value is not None and self.integers.holds(value != 0)
        a, b = self.evaluate(node[1]), self.evaluate(node[2])
        if a is None or b is None:
            return False
        return self.integers.holds(_COMPARE[node[0]](a, b))


class Rules:
    """The rules of one op; `over_ranks`: it says what ranks do with it, so that its rules know how many there are."""

    def __init__(self, schema: Schema, text: str, over_ranks: bool = False):
        parser = _Parser(text, schema, over_ranks)
        parser.rules()
        arguments = {value.name for value in schema.arguments}
        self.schema = schema
        self.text = text
        self.limits = parser.limits
        self.named_by = parser.named_by
        self.of_arguments = {name: clause for name, clause in parser.clauses.items() if name in arguments}
        self.of_results = {name: clause for name, clause in parser.clauses.items() if name not in arguments}
        tensors = [value for value in schema.arguments if value.is_tensor]
        required = [value for value in tensors if not value.optional]
        self._first = next(iter(required or tensors), None)

    def error(self, what: str, name: str, given: Tensor, expected: list[Alternative]) -> RulesError:
        shape = ", ".join(map(str, given.shape))
        choices = " or ".join(alternative.source for alternative in expected)
        limits = "".join(
            f"; {v} = {'|'.join(self.limits[v])}" for v in self.limits if any(a.variable == v for a in expected)
        )
        return RulesError(f"{self.schema.name}: {what} '{name}': {given.dtype}[{shape}], expected {choices}{limits}")

    def infer(self, values: Sequence[Any], integers: Integers | None = None) -> tuple[Tensor | None, ...]:
        """Shape and dtype of each result, None for one that is not there. `values` are all arguments, tensors as Tensor.

        RulesError: they do not go with the rules."""
        named = {argument.name: value for argument, value in zip(self.schema.arguments, values, strict=True)}
        bindings = _Bindings(self, named, integers or Integers())
        bindings.match_all()
        return tuple(self._result(bindings, i) for i in range(len(self.schema.results)))

    def _result(self, bindings: _Bindings, index: int) -> Tensor | None:
        result = self.schema.results[index]
        place = self.schema.place_of(index)
        like = None if place is None else self.schema.arguments[place].name
        if like is not None and bindings.values[like] is None:
            return None
        if result.name in self.of_results:
            for alternative in self.of_results[result.name]:
                found = bindings.result(alternative)
                if found is not None:
                    return found
            if result.optional:
                return None
            expected = " or ".join(alternative.source for alternative in self.of_results[result.name])
            raise RulesError(
                f"{self.schema.name}: result '{result.name}' is {expected}, which does not follow from these arguments"
            )
        if like is None and not self.text.strip() and self._first is not None:
            like = self._first.name
        if like is None:
            raise RulesError(f"{self.schema.name}: the rules say nothing of result '{result.name}'")
        found_like: Tensor | None = bindings.values[like]
        return found_like
