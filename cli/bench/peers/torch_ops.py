"""The operators as PyTorch has them: what `flhost bench --peer torch` puts beside flhost's implementations.

A table, by operator: a function of a call's arguments, tensors and attributes by their names. What PyTorch has in one call
is written so; what it has not is written as a model in PyTorch would have it. No function changes its arguments.
"""

import torch
import torch.nn.functional as F

SQRT_2_OVER_PI = 0.7978845608028654


def halves(x):
    return x.chunk(2, dim=-1)


def gated(activation):
    """Of the first half, times the second."""

    def form(t):
        gate, up = halves(t["x"])
        return activation(gate, t) * up

    return form


def clamp_gated(t):
    gate, up = halves(t["x"])
    gate, up = gate.clamp(max=t["limit"]), up.clamp(-t["limit"], t["limit"])
    return gate * torch.sigmoid(t["alpha"] * gate) * (up + t["beta"])


def swigluoai(t):
    gate, up = t["x"][..., ::2].clamp(max=t["limit"]), t["x"][..., 1::2].clamp(-t["limit"], t["limit"])
    return (up + 1) * (gate * torch.sigmoid(t["alpha"] * gate))


def swiglustep(t):
    gate, up = halves(t["x"])
    return F.silu(gate).clamp(max=t["limit"]) * up.clamp(-t["limit"], t["limit"])


def situ(t):
    gate, up = (half.float() for half in halves(t["x"]))
    if t["linear_beta"] is not None:
        up = t["linear_beta"] * torch.tanh(up / t["linear_beta"])
    return (t["beta"] * torch.tanh(gate / t["beta"]) * torch.sigmoid(gate) * up).to(t["x"].dtype)


def xielu(t):
    x, positive = t["x"], F.softplus(t["alpha_p"])
    negative = t["beta"] + F.softplus(t["alpha_n"])
    below = (torch.expm1(x.clamp(max=t["eps"])) - x) * negative + t["beta"] * x
    return torch.where(x > 0, positive * x * x + t["beta"] * x, below)


def sparse_cut(gate, t):
    multiplier = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(t["activation_sparsity"])).item()
    mean, std = gate.mean(-1, keepdim=True), gate.std(-1, keepdim=True, unbiased=False)
    return F.gelu(F.relu(gate - (mean + std * multiplier)), approximate=t["approximate"])


def normalise(x, weight, epsilon):
    weight = None if weight is None else weight.to(x.dtype)
    return F.rms_norm(x, (x.shape[-1],), weight, epsilon)


def rms(t):
    if t["residual"] is None:
        return normalise(t["x"], t["weight"], t["epsilon"])
    added = t["x"] + t["residual"]
    return normalise(added, t["weight"], t["epsilon"]), added


def add_rms(t):
    added = t["x"] + t["x_residual"]
    return normalise(added, t["weight"], t["epsilon"]), added


def gemma_rms(t):
    added = t["x"] if t["residual"] is None else t["x"] + t["residual"]
    out = normalise(added.float(), 1 + t["weight"].float(), t["epsilon"]).to(t["x"].dtype)
    return out if t["residual"] is None else (out, added)


def rms_gated(t):
    x, groups = t["x"].float(), t["group_size"] or t["x"].shape[-1]
    gate = None if t["z"] is None else F.silu(t["z"].float())
    if gate is not None and not t["norm_before_gate"]:
        x = x * gate
    x = F.rms_norm(x.unflatten(-1, (-1, groups)), (groups,), None, t["epsilon"]).flatten(-2) * t["weight"].float()
    if gate is not None and t["norm_before_gate"]:
        x = x * gate
    return x.to(t["x"].dtype)


def mixer2_rms(t):
    x = t["x"].float() * F.silu(t["gate"].float())
    size = x.shape[-1] // t["n_groups"]
    x = F.rms_norm(x.unflatten(-1, (t["n_groups"], size)), (size,), None, t["epsilon"]).flatten(-2)
    return t["weight"] * x.to(t["x"].dtype)


def layer_norm(t):
    x, weight, bias = t["x"], t["weight"], t["bias"]
    kept = {other.dtype for other in (weight, bias) if other is not None} <= {x.dtype}
    out = F.layer_norm(x if kept else x.float(), (x.shape[-1],), weight, bias, t["epsilon"])
    return out.to(x.dtype)


