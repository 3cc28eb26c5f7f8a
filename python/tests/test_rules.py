"""The evaluator of rules against the library's own, and the schemas that torch gets. None of it needs torch."""

from __future__ import annotations

import pytest
from flhost.torch import rules as rules_module
from flhost.torch.rules import Rules, RulesError, Tensor
from flhost.torch.schema import functional, out, parse
from generated import Library

library = Library()
CALLS = 400


@pytest.mark.parametrize("name", sorted(library.schemas))
def test_rules_infer_what_the_library_infers(name: str) -> None:
    schema = library.schemas[name]
    rules = Rules(schema, library.rules[name], library.over_ranks[name])
    agreed = refused = 0
    for call in library.calls(name, range(CALLS)):
        if call.results is None:  # by the entry's own check, too, which Python has not
            refused += 1
            continue
        if not all(result.is_tensor for result in schema.results):
            continue
        assert rules.infer(call.values) == call.results, call
        agreed += 1
    if all(result.is_tensor for result in schema.results):
        assert agreed >= 20, (agreed, refused)


@pytest.mark.parametrize("name", sorted(library.schemas))
def test_rules_refuse_what_the_library_refuses_by_them(name: str) -> None:
    """A dimension more, and an element more, of each tensor: where the rules refuse, the library does, and the other way
    round unless it was the entry's check that spoke."""
    schema = library.schemas[name]
    rules = Rules(schema, library.rules[name], library.over_ranks[name])
    for call in library.calls(name, range(20)):
        if call.results is None:
            continue
        for i, value in enumerate(call.values):
            if not isinstance(value, Tensor) or schema.arguments[i].name not in rules.of_arguments:
                continue
            for spoilt in (Tensor((*value.shape, 1), value.dtype), Tensor(value.shape, "bool")):
                values = list(call.values)
                values[i] = spoilt
                message = library.refusal(name, values)
                try:
                    rules.infer(values)
                    by_rules = False
                except RulesError:
                    by_rules = True
                if by_rules:
                    assert message, (call, schema.arguments[i].name, spoilt)
                elif message:
                    assert ", expected" in message, message
                    assert "shape [" not in message, message
                    assert ": dtype" not in message, message


@pytest.mark.parametrize(
    ("rules", "values", "expected"),
    [
        ("x: T[..., n]; out: T[n // 2]", {}, (3,)),
        ("x: T[..., n]; out: T[(0 - n) // 2 + 10]", {}, (6,)),
        ("x: T[..., n]; out: T[max(numel(...), k)]", {"k": 17}, (17,)),
        ("x: T[..., n]; out: T[min(n, k)]", {"k": 3}, (3,)),
        ("x: T[..., n]; out: T[pads[0] + 2*pads[1]]", {}, (52,)),
        ("x: T[..., n]; out: T[flag*5, given(y) + 2]", {}, (5, 2)),
        ("x: T[..., n]; out: T[1] when k > 1 and k < 5 or T[..., n]", {"k": 3}, (1,)),
        ("x: T[..., n]; out: T[1] when k > 1 and k < 5 or T[..., n]", {"k": 5}, (2, 3, 7)),
        ("x: T[..., n]; out: like y or T[2]", {"y": Tensor((4,), "int32")}, (4,)),
        ("x: T[..., n]; out: like y or T[2]", {}, (2,)),
    ],
)
def test_each_term_has_its_value(rules: str, values: dict[str, object], expected: tuple[int, ...]) -> None:
    schema = parse("f(Tensor x, int? k=None, int[] pads=[1, 2], bool flag=True, Tensor? y=None) -> Tensor")
    given = {"x": Tensor((2, 3, 7), "float32"), "k": None, "pads": [10, 21], "flag": True, "y": None, **values}
    found = Rules(schema, rules).infer(list(given.values()))
    assert found[0] is not None
    assert found[0].shape == expected


def test_a_mistake_says_what_was_given_and_expected() -> None:
    schema = parse("f(Tensor x, Tensor w) -> Tensor out")
    rules = Rules(schema, "x: T[..., 2*d]; w: T[d]; out: T[..., d]; T = float32|float16")
    with pytest.raises(RulesError, match=r"^f: argument 'x': float32\[3, 5\], expected T\[\.\.\., 2\*d\]; T = float32"):
        rules.infer([Tensor((3, 5), "float32"), Tensor((2,), "float32")])
    with pytest.raises(RulesError, match="argument 'w': float16"):
        rules.infer([Tensor((3, 4), "float32"), Tensor((2,), "float16")])


def test_rules_decide_whether_a_result_that_may_be_none_is_there() -> None:
    rules = Rules(parse("f(Tensor x, bool symmetric=True) -> Tensor? out"), "x: T[n]; out: T[n] when symmetric == 0")
    assert rules.infer([Tensor((3,), "float32"), True]) == (None,)
    assert rules.infer([Tensor((3,), "float32"), False]) == (Tensor((3,), "float32"),)


def test_a_str_argument_names_a_dtype() -> None:
    schema = parse('f(Tensor x, str out_dtype="int8") -> Tensor out')
    rules = Rules(schema, "x: T[n]; out: O[n]; O = int8|float16 by out_dtype")
    assert rules.infer([Tensor((3,), "float32"), "float16"]) == (Tensor((3,), "float16"),)
    with pytest.raises(RulesError, match="argument 'out_dtype': 'int4', expected int8 or float16"):
        rules.infer([Tensor((3,), "float32"), "int4"])


@pytest.mark.parametrize(
    ("text", "allocating", "writing"),
    [
        (
            "f(Tensor(a!) x, Tensor(b!)? r=None, float e=1e-06) -> (Tensor(a) out, Tensor(b)? r_out)",
            "f(Tensor x, Tensor? r=None, float e=1e-06) -> (Tensor, Tensor?)",
            "f.out(Tensor x, Tensor? r=None, float e=1e-06, *, Tensor(a!) out, Tensor(b!)? r_out=None) -> ()",
        ),
        (
            'f(Tensor x, Tensor(a!)? state, int? k, int[] s=[1, 2], str w="a, (b") -> Tensor',
            'f(Tensor x, Tensor(a!)? state, SymInt? k, SymInt[] s=[1, 2], str w="a, (b") -> Tensor',
            'f.out(Tensor x, Tensor(a!)? state, SymInt? k, SymInt[] s=[1, 2], str w="a, (b", *, Tensor(b!) out) -> ()',
        ),
        ("f(bool b=False) -> str", "f(bool b=False) -> str", None),
        ("f(Tensor(a!) state) -> ()", "f(Tensor(a!) state) -> ()", None),
    ],
)
def test_torch_gets_two_overloads(text: str, allocating: str, writing: str | None) -> None:
    schema = parse(text)
    assert functional(schema) == allocating
    assert out(schema) == writing


def test_nothing_here_needs_torch() -> None:
    assert not hasattr(rules_module, "torch")


def test_rules_of_an_op_over_ranks_are_of_one_rank_in_python() -> None:
    schema = parse("f(Tensor x, bool gather=True) -> Tensor out")
    rules = Rules(schema, "x: T[n]; out: T[n*ranks] when gather or T[n]", True)
    assert rules.infer([Tensor((4,), "float32"), True]) == (Tensor((4,), "float32"),)
    with pytest.raises(RulesError):
        Rules(schema, "x: T[n]; out: T[n*ranks]").infer([Tensor((4,), "float32"), True])
