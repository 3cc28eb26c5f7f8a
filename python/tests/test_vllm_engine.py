"""vLLM through flhost: transformers' tokens, and counters that say by what they were computed.

`make check-vllm` runs what is not marked `all`; `make check-vllm-all` the rest, too.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from core_support import build_plugin, class_plugin
from environments import blocks
from vllm_architectures import MODELS_OF_VLLM, calls, needs_flhost, vllm_cannot
from vllm_engine import MODELS, ROOT, WITHOUT_FLHOST, environment, expected, has_attention, has_kernels, run

FLAGOS, REFERENCE, ACME = "default.flagos", "reference.c", "vendor.acme"
ATTENTION = ("paged_attention", "reshape_and_cache")
PASSES = 16  # one for each token
PREPARE = {"VLLM_FL_PREPARE_WEIGHTS": "1"}
MORE = pytest.mark.skipif(os.environ.get("FLHOST_VLLM") != "all", reason="make check-vllm-all")


FEW = {("qwen3", "compiled"), ("gpt-oss", "eager"), ("mamba2", "eager")}
MODELS_AND_MODES = [
    pytest.param(model, mode, marks=() if (model, mode) in FEW else MORE)
    for model in MODELS_OF_VLLM
    for mode in ("eager", "compiled")
]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Caches are shared, so that a compilation is made once."""
    return tmp_path_factory.mktemp("vllm")


def tokens(model: str, numbers: list[int]) -> list[list[int]]:
    found = expected(model)
    return [found[f"tokens_{i}"].tolist() for i in numbers]


def counted(op_calls: dict[str, int], impl: str, **other: str) -> dict[str, dict[str, int]]:
    """Exactly these calls and no fallback."""
    return {f"{op}:{other.get(op, impl)}": {"calls": n} for op, n in op_calls.items()}


def assert_right(result: Any, model: str, impl: str = FLAGOS, ranks: int = 1, **other: str) -> None:
    """Tokens are transformers', and each worker counted what the architecture says."""
    for tokens_, counts, numbers in zip(result["tokens"], result["counts"], REQUESTS, strict=False):
        assert tokens_ == tokens(model, numbers)
        assert counts == [counted(calls(model, PASSES, ranks), impl, **other)] * ranks


REQUESTS = [[0], [0, 1]]  # one, and two at once


def assert_prepared(result: Any, dtype: str) -> None:
    """That weights are prepared just where the CPU's implementation prepares this type on this processor."""
    import flhost
    import torch

    weight = torch.ones(64, 64, dtype=getattr(torch, dtype))
    with flhost.prepare("column_parallel_linear", weight[:1], weight) as prepared:
        assert bool(result["prepared"][0]) == bool(prepared.bytes)


def skip_if_vllm_cannot(scratch: Path, model: str) -> None:
    """What a version of vLLM says of an architecture in float32, and says without flhost, too."""
    import vllm

    said = vllm_cannot(vllm.__version__, model)
    if said:
        assert said in run(scratch, model, requests=[[0]], settings=WITHOUT_FLHOST, fails=True)
        pytest.skip(f"this vLLM cannot run {model} in float32, with flhost or without: {said}")


def started(result: Any) -> str:
    """The line at the engine's start."""
    return str(next(line for line in result["log"].splitlines() if "layer classes of vLLM's are replaced" in line))


@pytest.mark.parametrize(("model", "mode"), MODELS_AND_MODES)
def test_tokens_are_transformers_and_counters_what_the_architecture_says(scratch: Path, model: str, mode: str) -> None:
    skip_if_vllm_cannot(scratch, model)
    result = run(scratch, model, requests=REQUESTS, eager=mode == "eager")
    assert_right(result, model)
    assert re.search(r"flhost: (\d+) ops: \1 flagos on cpu", started(result))
    assert ("CPUAttentionBackend" in started(result)) == has_attention()


