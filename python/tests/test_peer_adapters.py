"""Calls as vLLM's layers make them, carried out by C implementations: each row of the drop-in's table of adapters, held
against numpy."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from peer_dropin import dispatch, manager_of
from vllm_fl.dispatch import adapters
from vllm_fl.dispatch.policy import SelectionPolicy

numpy = pytest.importorskip("numpy")

DOCUMENT = Path(__file__).parents[2] / "docs" / "from-vllm-plugin-fl.md"


def random(*shape):
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + numpy.tanh(numpy.float32(0.7978846) * (x + 0.044715 * x**3)))


def _silu_and_mul():
    x = random(3, 8)
    return (None, x), {}, sigmoid(x[:, :4]) * x[:, :4] * x[:, 4:]


def _gelu_and_mul():
    x = random(3, 8)
    return (SimpleNamespace(approximate="tanh"), x), {}, gelu(x[:, :4]) * x[:, 4:]


def _silu_and_mul_with_clamp():
    x = random(3, 8) * 3
    gate, up = numpy.minimum(x[:, :4], 1.5), numpy.clip(x[:, 4:], -1.5, 1.5)
    return (x, 1.5, numpy.float32(1.5)), {}, sigmoid(gate) * gate * up


def _rms_norm():
    x, residual = random(2, 6), random(1, 6) + numpy.zeros((2, 1), "float32")
    layer = SimpleNamespace(weight=random(6), variance_epsilon=1e-5)
    total = x + residual
    out = total / numpy.sqrt((total * total).mean(-1, keepdims=True) + 1e-5) * layer.weight
    return (layer, x, residual), {}, (out, total)


def _rotary_embedding():
    query, key = random(3, 2, 8), random(3, 1, 8)
    cos, sin, positions = random(9, 4), random(8, 4), numpy.array([5, 0, 7])
    sin = numpy.concatenate([sin, sin[:1]])

    def rotate(x):
        c, s = cos[positions][:, None], sin[positions][:, None]
        return numpy.concatenate([x[..., :4] * c - x[..., 4:] * s, x[..., 4:] * c + x[..., :4] * s], -1)

    return (None, query, key, cos, sin, positions), {"inplace": False}, (rotate(query), rotate(key))


def _moe_sum():
    x, out = random(4, 2, 5), numpy.zeros((4, 5), "float32")
    return (x, out), {}, (out, x.sum(1))


def topk(scores, choice, k):
    ids = numpy.argsort(-choice, -1, kind="stable")[:, :k].astype("int32")
    return numpy.take_along_axis(scores, ids, -1), ids


def _topk_softmax():
    logits = random(4, 8)
    scores = numpy.exp(logits) / numpy.exp(logits).sum(-1, keepdims=True)
    weights, ids = topk(scores, scores, 2)
    given = numpy.zeros((4, 2), "float32"), numpy.zeros((4, 2), "int32"), numpy.zeros((4, 2), "int32")
    return (*given, logits, True), {}, (weights / weights.sum(-1, keepdims=True), ids)


def grouped_topk(logits, n_group, topk_group, k, scaling, bias):
    """A group counts as much as the sum of its two best."""
    scores = sigmoid(logits)
    choice = scores + (0 if bias is None else bias)
    groups = numpy.sort(choice.reshape(len(logits), n_group, -1), -1)[..., -2:].sum(-1)
    open_groups = numpy.argsort(-groups, -1)[:, :topk_group]
    closed = numpy.ones((len(logits), n_group), bool)
    numpy.put_along_axis(closed, open_groups, False, -1)
    choice = numpy.where(closed.repeat(logits.shape[1] // n_group, -1), -numpy.inf, choice)
    weights, ids = topk(scores, choice, k)
    return weights / weights.sum(-1, keepdims=True) * scaling, ids


def _grouped_topk():
    logits, bias = random(5, 16), random(16)
    return (logits, 4, 2, 3, True, 2.5, bias, 1), {}, grouped_topk(logits, 4, 2, 3, 2.5, bias)


def _grouped_topk_without_bias():
    logits = random(40, 16)
    return (logits, 4, 1, 2, True, 1.0, None), {"scoring_func": 1}, grouped_topk(logits, 4, 1, 2, 1.0, None)


def align(ids, block, experts, expert_map=None, pad=False):
    """As vLLM's kernel and the function around it do."""
    numel, flat = ids.size, ids.reshape(-1)
    length = numel + experts * (block - 1)
    length = -(-length // block) * block if pad else length
    length = min(numel * block, length) if numel < experts else length
    places, blocks = [], []
    for expert in range(experts):
        own = list(numpy.flatnonzero(flat == expert))
        own += [numel] * (-len(own) % block)
        places += own
        blocks += [expert] * (len(own) // block)
    count = len(places)
    places += [numel] * (length - count)
    blocks += [-1] * (-(-length // block) - len(blocks))
    blocks = numpy.array(blocks, "int32")
    mapped = blocks if expert_map is None else expert_map[blocks]
    return numpy.array(places, "int32"), mapped, numpy.array([count], "int32")


def routed(tokens, k, experts, dtype="int32"):
    return numpy.random.default_rng(tokens).integers(0, experts, (tokens, k)).astype(dtype)


def _moe_align_block_size():
    ids = routed(9, 2, 4)
    return (ids, 4, 4), {}, align(ids, 4, 4)


def _moe_align_block_size_of_few_tokens():
    ids = routed(2, 2, 16, "int64")
    return (ids, 4, 16), {"ignore_invalid_experts": True}, align(ids, 4, 16)


def _moe_align_block_size_padded():
    ids = routed(8, 2, 3)
    expected = align(ids, 8, 3, pad=True)
    assert len(expected[0]) > 16 + 3 * 7  # beyond the op's own result
    return (ids, 8, 3, None, True), {}, expected


def _moe_align_block_size_with_a_map():
    ids, there = routed(9, 2, 4), numpy.array([-1, 0, -1, 1], "int32")
    return (ids, 4, 4), {"expert_map": there}, align(ids, 4, 4, there)


def _attention_backend():
    return (), {"use_mla": False}, "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"


CALLS = {name[1:]: make for name, make in list(globals().items()) if re.match("_[a-z]", name)}


def op_of(name):
    return max((op for op in adapters._ADAPTERS if name.startswith(op)), key=len)


def same(given, expected):
    if isinstance(expected, tuple):
        assert len(given) == len(expected)
        for one, other in zip(given, expected, strict=True):
            same(one, other)
    elif isinstance(expected, str):
        assert given == expected
    else:
        given = numpy.asarray(given)
        assert given.shape == expected.shape
        assert given.dtype == expected.dtype
        assert numpy.allclose(given, expected, atol=1e-5, rtol=1e-5)


def of_torch(value):
    """The same with torch's tensors."""
    torch = pytest.importorskip("torch")
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**{name: of_torch(held) for name, held in vars(value).items()})
    return value


@pytest.mark.parametrize("tensors", ["numpy", "torch"])
@pytest.mark.parametrize("impl_id", ["reference.c", "default.flagos"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_numpy_does(name, impl_id, tensors):
    args, kwargs, expected = CALLS[name]()
    if tensors == "torch":
        expected = (args[1], expected[1]) if name == "moe_sum" else expected
        args, kwargs = tuple(map(of_torch, args)), {key: of_torch(value) for key, value in kwargs.items()}
    op, manager = op_of(name), manager_of()
    with dispatch.policy_context(SelectionPolicy(per_op_order=((op, (f"impl:{impl_id}",)),), strict=True)):
        given = manager.call(op, *args, **kwargs)
    if name == "moe_sum":
        assert given is None
        given = expected[0], expected[0]
        expected = expected[1], expected[1]
    same(given, expected)


def test_each_adapter_has_a_call_here():
    assert {op_of(name) for name in CALLS} == set(adapters._ADAPTERS)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("silu_and_mul_with_clamp", (random(2, 4), random(1), None)),
        ("grouped_topk", (random(2, 8), 2, 1, 2, True, 1.0, None, 0)),
        ("grouped_topk", (random(2, 8), 2, 1, 2, True, 1.0, numpy.zeros(8, "float64"), 1)),
        ("moe_align_block_size", (routed(2, 2, 4), 4, 4, numpy.zeros(4, "int32"), False, True)),
        ("moe_align_block_size", (routed(2, 2, 4, "uint32"), 4, 4)),
        ("moe_align_block_size", (routed(2, 2, 4)[0], 4, 4)),
    ],
)
def test_what_has_no_c_form_goes_to_python(op, args):
    manager = manager_of()
    manager.registry.register_impl(
        dispatch.OpImpl(op, "reference.py", dispatch.BackendImplKind.REFERENCE, lambda *args: "python")
    )
    assert manager.call(op, *args) == "python"


def test_the_document_names_every_operator_and_what_has_no_adapter_has_no_op_either():
    section = DOCUMENT.read_text(encoding="utf-8").split("## One policy")[1].split("## ")[0]
    tables = [re.findall(r"^\| (`.*?`) \|", table, re.M) for table in section.split("| operators |")]
    adapted, others = ({name for row in rows for name in re.findall(r"`(\w+)`", row)} for rows in tables)
    assert adapted == set(adapters._ADAPTERS)
    assert len(adapted | others) == 43
    assert not others & set(manager_of().host.ops())