def nemotron_layer_norm(t):
    x = t["x"] if t["residual"] is None else t["x"] + t["residual"]
    weight, bias = t["weight"] + 1, t["bias"]
    kept = weight.dtype == x.dtype
    out = F.layer_norm(x if kept else x.float(), (x.shape[-1],), weight, bias, t["epsilon"]).to(x.dtype)
    return out if t["residual"] is None else (out, x)


def rotated(x, cos, sin, neox=True):
    if neox:
        a, b = halves(x)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


def apply_rotary(t):
    cos, sin = (t[name].to(t["x"].dtype).unsqueeze(-2) for name in ("cos", "sin"))
    return rotated(t["x"], cos, sin, t["is_neox_style"])


def rotary(t):
    cos, sin = (t[name][t["position_ids"]].to(t["query"].dtype).unsqueeze(-2) for name in ("cos", "sin"))
    done = [rotated(t[name], cos, sin, not t["interleaved"]) for name in ("query", "key") if t[name] is not None]
    return tuple(done) if len(done) > 1 else done[0]


def norm_rotary(t):
    d, q, k = t["q_weight"].shape[0], t["num_heads_q"], t["num_heads_k"]
    heads, r = t["qkv"].unflatten(-1, (-1, d)).float(), 2 * t["cos"].shape[1]
    cos, sin = (t[name][t["position_ids"]].float().unsqueeze(-2) for name in ("cos", "sin"))
    weight = torch.cat((t["q_weight"].expand(q, d), t["k_weight"].expand(k, d))).float()
    turned = F.rms_norm(heads[:, : q + k], (d,), None, t["epsilon"]) * weight
    turned = torch.cat((rotated(turned[..., :r], cos, sin, not t["interleaved"]), turned[..., r:]), dim=-1)
    return torch.cat((turned, heads[:, q + k :]), dim=1).flatten(-2).to(t["qkv"].dtype)


def three_rotary(t):
    """By three positions a token, in sections or in turns."""
    axes = torch.repeat_interleave(torch.arange(3), torch.tensor(t["mrope_section"]))
    if t["mrope_interleaved"]:
        axes = torch.arange(len(axes)) % 3
        axes = torch.where(torch.arange(len(axes)) < 3 * torch.tensor(t["mrope_section"])[axes], axes, 0)
    rows = t["position_ids"][axes.to(t["position_ids"].device)].T.long()
    angles = {name: t[name].gather(0, rows).to(t["query"].dtype).unsqueeze(-2) for name in ("cos", "sin")}
    done = []
    for name in ("query", "key"):
        if t[name] is not None:
            r = 2 * t["cos"].shape[1]
            turned = rotated(t[name][..., :r], angles["cos"], angles["sin"], not t["interleaved"])
            done.append(torch.cat((turned, t[name][..., r:]), dim=-1))
    return tuple(done) if len(done) > 1 else done[0]


def merge_states(t):
    prefix, suffix = t["prefix_lse"], t["suffix_lse"]
    most = torch.maximum(prefix, suffix)
    p, s = torch.exp(prefix - most), torch.exp(suffix - most)
    share = (p / (p + s)).T.unsqueeze(-1)
    out = t["prefix_output"] * share + t["suffix_output"] * (1 - share)
    return out.to(t["prefix_output"].dtype), torch.log(p + s) + most


def topk(t):
    weights, ids = torch.topk(torch.softmax(t["gating_output"].float(), dim=-1), t["topk"])
    if t["renormalize"]:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, ids.int()


def grouped_topk(t):
    scores = t["gating_output"].sigmoid() if t["scoring_func"] == "sigmoid" else t["gating_output"].softmax(-1)
    bias = t["e_score_correction_bias"]
    chosen = scores if bias is None else scores + bias
    groups = chosen.unflatten(-1, (t["num_expert_group"], -1))
    best = groups.amax(-1) if bias is None else groups.topk(2, -1).values.sum(-1)
    kept = torch.zeros_like(best).scatter_(-1, best.topk(t["topk_group"], -1).indices, 1)
    ids = groups.masked_fill(kept.unsqueeze(-1) == 0, float("-inf")).flatten(-2).topk(t["topk"], -1).indices
    weights = scores.gather(-1, ids).float()
    if t["renormalize"]:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * t["routed_scaling_factor"], ids.int()