# A module beside a plugin's library. It says which of its classes vLLM made.
CLASSES = """
from flhost.vllm.attention import Backend
from vllm.v1.worker.cpu_worker import CPUWorker

class Attention(Backend):
    @staticmethod
    def get_impl_cls():
        print("made: attention", flush=True)
        return Backend.get_impl_cls()

class Worker(CPUWorker):
    def __init__(self, *args, **kwargs):
        import flhost
        print("made: worker, beside", flhost.default_host().class_path("model_runner"), flush=True)
        super().__init__(*args, **kwargs)
"""


@pytest.mark.skipif(not (has_attention() and has_kernels()), reason="the classes are made of those for the CPU")
def test_a_worker_and_an_attention_backend_of_a_plugins(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "acme_classes.py").write_text(CLASSES)
    rows = [
        ("worker", "cpu", "acme_classes.Worker"),
        ("attention_backend", "cpu", "acme_classes.Attention"),
        ("model_runner", "cpu", "acme_classes.Runner"),
    ]
    paths = (tmp_path, Path(__file__).parent, os.environ.get("PYTHONPATH"))
    settings = {
        "VLLM_FL_PLUGIN_MODULES": str(class_plugin(tmp_path, "acme", *rows)),
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path),
    }
    result = run(scratch, "qwen3", requests=REQUESTS, settings=settings)
    assert_right(result, "qwen3")
    assert "made: worker, beside acme_classes.Runner" in result["log"]
    assert "made: attention" in result["log"]
    assert "but where plugins bring it: acme_classes.Attention" in started(result)
    left = run(
        scratch, "qwen3", requests=[[0]], settings={**settings, "VLLM_FL_OOT_BLACKLIST": "worker,attention_backend"}
    )
    assert "made: " not in left["log"]


