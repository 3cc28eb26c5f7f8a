"""The operators as PyTorch has them, timed on the sizes that `flhost bench` has timed: what bench/gpu.py puts beside it.

A table, by operator: a function of the tensors that the call has, by name. What PyTorch has in one call is written so;
what it has not is written as vLLM's forward_native has it. Attributes are those of `flhost bench`.
"""

import re
import statistics
import time

import torch
import torch.nn.functional as F

SAMPLES, SAMPLE_SECONDS, WARM_UP = 31, 2e-3, 3
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def halves(x):
    return x.chunk(2, dim=-1)


def rms(x, weight, epsilon=1e-6):
    return F.rms_norm(x, (x.shape[-1],), weight, epsilon)


def add_rms(t):
    added = t["x"] + t["x_residual"]
    return rms(added, t["weight"]), added


def merge_states(t):
    prefix, suffix = t["prefix_lse"].T.unsqueeze(-1), t["suffix_lse"].T.unsqueeze(-1)
    most = torch.maximum(prefix, suffix)
    p, s = torch.exp(prefix - most), torch.exp(suffix - most)
    return (t["prefix_output"] * p + t["suffix_output"] * s) / (p + s)


def rotate(t):
    a, b = halves(t["x"])
    cos, sin = t["cos"].unsqueeze(-2), t["sin"].unsqueeze(-2)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def topk(t):
    weights, ids = torch.topk(torch.softmax(t["gating_output"].float(), dim=-1), 8)
    return weights, ids.int()


OPS = {
    "silu_and_mul": lambda t: F.silu(halves(t["x"])[0]) * halves(t["x"])[1],
    "mul_and_silu": lambda t: halves(t["x"])[0] * F.silu(halves(t["x"])[1]),
    "gelu_and_mul": lambda t: F.gelu(halves(t["x"])[0]) * halves(t["x"])[1],
    "gelu": lambda t: F.gelu(t["x"]),
    "gelu_new": lambda t: F.gelu(t["x"], approximate="tanh"),
    "gelu_fast": lambda t: F.gelu(t["x"], approximate="tanh"),
    "quick_gelu": lambda t: t["x"] * torch.sigmoid(1.702 * t["x"]),
    "relu2": lambda t: torch.square(F.relu(t["x"])),
    "rms_norm": lambda t: rms(t["x"], t["weight"]),
    "fused_add_rms_norm": add_rms,
    "gemma_rms_norm": lambda t: rms(t["x"], 1 + t["weight"]),
    "apply_rotary_emb": rotate,
    "merge_attn_states": merge_states,
    "topk_softmax": topk,
    "moe_sum": lambda t: t["x"].sum(-2),
    "replicated_linear": lambda t: F.linear(t["x"], t["weight"], t.get("bias")),
    "column_parallel_linear": lambda t: F.linear(t["x"], t["weight"], t.get("bias")),
    "row_parallel_linear": lambda t: F.linear(t["x"], t["weight"], t.get("bias")),
    "parallel_lm_head": lambda t: F.linear(t["hidden_states"], t["weight"], t.get("bias")),
    "logits_processor": lambda t: F.linear(t["hidden_states"], t["weight"], t.get("bias")),
    "conv2d": lambda t: F.conv2d(t["x"], t["weight"], t.get("bias"), stride=tuple(t["weight"].shape[2:])),
    "conv3d": lambda t: F.conv3d(t["x"], t["weight"], t.get("bias"), stride=tuple(t["weight"].shape[2:])),
}


def tensors_of(arguments, dtype, device):
    """Random tensors of "x[1, 4096] weight[4096]"."""
    found = re.findall(r"(\w+)\[([\d, ]*)\]", arguments)
    return {name: torch.randn([int(n) for n in shape.split(",") if n.strip()], dtype=dtype, device=device)
            for name, shape in found}


def seconds_of(function, tensors, n):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        function(tensors)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n


def microseconds(function, tensors):
    """Of one call: the median of samples of many launches and one synchronisation each."""
    for _ in range(WARM_UP):
        once = seconds_of(function, tensors, 1)
    n = max(1, int(SAMPLE_SECONDS / once))
    return 1e6 * statistics.median(seconds_of(function, tensors, n) for _ in range(SAMPLES))


def compiled(function):
    """torch.compile's, or None where it has no compiler to work with."""
    try:
        import triton  # noqa: F401, pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        return None
    return torch.compile(function, dynamic=False)


def time_call(op, arguments, dtype, device="cuda"):
    """{"eager_us", "compiled_us"} of one call, or None where the table has no such operator; a reason for what failed."""
    if op not in OPS or dtype not in DTYPES:
        return None
    timed = {"eager_us": None, "compiled_us": None, "reason": None}
    try:
        with torch.inference_mode():
            tensors = tensors_of(arguments, DTYPES[dtype], device)
            timed["eager_us"] = microseconds(OPS[op], tensors)
            fast = compiled(OPS[op])
            if fast:
                timed["compiled_us"] = microseconds(fast, tensors)
    except RuntimeError as error:  # out of memory, or a compiler that fails: the rest goes on
        timed["reason"] = str(error).splitlines()[0]
    torch.cuda.empty_cache()
    return timed


def version():
    return f"torch {torch.__version__}"