def quantise(t):
    """One scale a token, or one for the tensor."""
    most, x = 448.0, t["x"]
    if t["scale"] is not None:
        scale = t["scale"]
    else:
        amax = x.abs().amax(-1, keepdim=True) if t["group_shape"][0] == 1 else x.abs().amax().reshape(1)
        scale = (amax.float() / most).clamp(min=1 / (most * 512))
    return (x.float() * (1 / scale)).clamp(-most, most).to(torch.float8_e4m3fn), scale


def float8(y, scale):
    return (y.float() * (1 / scale)).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def int8(scaled):
    return scaled.round().clamp(-128, 127).to(torch.int8)


def codes(y, magnitude, quant_dtype):
    """And the scale, of float32 values with their largest magnitudes."""
    if quant_dtype == "int8":
        scale = (magnitude / 127.0).clamp(min=2.0**-23)
        return int8(y / scale), scale
    scale = (magnitude / 448.0).clamp(min=1 / (448.0 * 512))
    return (y / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale


def rms_static(t):
    return float8(normalise(t["x"], t["weight"], t["epsilon"]), t["scale"])


def add_rms_static(t):
    added = t["x"] + t["residual"]
    return float8(normalise(added, t["weight"], t["epsilon"]), t["scale"]), added


def rms_dynamic(t):
    """Of a residual nothing is written."""
    x = t["x"] if t["residual"] is None else t["x"] + t["residual"]
    y = normalise(x, t["weight"], t["epsilon"]).float()
    largest = y.abs().amax(-1, keepdim=True)
    q, scale = codes(y, largest if t["scale_ub"] is None else largest.minimum(t["scale_ub"]), t["quant_dtype"])
    return q, scale.reshape(-1, 1)


def silu_static(t):
    gate, up = halves(t["x"])
    return float8(F.silu(gate) * up, t["scale"])


def silu_blocks(t):
    gate, up = (half.float().unflatten(-1, (-1, t["group_size"])) for half in halves(t["x"]))
    y = F.silu(gate) * up
    magnitude = y.abs().amax(-1, keepdim=True)
    if t["scale_ub"] is not None:
        magnitude = magnitude.minimum(t["scale_ub"] * 448.0)
    q, scale = codes(y, magnitude, t["quant_dtype"])
    return q.flatten(-2), scale.squeeze(-1)


def quantise_int8(t):
    x, scale, azp = t["x"].float(), t["scale"], t["azp"]
    if scale is not None and azp is None:
        return int8(x / scale), scale
    if scale is None and t["symmetric"]:
        largest = x.abs().amax(-1, keepdim=True)
        return int8(x * (127.0 / largest)), (largest / 127.0).reshape(-1, 1)
    if scale is None:
        least, most = x.aminmax(dim=-1, keepdim=True)
        scale = (most - least) / 255.0
        azp = (-128.0 - least / scale).round().int()
    q = ((x / scale).round() + azp).clamp(-128, 127).to(torch.int8)
    return (q, scale, azp) if t["scale"] is not None else (q, scale.reshape(-1, 1), azp.reshape(-1, 1))


def linear(t):
    bias = None if t.get("skip_bias_add") else t["bias"]
    return F.linear(t["x"], t["weight"], bias)


def scaled_mm(t):
    """Of one scale for x or for each token, and for each channel of the weight."""
    x, weight = t["x"].flatten(0, -2), t["weight"]
    dtype = getattr(torch, t["out_dtype"])
    if x.dtype == torch.int8:
        sums = torch._int_mm(x, weight.T)
        if t["azp"] is not None:
            sums = sums - t["azp"] * weight.sum(-1, dtype=torch.int32)
        sums = sums.float()
    else:
        sums = F.linear(x.to(torch.bfloat16), weight.to(torch.bfloat16)).float()
    out = sums * t["x_scale"] * t["weight_scale"].flatten()
    if t["bias"] is not None:
        out = out + t["bias"].float()
    return out.to(dtype).unflatten(0, t["x"].shape[:-1])


def weight_only(t):
    """Of one scale or of one for each channel of the weight."""
    scale = t["weight_scale"].flatten().unsqueeze(-1)
    return F.linear(t["x"], (t["weight"].float() * scale).to(t["x"].dtype), t["bias"])


def nibbles(words):
    """Of the last dimension."""
    return (words.unsqueeze(-1) >> torch.arange(0, 32, 4, device=words.device)) & 15


def awq(t):
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    q, zeros = (nibbles(t[name])[..., order].flatten(-2) for name in ("qweight", "qzeros"))
    q = q.unflatten(0, (zeros.shape[0], -1)) - zeros.unsqueeze(1)
    weight = q.to(t["x"].dtype) * t["scales"].unsqueeze(1)
    return F.linear(t["x"], weight.flatten(0, 1).T, t["bias"])


def gptq(t):
    q = nibbles(t["qweight"].T).flatten(-2).T
    zeros = 8 if t["qzeros"] is None else nibbles(t["qzeros"]).flatten(-2) + (not t["use_v2_format"])
    rows = torch.arange(q.shape[0]) // (q.shape[0] // t["scales"].shape[0]) if t["g_idx"] is None else t["g_idx"]
    weight = (q - (zeros if t["qzeros"] is None else zeros[rows])).to(t["x"].dtype) * t["scales"][rows]
    return F.linear(t["x"], weight.T, t["bias"])


def mxfp4(t):
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.stack((t["weight"] & 15, t["weight"] >> 4), -1).flatten(-2)
    scales = torch.exp2(t["weight_scale"].float() - 127).repeat_interleave(32, -1)
    return F.linear(t["x"], (values[codes.int()] * scales).to(t["x"].dtype), t["bias"])


def head(t):
    return F.linear(t["hidden_states"], t["weight"], t["bias"])


def logits(t):
    out = head(t)
    if t["org_vocab_size"] is not None:
        out = out[..., : t["org_vocab_size"]]
    if t["soft_cap"] is not None:
        out = torch.tanh(out / t["soft_cap"]) * t["soft_cap"]
    return out if t["scale"] == 1.0 else out * t["scale"]


def convolution(function):
    def form(t):
        return function(t["x"], t["weight"], t["bias"], t["stride"], t["padding"], t["dilation"], t["groups"])

    return form


def causal_conv(t):
    """Of one sequence that begins from nothing."""
    d, w = t["weight"].shape
    bias = None if t["bias"] is None else t["bias"].to(t["x"].dtype)
    out = F.conv1d(t["x"].unsqueeze(0), t["weight"].to(t["x"].dtype).unsqueeze(1), bias, padding=w - 1, groups=d)
    out = out[0, :, : t["x"].shape[1]]
    return F.silu(out) if t["activation"] == "silu" else out


def chunks(x, size):
    """[chunk, head, token, ...] of [token, head, ...], zeros behind the last token."""
    padding = (0, 0) * (x.ndim - 1) + (0, -x.shape[0] % size)
    return F.pad(x, padding).unflatten(0, (-1, size)).transpose(1, 2)


def decays(logs):
    """Of chunks [chunk, head, token]: what is left of a token at each that is not before it, 0 else."""
    between = logs.unsqueeze(-1) - logs.unsqueeze(-2)
    earlier = torch.ones(between.shape[-2:], dtype=torch.bool, device=logs.device).tril()
    return torch.exp(between.masked_fill(~earlier, float("-inf")))


def delta_steps(q, k, v, g, beta, state):
    """A loop over tokens."""
    decay, out = torch.exp(g), []
    for i in range(q.shape[0]):
        state = state * decay[i].unsqueeze(-2)
        d = (v[i] - (state * k[i].unsqueeze(-2)).sum(-1)) * beta[i].unsqueeze(-1)
        state = state + d.unsqueeze(-1) * k[i].unsqueeze(-2)
        out.append((state * q[i].unsqueeze(-2)).sum(-1))
    return torch.stack(out)


def delta_chunks(q, k, v, g, beta, state, size=64):
    """A loop over chunks of tokens, whose differences d are solved for at once; g [token, head]."""
    n, (q, k, v, g, beta) = q.shape[0], (chunks(x, size) for x in (q, k, v, g, beta))
    logs, beta = g.cumsum(-1), beta.unsqueeze(-1)
    left, scaled = decays(logs), k * beta
    since_start, until_end = torch.exp(logs).unsqueeze(-1), torch.exp(logs[..., -1:] - logs).unsqueeze(-1)
    within = q @ k.transpose(-1, -2) * left
    between = (scaled @ k.transpose(-1, -2) * left).tril(-1)
    given = torch.cat((v * beta, scaled * since_start), -1)
    known = torch.linalg.solve_triangular(between, given, upper=False, unitriangular=True)
    of_values, of_state = known.split((v.shape[-1], k.shape[-1]), -1)
    state, out = state.transpose(-1, -2), []
    for i in range(q.shape[0]):
        d = of_values[i] - of_state[i] @ state
        out.append((q[i] * since_start[i]) @ state + within[i] @ d)
        state = state * since_start[i, :, -1:] + (k[i] * until_end[i]).transpose(-1, -2) @ d
    return torch.stack(out).transpose(1, 2).flatten(0, 1)[:n]


def delta_rule(q, k, v, g, beta, state, scale, normalise):
    """[token, head, ...] in float32, from states [head, value, key]; g [token, head, 1 or key]."""
    repeat = v.shape[1] // q.shape[1]
    if normalise:
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q, k = (x.repeat_interleave(repeat, 1) for x in (q * (q.shape[-1] ** -0.5 if scale is None else scale), k))
    if q.shape[0] == 1 or g.shape[-1] > 1:
        return delta_steps(q, k, v, g, beta, state)
    return delta_chunks(q, k, v, g.squeeze(-1), beta, state)


def first_state(t, heads, values, keys):
    """That of the first slot, where the one sequence begins from it."""
    if t["state"] is None or t["has_initial_state"] is None:
        return torch.zeros(heads, values, keys, device=t["a" if "a" in t else "g"].device)
    return t["state"][0].float() * t["has_initial_state"][0]


def chunk_delta(t):
    q, k, v = (t[name].float() for name in ("query", "key", "value"))
    g = t["g"].unsqueeze(-1) if t["g"].ndim == 2 else t["g"]
    state = first_state(t, v.shape[1], v.shape[2], q.shape[2])
    return delta_rule(q, k, v, g, t["beta"].float(), state, t["scale"], t["use_qk_l2norm"]).to(t["query"].dtype)


def split_qkv(x, t, keys):
    width = t["num_k_heads"] * keys
    q, k, v = x.float().split((width, width, x.shape[1] - 2 * width), dim=-1)
    return q.unflatten(-1, (-1, keys)), k.unflatten(-1, (-1, keys)), v.unflatten(-1, (t["a"].shape[1], -1))


def gates(t):
    g = -torch.exp(t["A_log"].float()) * F.softplus(t["a"].float() + t["dt_bias"].float())
    return g.unsqueeze(-1), torch.sigmoid(t["b"].float())


def recurrent_delta(t):
    """Each row a sequence of its own, all at once."""
    (q, k, v), (g, beta) = split_qkv(t["mixed_qkv"], t, t["state"].shape[3]), gates(t)
    n, states = q.shape[0], t["state"][t["cache_indices"].long()].float()
    rows = [x.repeat_interleave(states.shape[1] // x.shape[1], 1).flatten(0, 1).unsqueeze(0) for x in (q, k, v)]
    g, beta = g.flatten(0, 1).unsqueeze(0), beta.flatten().unsqueeze(0)
    out = delta_rule(*rows, g, beta, states.flatten(0, 1), t["scale"], t["use_qk_l2norm"])
    return out.unflatten(1, (n, -1))[0].to(t["mixed_qkv"].dtype)


def delta_core(t):
    """Of one sequence."""
    x, weight, past = t["mixed_qkv"].T, t["conv_weight"], t["conv_weight"].shape[1] - 1
    before = torch.zeros(x.shape[0], past, dtype=x.dtype, device=x.device)
    if t["conv_state"] is not None and t["has_initial_state"] is not None:
        before = t["conv_state"][0].to(x.dtype) * t["has_initial_state"][0]
    y = F.conv1d(torch.cat((before, x), -1), weight.unsqueeze(1), t["conv_bias"], groups=x.shape[0])
    (q, k, v), (g, beta) = split_qkv(F.silu(y).T, t, t["head_k_dim"]), gates(t)
    return delta_rule(q, k, v, g, beta, first_state(t, *v.shape[1:], q.shape[2]), None, True).to(x.dtype)


def encoder_attention(t):
    q, k, v = (t[name].transpose(1, 2) for name in ("query", "key", "value"))
    return F.scaled_dot_product_attention(q, k, v, scale=t["scale"], enable_gqa=q.shape[1] != k.shape[1]).transpose(
        1, 2
    )


def latent_prefill(t):
    n, h, _ = t["query"].shape
    k_pe = t["k_pe"].reshape(t["k_pe"].shape[0], 1, -1)
    expanded = F.linear(t["kv_c"], t["kv_b_proj"]).unflatten(-1, (h, -1))
    nope, v = expanded.split([expanded.shape[-1] - t["v_head_dim"], t["v_head_dim"]], dim=-1)
    k = torch.cat((nope, k_pe.expand(-1, h, -1)), dim=-1)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (t["query"], k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=t["scale"])[0].transpose(0, 1).reshape(n, -1)


def latent_decode(t):
    """Of sequences that fill their blocks, as all do that are timed."""
    rows = t["kv_cache"][t["block_table"]].flatten(1, 2)
    scores = torch.matmul(t["query"], rows.transpose(1, 2)).float() * t["scale"]
    out = torch.matmul(torch.softmax(scores, -1).to(rows.dtype), rows[..., : t["kv_lora_rank"]])
    return out, torch.logsumexp(scores, -1)


def paged_attention(t):
    """Of sequences that are equally long and fill their blocks, as all are that are timed: gathered, then attended to."""
    b, n = t["block_table"].shape[0], t["query"].shape[0]
    k, v = (t[name][t["block_table"]].flatten(1, 2).transpose(1, 2) for name in ("key_cache", "value_cache"))
    q, keys = t["query"].unflatten(0, (b, n // b)).transpose(1, 2), k.shape[2]
    mask = None
    if n // b != keys:
        hidden = torch.ones(n // b, keys, dtype=torch.bool, device=q.device).triu(keys - n // b + 1)
        mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device).masked_fill_(hidden, float("-inf"))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, mask is None, attn_mask=mask, scale=t["scale"]
    )
    return out.transpose(1, 2).flatten(0, 1), lse.transpose(0, 1).flatten(1, 2)


def scan(t):
    """A step at a time, of one sequence that begins from nothing."""
    delta = t["delta"].float()
    if t["delta_bias"] is not None:
        delta = delta + t["delta_bias"].float().unsqueeze(-1)
    if t["delta_softplus"]:
        delta = F.softplus(delta)
    d, repeat = t["u"].shape[0], t["u"].shape[0] // t["B"].shape[0]
    u, b, c = t["u"].float(), t["B"].float().repeat_interleave(repeat, 0), t["C"].float().repeat_interleave(repeat, 0)
    state, out = torch.zeros(d, t["A"].shape[1], device=u.device), []
    for i in range(u.shape[1]):
        step = delta[:, i, None]
        state = torch.exp(step * t["A"]) * state + step * b[:, :, i] * u[:, i, None]
        out.append((state * c[:, :, i]).sum(-1))
    y = torch.stack(out, -1)
    if t["D"] is not None:
        y = y + t["D"].float().unsqueeze(-1) * u
    if t["z"] is not None:
        y = y * F.silu(t["z"].float())
    return y.to(t["u"].dtype)


def chunk_scan(t):
    """Mamba-2's, by chunks, of one sequence that begins from nothing."""
    size, n, x, a = t["chunk_size"], t["x"].shape[0], t["x"].float(), t["A"].float()
    dt = t["dt"].float() if t["dt_bias"] is None else t["dt"].float() + t["dt_bias"].float()
    dt = (F.softplus(dt) if t["dt_softplus"] else dt).clamp(t["dt_min"], t["dt_max"])
    b, c = (chunks(t[name].float().repeat_interleave(x.shape[1] // t[name].shape[1], 1), size) for name in ("B", "C"))
    logs, added = chunks(dt * a, size).cumsum(-1), chunks(x * dt.unsqueeze(-1), size)
    within = c @ b.transpose(-1, -2) * decays(logs)
    since_start, until_end = torch.exp(logs).unsqueeze(-1), torch.exp(logs[..., -1:] - logs).unsqueeze(-1)
    ends = (b * until_end).transpose(-1, -2) @ added
    state, states = torch.zeros_like(ends[0]), []
    for i in range(ends.shape[0]):
        states.append(state)
        state = state * since_start[i, :, -1:] + ends[i]
    y = within @ added + (c * since_start) @ torch.stack(states)
    y = y.transpose(1, 2).flatten(0, 1)[:n]
    if t["D"] is not None:
        y = y + t["D"].float().reshape(x.shape[1], -1) * x
    if t["z"] is not None:
        y = y * F.silu(t["z"].float())
    return y.to(t["x"].dtype)


def experts(t, weights=None, ids=None):
    """A loop over the experts."""
    weights, ids = t["topk_weights"] if weights is None else weights, t["topk_ids"] if ids is None else ids
    x, out = t["x"], torch.zeros(t["x"].shape, dtype=torch.float32, device=t["x"].device)
    for expert in range(t["w13"].shape[0]):
        token, place = torch.where(ids == expert)
        if token.numel():
            gate, up = halves(F.linear(x[token], t["w13"][expert]))
            done = F.linear(F.silu(gate) * up, t["w2"][expert])
            out.index_add_(0, token, done.float() * weights[token, place].float().unsqueeze(-1))
    return out.to(x.dtype)


def routed_experts(t):
    weights, ids = torch.topk(torch.softmax(t["router_logits"].float(), dim=-1), t["top_k"])
    if t["renormalize"]:
        weights = weights / weights.sum(-1, keepdim=True)
    return experts(t, weights, ids)


def penalised(t):
    n, v = t["logits"].shape

    def counted(ids):
        ids = torch.where((ids >= 0) & (ids < v), ids, v).long()
        return torch.zeros(n, v + 1, dtype=torch.long, device=ids.device).scatter_add_(1, ids, torch.ones_like(ids))[
            :, :v
        ]

    prompt, output = counted(t["prompt_token_ids"]), counted(t["output_token_ids"])
    presence, frequency, repetition = (
        t[name + "_penalties"][:, None] for name in ("presence", "frequency", "repetition")
    )
    factor = torch.where((prompt > 0) | (output > 0), repetition, 1.0)
    logits = t["logits"] * torch.where(t["logits"] > 0, 1.0 / factor, factor)
    return logits - frequency * output - presence * (output > 0)


def temperature(t):
    divisor = torch.where(t["temperature"] < 1e-5, 1.0, t["temperature"])
    return t["logits"] / divisor[:, None]


def min_p(t):
    p = torch.softmax(t["logits"], -1)
    return t["logits"].masked_fill(p < p.amax(-1, keepdim=True) * t["min_p"][:, None], float("-inf"))


def top_k_top_p(t):
    """vLLM's form: one sort for both."""
    values, ids = t["logits"].sort(-1)
    if t["top_k"] is not None:
        v = values.shape[1]
        k = torch.where((t["top_k"] < 1) | (t["top_k"] > v), v, t["top_k"]).long()
        values = values.masked_fill(values < values.gather(1, (v - k)[:, None]), float("-inf"))
    if t["top_p"] is not None:
        closed = values.softmax(-1).cumsum(-1) <= 1 - t["top_p"][:, None]
        closed[:, -1] = False
        values = values.masked_fill(closed, float("-inf"))
    return values.scatter(-1, ids, values)


def gumbel(t):
    noise = -torch.log(-torch.log1p(-t["uniform"]))
    t_ = t["temperature"][:, None]
    drawn = torch.where(t_ == 0, t["logits"], t["logits"] / torch.where(t_ == 0, 1.0, t_) + noise)
    return drawn.argmax(-1)


def gathered_logprobs(t):
    logprobs = t["logits"].float().log_softmax(-1)
    ids = t["token_ids"].long()[:, None]
    given = logprobs.gather(-1, ids)
    values, best = logprobs.topk(t["num_logprobs"], -1)
    ranks = (logprobs >= given).sum(-1)
    return torch.cat((ids, best), 1).int(), torch.cat((given, values), 1), ranks


OPS = {
    "silu_and_mul": gated(lambda gate, t: F.silu(gate)),
    "mul_and_silu": lambda t: halves(t["x"])[0] * F.silu(halves(t["x"])[1]),
    "gelu_and_mul": gated(lambda gate, t: F.gelu(gate, approximate=t["approximate"])),
    "gelu_and_mul_sparse": gated(sparse_cut),
    "fatrelu_and_mul": gated(lambda gate, t: F.threshold(gate, t["threshold"], 0.0)),
    "silu_and_mul_with_clamp": clamp_gated,
    "swigluoai_and_mul": swigluoai,
    "swiglustep_and_mul": swiglustep,
    "situ_and_mul": situ,
    "gelu": lambda t: F.gelu(t["x"], approximate=t["approximate"]),
    "gelu_new": lambda t: 0.5 * t["x"] * (1 + torch.tanh(SQRT_2_OVER_PI * (t["x"] + 0.044715 * torch.pow(t["x"], 3)))),
    "gelu_fast": lambda t: 0.5 * t["x"] * (1 + torch.tanh(t["x"] * SQRT_2_OVER_PI * (1 + 0.044715 * t["x"] * t["x"]))),
    "quick_gelu": lambda t: t["x"] * torch.sigmoid(1.702 * t["x"]),
    "relu2": lambda t: torch.square(F.relu(t["x"])),
    "xielu": xielu,
    "rms_norm": rms,
    "fused_add_rms_norm": add_rms,
    "gemma_rms_norm": gemma_rms,
    "rms_norm_gated": rms_gated,
    "mixer2_gated_rms_norm": mixer2_rms,
    "layer_norm": layer_norm,
    "nemotron_layer_norm": nemotron_layer_norm,
    "add": lambda t: t["x"] + t["y"],
    "sigmoid_mul": lambda t: t["x"] * torch.sigmoid(t["gate"]),
    "apply_rotary_emb": apply_rotary,
    "rotary_embedding": rotary,
    "fused_qk_norm_rope": norm_rotary,
    "mrope": three_rotary,
    "quant_fp8": quantise,
    "scaled_int8_quant": quantise_int8,
    "rms_norm_static_fp8_quant": rms_static,
    "fused_add_rms_norm_static_fp8_quant": add_rms_static,
    "rms_norm_dynamic_per_token_quant": rms_dynamic,
    "silu_and_mul_quant": silu_static,
    "silu_and_mul_per_block_quant": silu_blocks,
    "merge_attn_states": merge_states,
    "topk_softmax": topk,
    "grouped_topk": grouped_topk,
    "moe_sum": lambda t: t["x"].sum(-2),
    "vocab_parallel_embedding": lambda t: F.embedding(t["input_ids"], t["weight"]),
    "replicated_linear": linear,
    "column_parallel_linear": linear,
    "row_parallel_linear": linear,
    "scaled_mm": scaled_mm,
    "weight_only_linear": weight_only,
    "awq_linear": awq,
    "gptq_linear": gptq,
    "mxfp4_linear": mxfp4,
    "parallel_lm_head": head,
    "logits_processor": logits,
    "apply_penalties": penalised,
    "apply_temperature": temperature,
    "apply_min_p": min_p,
    "apply_top_k_top_p": top_k_top_p,
    "greedy_argmax": lambda t: t["logits"].argmax(-1),
    "exponential_sample": lambda t: t["logits"].softmax(-1).div(t["noise"]).argmax(-1),
    "gumbel_sample": gumbel,
    "gather_logprobs": gathered_logprobs,
    "conv2d": convolution(F.conv2d),
    "conv3d": convolution(F.conv3d),
    "causal_conv1d": causal_conv,
    "selective_scan": scan,
    "mamba_chunk_scan": chunk_scan,
    "chunk_gated_delta_rule": chunk_delta,
    "recurrent_gated_delta_rule": recurrent_delta,
    "gdn_attention_core": delta_core,
    "mm_encoder_attn": encoder_attention,
    "mla_prefill": latent_prefill,
    "mla_decode": latent_decode,
    "paged_attention": paged_attention,
    "fused_moe": routed_experts,
    "modular_fused_moe": experts,
    "unquantized_fused_moe": experts,
    "transformers_fused_moe": experts,
}

# torch.compile unrolls these loops, or falls back at each turn: eager alone.
NOT_COMPILED = {
    "selective_scan",
    "fused_moe",
    "modular_fused_moe",
    "unquantized_fused_moe",
    "transformers_fused_moe",
}