@MORE
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_two_ranks(scratch: Path, mode: str) -> None:
    settings = {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    result = run(scratch, "qwen3", requests=REQUESTS, eager=mode == "eager", ranks=2, settings=settings)
    assert_right(result, "qwen3", ranks=2)


@pytest.mark.skipif(has_kernels(), reason="this vLLM has kernels for the CPU, and its own platform")
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_on_a_platform_that_vllm_knows_nothing_of(scratch: Path, mode: str) -> None:
    """A vendor's, whose plugin vLLM has found beside flhost's: layers take forward_oot there."""
    settings = {"TORCH_CPU_PLATFORM": "OOT"}
    result = run(scratch, "qwen3", requests=REQUESTS, eager=mode == "eager", settings=settings)
    assert_right(result, "qwen3")
    assert result["out_of_tree"]


@MORE
def test_the_reference_runs_when_it_is_preferred(scratch: Path) -> None:
    result = run(scratch, "qwen3", requests=REQUESTS, settings={"VLLM_FL_PREFER": "reference"})
    assert_right(result, "qwen3", REFERENCE)


def test_a_policy_file_decides_op_by_op(scratch: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("op_backends:\n  rms_norm: [reference]\n  silu_and_mul: reference|flagos\n")
    result = run(scratch, "qwen3", requests=REQUESTS, settings={"VLLM_FL_CONFIG": str(policy)})
    assert_right(result, "qwen3", rms_norm=REFERENCE, silu_and_mul=REFERENCE)


# ------------------------------------------------------------------------------------------------- a vendor's plugin


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A vendor's plugin for silu_and_mul, from the example's source: as it is, with a wrong kernel, with one that fails."""
    import flhost

    directory = tmp_path_factory.mktemp("plugins")
    directory.chmod(0o755)
    source = (ROOT / "examples" / "vendor_plugin.c").read_text()
    right = "to[i] = gate / (1 + expf(-gate)) * up;"
    assert right in source
    headers = next(p for p in (Path(flhost.__file__).parent / "include", ROOT / "include") if p.is_dir())
    made = {}
    for name, kernel in {
        "right": right,
        "wrong": right.replace("* up", "* up + 1"),
        "failing": 'return fl_fail(call, FL_EDEVICE, "the device fell off the bus");',
    }.items():
        made[name] = directory / f"acme_{name}.so"
        (directory / f"{name}.c").write_text(source.replace(right, kernel))
        flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{headers}"]
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, *flags, f"{directory}/{name}.c", "-o", made[name], "-lm"], check=True)
    return made


def vendor(plugin: Path) -> dict[str, str]:
    return {"VLLM_FL_PLUGIN_MODULES": str(plugin), "VLLM_FL_PER_OP": "silu_and_mul=vendor:acme|flagos"}


@pytest.mark.parametrize("mode", ["eager", pytest.param("compiled", marks=MORE)])
def test_a_vendors_plugin_wins(scratch: Path, plugins: dict[str, Path], mode: str) -> None:
    result = run(scratch, "qwen3", requests=REQUESTS, eager=mode == "eager", settings=vendor(plugins["right"]))
    assert_right(result, "qwen3", silu_and_mul=ACME)
    counts = re.search(r"flhost: (\d+) ops: (\d+) flagos, 2 vendor acme on cpu", started(result))
    assert counts is not None
    assert int(counts[1]) == int(counts[2]) + 2  # one is an op of its own


# What a reader of docs/vllm.md writes around the class that is there: vLLM's own defaults, so that the worker is another process.
COUNTING = """
if __name__ == "__main__":
    import sys
    from vllm import LLM, SamplingParams
    llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, skip_tokenizer_init=True, max_model_len=64,
              worker_extension_cls="counts.Counts")
    sampling = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True, detokenize=False)
    llm.generate([{"prompt_token_ids": [1, 2, 3]}], sampling, use_tqdm=False)
    """


@MORE
def test_the_page_s_plugin_runs_and_its_class_tells_the_counts(scratch: Path, tmp_path: Path) -> None:
    source, commands = blocks("vllm.md", "A vendor's plugin")
    plugin = build_plugin(tmp_path, "acme", source)
    settings = commands.splitlines()[-1].partition(" vllm serve")[0].replace("$PWD/acme.so", str(plugin))
    counts, called = next(b for b in blocks("vllm.md", "See it work") if "class Counts" in b).split("\n\n")
    (tmp_path / "counts.py").write_text(counts + "\n" + COUNTING + called)
    own = environment(scratch, dict(word.split("=", 1) for word in settings.split()))
    own["VLLM_FL_DISPATCH_DEBUG"] = "1"
    own["PYTHONPATH"] = os.pathsep.join([str(tmp_path), own["PYTHONPATH"]])
    del own["VLLM_ENABLE_V1_MULTIPROCESSING"]
    done = subprocess.run(
        [sys.executable, tmp_path / "counts.py", MODELS / "qwen3"],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=own,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    (counted_,) = ast.literal_eval(next(line for line in done.stdout.splitlines() if line.startswith("[{")))
    assert counted_["silu_and_mul", ACME]["calls"] >= 4 * 2, counted_
    assert "flagos, 1 vendor acme on cpu" in done.stdout
    assert re.search(r"INFO .*\[Operator: silu_and_mul\]", done.stdout), done.stdout[-8000:]
    assert re.search(r"INFO .*Op 'silu_and_mul' using 'vendor\.acme'", done.stdout), done.stdout[-8000:]


@MORE
def test_a_wrong_kernel_changes_the_tokens(scratch: Path, plugins: dict[str, Path]) -> None:
    result = run(scratch, "qwen3", requests=[[0]], settings=vendor(plugins["wrong"]))
    assert result["tokens"][0] != tokens("qwen3", [0])
    assert result["counts"][0][0][f"silu_and_mul:{ACME}"] == {"calls": 2 * PASSES}


def test_a_failing_kernel_falls_back_and_the_tokens_stay_right(scratch: Path, plugins: dict[str, Path]) -> None:
    result = run(scratch, "qwen3", requests=[[0]], settings=vendor(plugins["failing"]))
    counts = result["counts"][0][0]
    assert result["tokens"][0] == tokens("qwen3", [0])
    assert counts[f"silu_and_mul:{FLAGOS}"]["calls"] == 2 * PASSES
    failed = counts[f"silu_and_mul:{ACME}"]
    assert failed["failures"] >= 1
    assert failed["failures"] == failed["calls"] == failed["fallbacks_failed"]
    assert "the device fell off the bus" in result["log"]


# ---------------------------------------------------------------------------------------------------------- controls


def test_without_the_plugin_nothing_is_counted(scratch: Path) -> None:
    result = run(scratch, "qwen3", requests=[[0]], settings=WITHOUT_FLHOST)
    assert result["tokens"][0] == tokens("qwen3", [0])
    assert result["counts"] == [[{}]]
    assert "flhost:" not in result["log"]


@MORE
def test_layers_that_a_list_leaves_out_stay_vllms(scratch: Path) -> None:
    listed = "rms_norm,fused_add_rms_norm,rotary_embedding,CPUAttentionBackend"
    result = run(scratch, "qwen3", requests=[[0]], settings={"VLLM_FL_OOT_BLACKLIST": listed})
    wanted = calls("qwen3", PASSES)
    for op in ("rotary_embedding", "rms_norm", *ATTENTION):
        wanted.pop(op, None)
    assert result["tokens"][0] == tokens("qwen3", [0])
    assert result["counts"][0] == [counted(wanted, FLAGOS)]
    assert "CPUAttentionBackend" not in started(result)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("VLLM_FL_PREFFER", "vendor", "did you mean 'VLLM_FL_PREFER'"),
        pytest.param("VLLM_FL_PREFER", "vendro", "did you mean 'vendor'", marks=MORE),
    ],
)
def test_a_misspelt_variable_or_value_stops_the_engine_with_the_hint(
    scratch: Path, name: str, value: str, hint: str
) -> None:
    log = run(scratch, "qwen3", requests=[[0]], settings={name: value}, fails=True)
    assert hint in log
    assert "Starting to load model" not in log


# ---------------------------------------------------------------------------------------------------- vLLM's own words


@MORE
def test_vllms_custom_ops_are_flhosts(scratch: Path) -> None:
    """In a compiled engine, too, whose own default is "none"."""
    words = ["none", "+rms_norm", "+silu_and_mul"]
    result = run(scratch, "qwen3", requests=[[0]], compilation_config={"custom_ops": words})
    assert_right(result, "qwen3", REFERENCE, rms_norm=FLAGOS, silu_and_mul=FLAGOS)
    assert result["config"]["custom_ops"] == words


@MORE
def test_an_ir_op_without_flhost_and_a_backend_that_is_named_are_vllms(scratch: Path) -> None:
    words = {"kernel_config": {"ir_op_priority": {"rms_norm": ["native"]}}}
    result = run(scratch, "qwen3", requests=[[0]], attention_config={"backend": "CPU_ATTN"}, **words)
    wanted = calls("qwen3", PASSES)
    for op in ("rms_norm", *ATTENTION):
        wanted.pop(op, None)
    assert result["tokens"][0] == tokens("qwen3", [0])
    # with a residual the layer calls the other IR op, which is flhost's
    found = dict(result["counts"][0][0])
    assert found.pop(f"fused_add_rms_norm:{FLAGOS}") == {"calls": 4 * PASSES}
    assert found == counted(wanted, FLAGOS)
    assert result["config"]["oot_blacklist"] == ["rms_norm", "paged_attention", "mla_paged_attention"]


# -------------------------------------------------------------------------------------------------------- the server


def test_the_server_answers_through_flhost(scratch: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    prompts = expected("qwen3")
    log = scratch / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODELS / "qwen3")),
                *("--dtype", "float32", "--enforce-eager", "--skip-tokenizer-init", "--max-model-len", "64"),
                *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"),
                *("--worker-extension-cls", "vllm_engine.WorkerExtension"),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env=environment(scratch, {"VLLM_SERVER_DEV_MODE": "1"}),
        )

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"null")

    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()[-8000:]
            try:
                ask("/health")
                break
            except OSError:
                time.sleep(0.5)
        body = {
            "model": "tiny",
            "prompt": prompts["prompt_0"].tolist(),
            "max_tokens": 16,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "detokenize": False,
        }
        before = ask("/collective_rpc", {"method": "flhost_counts"})["results"][0]
        answer = ask("/v1/completions", body)
        after = ask("/collective_rpc", {"method": "flhost_counts"})["results"][0]
    finally:
        server.terminate()
        server.wait(60)
    from vllm_engine import difference

    if isinstance(before, str):  # the server gives what it cannot write as JSON as text
        before, after = json.loads(before), json.loads(after)
    assert answer["choices"][0]["token_ids"] == prompts["tokens_0"].tolist()
    assert difference(after, before) == counted(calls("qwen3", PASSES), FLAGOS)


# ----------------------------------------------------------------------------------------------------------- bfloat16


@MORE
@pytest.mark.parametrize(
    ("model", "settings"),
    [(model, {}) for model in ("llama-bf16", "qwen3", "gpt-oss", "mixtral")] + [("llama-bf16", PREPARE)],
)
def test_bfloat16_is_no_further_from_float32_than_vllm_is(scratch: Path, model: str, settings: dict[str, str]) -> None:
    """The log-probabilities at the positions of two prompts: how far those of a position are from transformers' float32 ones, as the
    root of their mean square; of all positions the geometric mean, since where rounding makes a router choose another expert, in
    either engine, one is several times as far as others."""
    import numpy as np

    def distance(result: Any) -> float:
        far = []
        for i in (0, 1):
            logits = expected(model)[f"prompt_logits_{i}"].astype(np.float64)
            greatest = logits.max(axis=-1, keepdims=True)
            wanted = logits - np.log(np.exp(logits - greatest).sum(axis=-1, keepdims=True)) - greatest
            far.append(((np.array(result["logprobs"][0][i]) - wanted) ** 2).mean(axis=-1))
        return float(np.exp(np.log(np.sqrt(np.concatenate(far))).mean()))

    def result(settings: dict[str, str]) -> Any:
        return run(scratch, model, requests=[[0, 1]], dtype="bfloat16", logits=True, settings=settings)

    ours = result(settings)
    wanted = calls(model, PASSES)
    wanted["logits_processor"] += 2  # the prompts' own
    assert ours["counts"] == [[counted(wanted, FLAGOS)]]
    if settings:
        assert_prepared(ours, "bfloat16")
    said = needs_flhost(model)
    if said:
        assert said in run(scratch, model, requests=[[0]], dtype="bfloat16", settings=WITHOUT_FLHOST, fails=True)
        pytest.skip(f"this vLLM cannot run {model} without flhost, to be compared with: {said}")
    plain = result(WITHOUT_FLHOST)
    assert plain["counts"] == [[{}]]
    # the two round in other places: a tenth is what that may make
    assert distance(ours) <= 1.1 * distance(plain), (distance(ours), distance(plain))


def test_the_compiler_is_there() -> None:
    """Compiled engines need one, and so do the vendor's plugins."""
    assert shutil.which(os.environ.get("CC", "cc").split()[0])


