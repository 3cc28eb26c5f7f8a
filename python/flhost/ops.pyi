"""The operators, as functions. Written by generate-ops from the entries in core/ops; do not edit.

A result is of the kind of the first tensor; `out` takes the results instead, a tuple where there are several. `stream` is
the address of the device's stream, that of the first tensor's library otherwise. `prepared` is what flhost.prepare made of the
weights. Ops of plugins are there, too, without a type.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ._core import Prepared

class _Tensor(Protocol):
    def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

_T = TypeVar("_T", bound=_Tensor)

def __getattr__(name: str) -> Callable[..., Any]: ...
def __dir__() -> list[str]: ...
def silu_and_mul(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """SiLU of the first half of x's last dimension, times the second half."""

def mul_and_silu(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The first half of x's last dimension, times SiLU of the second half."""

def gelu_and_mul(
    x: _T,
    approximate: str = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """GELU of the first half of x's last dimension, times the second half; approximate is "none" or "tanh"."""

def gelu_and_mul_sparse(
    x: _T,
    activation_sparsity: float,
    approximate: str = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """GELU of what the first half of x's last dimension has above a cut, times the second half; the cut leaves a part of 1 - activation_sparsity of normally distributed values."""

def swigluoai_and_mul(
    x: _T,
    alpha: float = 1.702,
    limit: float = 7.0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The gated activation of gpt-oss: gate and factor alternate in x's last dimension, both are clamped."""

def fatrelu_and_mul(
    x: _T,
    threshold: float = 0.0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """What of the first half of x's last dimension is above a threshold, else 0, times the second half."""

def silu_and_mul_with_clamp(
    x: _T,
    limit: float,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """SiLU of the clamped first half of x's last dimension, times the clamped second half plus beta."""

def swiglustep_and_mul(
    x: _T,
    limit: float = 7.0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """SiLU of the first half of x's last dimension, clamped from above, times the clamped second half."""

def situ_and_mul(
    x: _T,
    beta: float = 1.0,
    linear_beta: float | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """SiLU with a soft limit of the first half of x's last dimension, times the second half, which is softly limited too when linear_beta is given."""

def gelu(
    x: _T,
    approximate: str = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """GELU of each element; approximate is "none" or "tanh"."""

def gelu_new(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """GELU by tanh, in the steps of the first GPT-2."""

def gelu_fast(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """GELU by tanh, with the cubic factored."""

def quick_gelu(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """GELU by the logistic function."""

def relu2(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The square of what is above 0."""

def xielu(
    x: _T,
    alpha_p: _Tensor,
    alpha_n: _Tensor,
    beta: float = 0.5,
    eps: float = -1e-06,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Expanded integral of the exponential linear unit, with trained parameters alpha_p and alpha_n."""

def rms_norm(
    x: _T,
    residual: _Tensor | None = None,
    weight: _Tensor | None = None,
    epsilon: float = 1e-06,
    variance_size: int | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T | None]:
    """Root-mean-square normalisation of x, or of x + residual when there is a residual."""

def fused_add_rms_norm(
    x: _T,
    x_residual: _Tensor,
    weight: _Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Adds x_residual to x and normalises the sum by its root mean square."""

def gemma_rms_norm(
    x: _T,
    residual: _Tensor | None,
    weight: _Tensor,
    epsilon: float = 1e-06,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T | None]:
    """Root-mean-square normalisation whose weight is counted from 1, of x, or of x + residual when there is a residual."""

def rms_norm_gated(
    x: _T,
    z: _Tensor | None,
    weight: _Tensor,
    epsilon: float = 1e-05,
    group_size: int | None = None,
    norm_before_gate: bool = False,
    activation: str = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Root-mean-square normalisation in groups of group_size (none: of the whole dimension), gated by z before or after; activation is "swish", "silu" (the same) or "sigmoid"."""

def mixer2_gated_rms_norm(
    x: _T,
    gate: _Tensor,
    weight: _Tensor | None,
    epsilon: float = 1e-06,
    n_groups: int = 1,
    use_rms_norm: bool = True,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Mamba-2's norm: x times SiLU of the gate, normalised by the root mean square of each of n_groups groups. Without use_rms_norm the product alone (a weight is not used). A float32 weight makes a float32 result."""

def layer_norm(
    x: _T,
    weight: _Tensor | None = None,
    bias: _Tensor | None = None,
    epsilon: float = 1e-05,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Normalisation of rows to mean 0 and variance 1, then times weight, plus bias."""

def nemotron_layer_norm(
    x: _T,
    residual: _Tensor | None,
    weight: _Tensor,
    bias: _Tensor,
    epsilon: float = 1e-05,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T | None]:
    """Layer norm whose weight is counted from 1, of x, or of x + residual when there is a residual."""

def add(
    x: _T,
    y: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The sum of two tensors of one shape."""

def sigmoid_mul(
    x: _T,
    gate: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A tensor times the logistic function of a gate, which has an element for each of the tensor's or one a row."""

def rotary_embedding(
    query: _T,
    key: _Tensor | None,
    cos: _Tensor,
    sin: _Tensor,
    position_ids: _Tensor,
    interleaved: bool = False,
    rope_dim_offset: int = 0,
    inverse: bool = False,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T | None]:
    """Rotates pairs of dimensions of each head of query and key by the angle of the token's position."""

def apply_rotary_emb(
    x: _T,
    cos: _Tensor,
    sin: _Tensor,
    is_neox_style: bool = True,
    enable_fp32_compute: bool = False,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Rotates pairs of dimensions of each head by the angle of the token's place in the sequence."""

def dual_chunk_rotary_embedding(
    position_ids: _T,
    query: _Tensor,
    key: _Tensor,
    q_cache: _Tensor,
    qc_cache: _Tensor,
    k_cache: _Tensor,
    qc_no_clamp_cache: _Tensor,
    q_inter_cache: _Tensor,
    head_size: int,
    rotary_dim: int,
    chunk_size: int,
    local_size: int,
    is_neox_style: bool = True,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Rotary embedding of dual chunk attention: the key by its position, the query five times, one after the other: within the chunk, to the chunk before, to those before that, and the last two again without the clamp. A cache row holds cosines, then sines."""

def fused_qk_norm_rope(
    qkv: _T,
    q_weight: _Tensor,
    k_weight: _Tensor,
    cos: _Tensor,
    sin: _Tensor,
    position_ids: _Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    epsilon: float = 1e-06,
    interleaved: bool = False,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Normalises each head of query and key by its root mean square, and rotates it; value stays."""

def mrope(
    query: _T,
    key: _Tensor | None,
    cos: _Tensor,
    sin: _Tensor,
    position_ids: _Tensor,
    mrope_section: Sequence[int],
    mrope_interleaved: bool = False,
    interleaved: bool = False,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T | None]:
    """Rotary embedding of tokens that have three positions, by time, height and width: each frequency turns by one of them."""

def quant_fp8(
    x: _T,
    scale: _Tensor | None = None,
    scale_ub: _Tensor | None = None,
    group_shape: Sequence[int] = ...,
    use_ue8m0: bool = False,
    num_token_padding: int = 0,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Quantises to float8 e4m3fn, or to e4m3fnuz where q is such a tensor (MI300), with one scale for the tensor [-1, -1], each token [1, -1], channel [-1, 1], group [1, G] or block [R, C]; x is q * scale_out. Without a scale it is computed (tensor, token, group)."""

def scaled_int8_quant(
    x: _T,
    scale: _Tensor | None = None,
    azp: _Tensor | None = None,
    symmetric: bool = True,
    *,
    out: tuple[_Tensor | None, _Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T, _T | None]:
    """Quantises to int8, with a given scale or one for each token; not symmetric: with a zero point, too (azp, given or computed). x is (q - azp_out) * scale_out."""

def rms_norm_static_fp8_quant(
    x: _T,
    weight: _Tensor,
    scale: _Tensor,
    epsilon: float = 1e-06,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Root-mean-square normalisation, quantised to float8 e4m3fn with a given scale."""

def fused_add_rms_norm_static_fp8_quant(
    x: _T,
    residual: _Tensor,
    weight: _Tensor,
    scale: _Tensor,
    epsilon: float = 1e-06,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Adds the residual to x, and quantises the root-mean-square normalisation of the sum to float8 e4m3fn with a given scale."""

def rms_norm_dynamic_per_token_quant(
    x: _T,
    weight: _Tensor,
    epsilon: float = 1e-06,
    quant_dtype: str = ...,
    scale_ub: _Tensor | None = None,
    residual: _Tensor | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Root-mean-square normalisation of x, or of x + residual when there is a residual (which then holds the sum), quantised to float8 e4m3fn or int8 with a scale for each token."""

def silu_and_mul_quant(
    x: _T,
    scale: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """SiLU of the first half of x's last dimension, times the second half, quantised to float8 e4m3fn with a given scale."""

def silu_and_mul_per_block_quant(
    x: _T,
    group_size: int = 128,
    quant_dtype: str = ...,
    scale_ub: _Tensor | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """SiLU of the first half of x's last dimension, times the second half, quantised to float8 e4m3fn or int8 with a scale for each group_size elements of a token."""

def attention_backend(
    use_mla: bool = False,
    use_sparse: bool = False,
    *,
    out: None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> str:
    """The attention backend to use: the path of a class, or for a C engine the name of an attention component."""

def mm_encoder_attn(
    query: _T,
    key: _Tensor,
    value: _Tensor,
    scale: float | None = None,
    cu_seqlens: _Tensor | None = None,
    max_seqlen: int | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Attention without mask, of an encoder of images or sound; cu_seqlens keeps it within segments of tokens."""

def mla_prefill(
    query: _T,
    kv_c: _Tensor,
    k_pe: _Tensor,
    kv_b_proj: _Tensor,
    v_head_dim: int,
    scale: float,
    query_offset: int = 0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Multi-head latent attention of one sequence, keys and values made from the latent: query i is token query_offset + i."""

def mla_decode(
    query: _T,
    kv_cache: _Tensor,
    block_table: _Tensor,
    seq_lens: _Tensor,
    scale: float,
    kv_lora_rank: int,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Latent attention of one query a sequence over a paged cache whose rows are kv_c and k_pe, in the latent space."""

def merge_attn_states(
    prefix_output: _T,
    prefix_lse: _Tensor,
    suffix_output: _Tensor,
    suffix_lse: _Tensor,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Joins attention over two parts of a context by their log-sum-exps."""

def multi_head_latent_attention(
    position_ids: _T,
    hidden_states: _Tensor,
    fused_qkv_a_proj: _Tensor | None,
    q_a_layernorm: _Tensor | None,
    q_b_proj: _Tensor | None,
    kv_a_proj_with_mqa: _Tensor | None,
    q_proj: _Tensor | None,
    kv_a_layernorm: _Tensor,
    kv_b_proj: _Tensor,
    g_proj: _Tensor | None,
    o_proj: _Tensor,
    cos: _Tensor,
    sin: _Tensor,
    kv_cache: _Tensor | None,
    block_table: _Tensor | None,
    seq_lens: _Tensor | None,
    num_heads: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    kv_lora_rank: int,
    scale: float,
    epsilon: float = 1e-06,
    interleaved: bool = True,
    llama_4_scaling: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The latent attention layer of DeepSeek's models: projections, norms, rotation, attention, output. Without kv_cache the tokens are one sequence; with one they are the last t / n tokens of each of n sequences of seq_lens tokens, and their rows are written to it first."""

def concat_and_cache_mla(
    kv_c: _T,
    k_pe: _Tensor,
    kv_cache: _Tensor,
    slot_mapping: _Tensor,
    *,
    out: None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> None:
    """Writes rows [kv_c | k_pe] to a paged cache: token i to row slot_mapping[i] % size of block slot_mapping[i] / size; a negative slot is skipped, tokens behind the last slot are not read, of equal slots the last token counts."""

def mla_paged_attention(
    query: _T,
    kv_cache: _Tensor,
    kv_b_proj: _Tensor,
    block_table: _Tensor,
    query_start_loc: _Tensor,
    seq_lens: _Tensor,
    kv_lora_rank: int,
    v_head_dim: int,
    scale: float,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Causal latent attention of several sequences over a paged cache of rows [kv_c | k_pe]: tokens query_start_loc[i] to [i + 1] are the last of the seq_lens[i] of sequence i. Tokens behind the last sequence are padding, their results 0."""

def paged_attention(
    query: _T,
    key_cache: _Tensor,
    value_cache: _Tensor,
    block_table: _Tensor,
    query_start_loc: _Tensor,
    seq_lens: _Tensor,
    scale: float,
    causal: bool = True,
    window_left: int = -1,
    window_right: int = -1,
    soft_cap: float = 0.0,
    alibi_slopes: _Tensor | None = None,
    sinks: _Tensor | None = None,
    k_scale: _Tensor | None = None,
    v_scale: _Tensor | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """Attention of prefill, chunked prefill and decode over a paged cache. Queries of sequence i are tokens query_start_loc[i] to [i + 1] - 1, the last of its seq_lens[i] tokens; token t is row t % size of block block_table[i, t / size]. Of tokens behind the last sequence out is 0 and lse -inf. A float8 cache has scales, of the tensor or of each head. GPU kernels do not refuse starts, lengths and blocks that are out of range: they stay within the tensors, a length ends with block_table, a block that is not in the cache counts as not seen; that starts ascend from 0 is the caller's duty."""

def reshape_and_cache(
    key: _T,
    value: _Tensor,
    key_cache: _Tensor,
    value_cache: _Tensor,
    slot_mapping: _Tensor,
    k_scale: _Tensor | None = None,
    v_scale: _Tensor | None = None,
    *,
    out: None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> None:
    """Writes keys and values of tokens into a paged cache: token i goes to row slot % size of block slot / size, slot = slot_mapping[i], and nowhere if that is negative. Tokens behind the last slot are padding. Where a slot occurs twice the last token stays."""

def replicated_linear(
    x: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    skip_bias_add: bool = False,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer whose whole weight every rank has."""

def column_parallel_linear(
    x: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    gather_output: bool = False,
    skip_bias_add: bool = False,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer of which this rank has some outputs; gather_output joins those of all ranks."""

def row_parallel_linear(
    x: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    input_is_parallel: bool = True,
    reduce_results: bool = True,
    skip_bias_add: bool = False,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer of which this rank has some inputs; reduce_results adds up the results of all ranks."""

def scaled_mm(
    x: _T,
    weight: _Tensor,
    x_scale: _Tensor,
    weight_scale: _Tensor,
    bias: _Tensor | None = None,
    azp: _Tensor | None = None,
    out_dtype: str = ...,
    block_size: Sequence[int] = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer of 8 bits: inputs and weight are int8 or float8 with scales for the tensor, each token [m, 1] and channel [n, 1], or both for blocks of block_size; azp is the zero point of int8 inputs."""

def weight_only_linear(
    x: _T,
    weight: _Tensor,
    weight_scale: _Tensor,
    bias: _Tensor | None = None,
    block_size: Sequence[int] = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer whose weight has 8 bits, int8 or float8, with a scale for the tensor, for each channel [n] or [n, 1], or for each block of block_size; inputs are not quantised."""

def awq_linear(
    x: _T,
    qweight: _Tensor,
    scales: _Tensor,
    qzeros: _Tensor,
    bias: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer whose weight has 4 bits in AWQ's order: words of 8 columns, column i in nibble 0 4 1 5 2 6 3 7; each group of k / g rows has scales and zero points."""

def gptq_linear(
    x: _T,
    qweight: _Tensor,
    scales: _Tensor,
    qzeros: _Tensor | None = None,
    g_idx: _Tensor | None = None,
    bias: _Tensor | None = None,
    use_v2_format: bool = False,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer whose weight has 4 bits in GPTQ's order: words of 8 rows. Row r has group g_idx[r], or r / (k / g); zero points are one more than stored unless use_v2_format, 8 where there are none."""

def mxfp4_linear(
    x: _T,
    weight: _Tensor,
    weight_scale: _Tensor,
    bias: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A linear layer whose weight is MXFP4: e2m1, the even column in a byte's low half, with a power of two 2^(byte - 127) for each 32 columns; a scale of 255 is NaN."""

def vocab_parallel_embedding(
    input_ids: _T,
    weight: _Tensor,
    org_vocab_start: int = 0,
    org_vocab_end: int | None = None,
    num_org_vocab_padding: int = 0,
    added_vocab_start: int = 0,
    added_vocab_end: int = 0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The rows of weight for token ids; of a shard (org_vocab_end given), zeros for the ids of other shards."""

def parallel_lm_head(
    hidden_states: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The logits of this rank's part of the vocabulary; with a group those of all ranks."""

def logits_processor(
    hidden_states: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    org_vocab_size: int | None = None,
    soft_cap: float | None = None,
    scale: float = 1.0,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The logits of the first org_vocab_size entries of the vocabulary (all, if none), capped and scaled."""

def conv2d(
    x: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    stride: Sequence[int] = ...,
    padding: Sequence[int] = ...,
    dilation: Sequence[int] = ...,
    groups: int = 1,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Convolution over two dimensions of space, out [n, o, ...]."""

def conv3d(
    x: _T,
    weight: _Tensor,
    bias: _Tensor | None = None,
    stride: Sequence[int] = ...,
    padding: Sequence[int] = ...,
    dilation: Sequence[int] = ...,
    groups: int = 1,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Convolution over three dimensions of space (or two and time), out [n, o, ...]."""

def grouped_topk(
    gating_output: _T,
    topk: int,
    renormalize: bool,
    num_expert_group: int = 1,
    topk_group: int = 1,
    scoring_func: str = ...,
    routed_scaling_factor: float = 1.0,
    e_score_correction_bias: _Tensor | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """The topk best experts of each token, from its topk_group best groups of experts."""

def topk_softmax(
    gating_output: _T,
    topk: int,
    renormalize: bool = False,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """The topk most probable experts of each token."""

def moe_align_block_size(
    topk_ids: _T,
    num_experts: int,
    block_size: int,
    *,
    out: tuple[_Tensor | None, _Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T, _T]:
    """The places of topk_ids sorted by expert, each expert's filled up to whole blocks; expert_ids has the expert of each block."""

def moe_sum(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The sum of what the k experts of a token gave."""

def unquantized_fused_moe(
    x: _T,
    w13: _Tensor,
    w2: _Tensor,
    topk_weights: _Tensor,
    topk_ids: _Tensor,
    activation: str = ...,
    apply_router_weight_on_input: bool = False,
    expert_map: _Tensor | None = None,
    w13_bias: _Tensor | None = None,
    w2_bias: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Each token through its experts, their results weighted and added."""

def modular_fused_moe(
    x: _T,
    w13: _Tensor,
    w2: _Tensor,
    topk_weights: _Tensor,
    topk_ids: _Tensor,
    activation: str = ...,
    apply_router_weight_on_input: bool = False,
    expert_map: _Tensor | None = None,
    w13_bias: _Tensor | None = None,
    w2_bias: _Tensor | None = None,
    w13_scale: _Tensor | None = None,
    w2_scale: _Tensor | None = None,
    block_size: Sequence[int] = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Each token through its experts in three steps: dispatch to the experts' ranks, experts, combine."""

def transformers_fused_moe(
    x: _T,
    w13: _Tensor,
    w2: _Tensor,
    topk_ids: _Tensor,
    topk_weights: _Tensor,
    activation: str = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Each token through the experts that the model itself chose, their results weighted and added."""

def fused_moe(
    x: _T,
    w13: _Tensor,
    w2: _Tensor,
    router_logits: _Tensor,
    top_k: int,
    renormalize: bool = True,
    use_grouped_topk: bool = False,
    num_expert_group: int = 1,
    topk_group: int = 1,
    scoring_func: str = ...,
    routed_scaling_factor: float = 1.0,
    e_score_correction_bias: _Tensor | None = None,
    activation: str = ...,
    apply_router_weight_on_input: bool = False,
    expert_map: _Tensor | None = None,
    w13_bias: _Tensor | None = None,
    w2_bias: _Tensor | None = None,
    w13_scale: _Tensor | None = None,
    w2_scale: _Tensor | None = None,
    block_size: Sequence[int] = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Routes each token by its router_logits and sends it through its experts."""

def tensor_model_parallel_all_reduce(
    x: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The sum of all ranks' x; x itself without a group."""

def all_reduce_fused_add_rms_norm(
    x: _T,
    x_residual: _Tensor,
    weight: _Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
    *,
    out: tuple[_Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T]:
    """The sum of all ranks' x and x_residual, normalised by its root mean square: the end of a layer that ranks share, and the beginning of the next."""

def causal_conv1d(
    x: _T,
    weight: _Tensor,
    bias: _Tensor | None,
    conv_state: _Tensor | None,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    activation: str = ...,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Depthwise convolution of each channel with its own past; conv_state is left with the last w - 1 inputs. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def selective_scan(
    u: _T,
    delta: _Tensor,
    A: _Tensor,
    B: _Tensor,
    C: _Tensor,
    D: _Tensor | None,
    z: _Tensor | None,
    delta_bias: _Tensor | None,
    delta_softplus: bool,
    ssm_state: _Tensor | None,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Mamba's scan: each channel has a state of n numbers, of which the last is left in ssm_state. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def mamba_chunk_scan(
    x: _T,
    dt: _Tensor,
    A: _Tensor,
    B: _Tensor,
    C: _Tensor,
    D: _Tensor | None,
    z: _Tensor | None,
    dt_bias: _Tensor | None,
    dt_softplus: bool,
    ssm_state: _Tensor | None,
    chunk_size: int = 256,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    dt_min: float = 0.0,
    dt_max: float | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Mamba-2's scan: each head has a state of p by n numbers, of which the last is left in ssm_state; chunk_size is how many tokens an implementation may take at a time. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def mamba_mixer(
    hidden_states: _T,
    in_proj: _Tensor,
    conv_weight: _Tensor,
    conv_bias: _Tensor | None,
    x_proj: _Tensor,
    dt_proj: _Tensor,
    dt_bias: _Tensor,
    A: _Tensor,
    D: _Tensor,
    out_proj: _Tensor,
    dt_norm: _Tensor | None,
    b_norm: _Tensor | None,
    c_norm: _Tensor | None,
    conv_state: _Tensor | None,
    ssm_state: _Tensor | None,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    epsilon: float = 1e-05,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The layer of Mamba; A is -exp(A_log). Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def mamba_mixer2(
    hidden_states: _T,
    in_proj: _Tensor,
    conv_weight: _Tensor,
    conv_bias: _Tensor | None,
    dt_bias: _Tensor,
    A: _Tensor,
    D: _Tensor,
    norm_weight: _Tensor,
    out_proj: _Tensor,
    conv_state: _Tensor | None,
    ssm_state: _Tensor | None,
    n_groups: int,
    head_dim: int,
    chunk_size: int = 256,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    epsilon: float = 1e-05,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The layer of Mamba-2; A is -exp(A_log). Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def plamo2_mamba_mixer(
    hidden_states: _T,
    in_proj: _Tensor,
    conv_weight: _Tensor,
    bcdt_proj: _Tensor,
    dt_proj: _Tensor,
    dt_bias: _Tensor,
    A: _Tensor,
    D: _Tensor,
    b_norm: _Tensor,
    c_norm: _Tensor,
    dt_norm: _Tensor,
    out_proj: _Tensor,
    conv_state: _Tensor | None,
    ssm_state: _Tensor | None,
    num_heads: int,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    epsilon: float = 1e-06,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The state-space layer of PLaMo 2; A is -exp(A_log). Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def short_conv(
    hidden_states: _T,
    in_proj: _Tensor,
    conv_weight: _Tensor,
    conv_bias: _Tensor | None,
    out_proj: _Tensor,
    conv_state: _Tensor | None,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The gated short convolution of LFM2. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def apply_penalties(
    logits: _T,
    prompt_token_ids: _Tensor,
    output_token_ids: _Tensor,
    presence_penalties: _Tensor,
    frequency_penalties: _Tensor,
    repetition_penalties: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Makes tokens of the prompt and the output less likely; ids outside 0 to v - 1 are padding."""

def apply_temperature(
    logits: _T,
    temperature: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Divides each row by its temperature; below 1e-5, which stands for greedy sampling, it stays."""

def apply_min_p(
    logits: _T,
    min_p: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Closes the tokens (-inf) that are less probable than min_p times the most probable one."""

def apply_top_k_top_p(
    logits: _T,
    top_k: _Tensor | None = None,
    top_p: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """Closes (-inf) all tokens but the top_k most probable ones, and of these all but the first that together have probability top_p. Of equal logits the lowest token comes first."""

def greedy_argmax(
    logits: _T,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The token of the greatest logit, the lowest of equal ones; NaN counts as greatest."""

def exponential_sample(
    logits: _T,
    noise: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A token drawn by softmax(logits) with exponential noise (above 0). A token of -inf is never taken, unless all are (0 then)."""

def gumbel_sample(
    logits: _T,
    uniform: _Tensor,
    temperature: _Tensor,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """A token drawn by softmax(logits / temperature) with uniform noise (above 0, below 1); of temperature 0 the token of the greatest logit."""

def gather_logprobs(
    logits: _T,
    token_ids: _Tensor,
    num_logprobs: int = 0,
    *,
    out: tuple[_Tensor | None, _Tensor | None, _Tensor | None] | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> tuple[_T, _T, _T]:
    """The logprobs of a token of each row and, behind it, of the num_logprobs most probable ones, with their ids; the token's rank is how many are as probable or more."""

def chunk_gated_delta_rule(
    query: _T,
    key: _Tensor,
    value: _Tensor,
    g: _Tensor,
    beta: _Tensor,
    state: _Tensor | None = None,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    scale: float | None = None,
    use_qk_l2norm: bool = True,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """The gated delta rule over whole sequences, as Qwen3-Next has it, or with a gate for each key channel as in Kimi's KDA. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

def recurrent_gated_delta_rule(
    mixed_qkv: _T,
    a: _Tensor,
    b: _Tensor,
    A_log: _Tensor,
    dt_bias: _Tensor,
    state: _Tensor,
    cache_indices: _Tensor,
    num_k_heads: int,
    scale: float | None = None,
    use_qk_l2norm: bool = True,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """One step of the gated delta rule for each row of mixed_qkv, which is query, key and value of one token; its state is slot cache_indices[i] (-1: the row is skipped, its result is 0)."""

def gdn_attention_core(
    mixed_qkv: _T,
    a: _Tensor,
    b: _Tensor,
    conv_weight: _Tensor,
    conv_bias: _Tensor | None,
    A_log: _Tensor,
    dt_bias: _Tensor,
    conv_state: _Tensor | None,
    state: _Tensor | None,
    num_k_heads: int,
    head_k_dim: int,
    query_start_loc: _Tensor | None = None,
    cache_indices: _Tensor | None = None,
    has_initial_state: _Tensor | None = None,
    *,
    out: _Tensor | None = None,
    stream: int | None = None,
    prepared: Prepared | None = None,
) -> _T:
    """What a layer of Qwen3-Next does between its projections: the causal convolution, and the gated delta rule of what comes out of it. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."""