# Linear layers that compute by what they prepared, and by nothing else.
PREPARES = """
#include <flhost/plugin.h>
#include <string.h>
FL_PLUGIN("acme", "1.0.0", "acme", "Apache-2.0", "");
static size_t size(void *self, const fl_call *call) {
  (void)self;
  const DLTensor *weight = call->values[1].v.tensor;
  return (size_t)(weight->shape[0] * weight->shape[1]) * sizeof(float);
}
static fl_status prepare(void *self, fl_call *call, void *memory, size_t bytes) {
  (void)self;
  memcpy(memory, fl_data(call->values[1].v.tensor), bytes);
  return FL_OK;
}
static fl_status run(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[call->count - 1].v.tensor;
  const float *weight = fl_prepared_data(call, prepare, self);
  if (!weight)
    return fl_fail(call, FL_EDEVICE, "the weight is not prepared");
  for (int64_t i = 0; i < x->shape[0]; i++)
    for (int64_t j = 0; j < out->shape[1]; j++) {
      const float *from = (const float *)fl_data(x) + i * fl_stride(x, 0);
      double sum = 0;
      for (int64_t k = 0; k < x->shape[1]; k++)
        sum += (double)from[k] * weight[j * x->shape[1] + k];
      ((float *)fl_data(out))[i * fl_stride(out, 0) + j] = (float)sum;
    }
  return FL_OK;
}
fl_status register_builtins(fl_registry *registry) {
  static const char *const ops[] = {"column_parallel_linear", "row_parallel_linear", "logits_processor"};
  fl_status status = FL_OK;
  for (int i = 0; i < 3 && !status; i++) {
    const fl_impl impl = {.size = sizeof impl, .op_name = ops[i], .impl_id = "vendor.acme", .kind = FL_KIND_VENDOR,
                          .vendor = "acme", .devices = FL_DEVICE(kDLCPU), .dtypes = FL_FLOAT32, .fn = run,
                          .prepares = 1 << 1, .prepared_size = size, .prepare = prepare};
    status = registry->register_impl(registry, &impl);
  }
  return status;
}
"""
PREPARED = ("column_parallel_linear", "row_parallel_linear", "logits_processor")


@pytest.fixture
def preparing(tmp_path: Path) -> dict[str, str]:
    """Settings by which a vendor's plugin prepares the weights of layers."""
    return {
        "VLLM_FL_PLUGIN_MODULES": str(build_plugin(tmp_path, "acme", PREPARES)),
        "VLLM_FL_PER_OP": ";".join(f"{op}=vendor:acme|flagos" for op in PREPARED),
        **PREPARE,
    }


@pytest.mark.parametrize("mode", ["eager", pytest.param("compiled", marks=MORE)])
def test_layers_compute_by_their_prepared_weights(scratch: Path, preparing: dict[str, str], mode: str) -> None:
    result = run(scratch, "qwen3", requests=REQUESTS, eager=mode == "eager", settings=preparing)
    assert_right(result, "qwen3", **dict.fromkeys(PREPARED, ACME))
    assert result["prepared"][0] > 0
    # what was compiled is right in the next process, where handles are others
    again = run(scratch, "qwen3", requests=[[0]], eager=mode == "eager", settings=preparing)
    assert_right(again, "qwen3", **dict.fromkeys(PREPARED, ACME))


def test_layers_compute_by_what_the_cpus_implementation_prepared(scratch: Path) -> None:
    result = run(scratch, "qwen3", requests=REQUESTS, settings=PREPARE)
    assert_right(result, "qwen3")
    assert_prepared(result, "float32")


@MORE
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_weights_that_are_loaded_again_are_not_prepared_nor_are_any_unasked(
    scratch: Path, preparing: dict[str, str], mode: str
) -> None:
    """In this vLLM a reload writes to the weights themselves; calls go on with these."""
    reloaded = run(scratch, "qwen3", requests=REQUESTS, eager=mode == "eager", reload=True, settings=preparing)
    assert reloaded["tokens"] == [tokens("qwen3", numbers) for numbers in REQUESTS]
    del preparing["VLLM_FL_PREPARE_WEIGHTS"]
    plain = run(scratch, "qwen3", requests=[[0]], eager=mode == "eager", settings=preparing)
    assert plain["tokens"] == [tokens("qwen3", [0])]
    assert plain["prepared"] == [0]
    assert "the weight is not prepared" in plain["log"]
