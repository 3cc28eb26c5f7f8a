"""What vllm-plugin-FL's dispatcher decided (tests/conformance) is what the drop-in decides; a row that differs is named
with the rule of docs/rules.md that says so, and must really differ."""

import json
import logging
import os
from functools import partial

import pytest
from peer_dropin import DATA, dispatch, impl, manager_of
from vllm_fl.dispatch.policy import SelectionPolicy, policy_from_env

ROWS = json.loads((DATA / "dispatch.json").read_text(encoding="utf-8"))
PLAIN = {"flagos", "vendor", "reference"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in [name for name in os.environ if name.startswith("VLLM_FL_") or name == "USE_FLAGGEMS"]:
        monkeypatch.delenv(name)
    dispatch.reset_global_policy()
    yield
    monkeypatch.undo()
    dispatch.reset_global_policy()


def is_token(word):
    return word in PLAIN or (word.partition(":")[0] in ("vendor", "impl") and bool(word.partition(":")[2]))


def policy_of(row):
    return SelectionPolicy(
        prefer=row["prefer"],
        strict=row["strict"],
        per_op_order=() if row.get("per_op") is None else (("op", tuple(row["per_op"])),),
        deny_vendors=frozenset(row.get("deny") or ()),
        allow_vendors=None if row.get("allow") is None else frozenset(row["allow"]),
    )


def outcome(function):
    """What it gives back, or its exception, as the data writes it: of the text the first line, the reasons follow."""
    try:
        return function()
    except Exception as error:
        return {"error": {"type": type(error).__name__, "text": str(error).splitlines()[0]}}


def test_t1_tokens_as_the_peer():
    vendor_kind = dispatch.BackendImplKind
    impls = {
        "default.flagos": impl("op", "default.flagos"),
        "reference.torch": impl("op", "reference.torch"),
        "vendor.cuda": impl("op", "vendor.cuda"),
        "default.v(vendor=cuda)": impl("op", "default.v", vendor="cuda"),
        "vendor.x(vendor=a:b)": impl("op", "vendor.x", vendor="a:b"),
    }
    assert impls["vendor.x(vendor=a:b)"].kind is vendor_kind.VENDOR
    for row in ROWS["token"]:
        assert {name: dispatch.match_token(of, row["token"]) for name, of in impls.items()} == row["match"], row


def test_s1_s2_s4_resolve_as_the_peer():
    ids = ("default.flagos", "vendor.cuda", "vendor.ascend", "reference.torch")
    there = set()
    manager = manager_of(*(impl("op", name, available=lambda name=name: name in there) for name in ids))
    refused = 0
    for row in ROWS["resolve"]:
        there.clear()
        there.update(row["available"])
        if not all(is_token(word) for word in row["per_op"] or ()):
            with pytest.raises(ValueError, match="token"):  # T2: a word that is no token
                dispatch.set_global_policy(policy_of(row))
            refused += 1
            continue
        dispatch.set_global_policy(policy_of(row))
        manager.bump_policy_epoch()
        found = outcome(lambda: [one.impl_id for one in manager.resolve_candidates("op")])
        assert found == row["candidates"] or (row["strict"] and "under strict policy" in str(found)), (row, found)
        found = outcome(lambda: manager.get_selected_impl_id("op"))
        assert found == row["resolve"], (row, found)
        if isinstance(found, str):
            assert manager.resolve("op")() == row["resolve"]
    assert 0 < refused < len(ROWS["resolve"]) / 2


def test_s2_ties_as_the_peer():
    for row in ROWS["tie"]:
        impls = [impl("op", name, priority=priority, vendor=vendor) for name, _, priority, vendor in row["impls"]]
        dispatch.set_global_policy(SelectionPolicy(prefer="vendor"))
        assert [one.impl_id for one in manager_of(*impls).resolve_candidates("op")] == row["candidates"], row


class Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append([record.levelname, record.getMessage().splitlines()[0]])


def test_f1_f2_f3_f4_calls_as_the_peer():
    logger = logging.getLogger("vllm_fl.dispatch.manager")
    lines = Lines()
    logger.addHandler(lines)
    try:
        for row in ROWS["call"]:
            run_steps(row, lines)
    finally:
        logger.removeHandler(lines)


def run_steps(row, lines):
    def function(name):
        def run():
            if name in row["failing"]:
                raise ValueError(f"E:{name}")
            return name

        return run

    # The peer's calls were made without vendor.ascend.
    ids = ("default.flagos", "vendor.cuda", "reference.torch")
    manager = manager_of(*(impl("op", name, function(name)) for name in ids))
    dispatch.set_global_policy(policy_of(row))
    manager.resolve("op")
    for step in row["steps"]:
        lines.lines.clear()
        words = step["step"].split()
        found = outcome(partial(do_step, manager, words))
        wanted = {"error": step["error"]} if "error" in step else step["ok"]
        assert found == wanted, (row, step)
        said = [line for line in lines.lines if "OpManager" not in line[1]]
        assert said == step.get("log", []), (row, step)
        failed = {op: sorted(ids) for op, ids in manager.get_failed_impls().items()}
        assert failed == {op: sorted(ids) for op, ids in step["failed"].items() if ids}, (row, step)


def do_step(manager, words):
    if words[0] == "resolve":
        return manager.get_selected_impl_id("op")
    if words[0] != "call":
        return getattr(manager, words[0])()
    fields = dict(word.split("=") for word in words[1:])
    if not fields:
        return manager.call("op")
    with dispatch.policy_context(SelectionPolicy(prefer=fields["prefer"], strict=fields["strict"] == "1")):
        return manager.call("op")


def as_row(policy):
    return {
        "prefer": policy.prefer,
        "strict": policy.strict,
        "per_op": [[op, list(tokens)] for op, tokens in policy.per_op_order],
        "deny": sorted(policy.deny_vendors),
        "allow": None if policy.allow_vendors is None else sorted(policy.allow_vendors),
        "order": policy.get_default_order(),
        "fingerprint": policy.fingerprint(),
    }


def as_lists(policy):
    per_op = policy["per_op"]
    pairs = per_op.items() if isinstance(per_op, dict) else per_op
    return {**policy, "per_op": sorted([op, list(tokens)] for op, tokens in pairs)}


def test_c1_variables_over_platform_files_as_the_peer(monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_FL_CHECK", "warn")
    monkeypatch.setenv("VLLM_FL_CONFIG_DIR", str(tmp_path))
    for row in ROWS["env"]:
        if row["platform"]:
            (tmp_path / "cuda.yaml").write_bytes((DATA / "platforms" / f"{row['platform']}.yaml").read_bytes())
        with monkeypatch.context() as now:
            now.setenv("VLLM_FL_PLATFORM", "cpu" if row["platform"] is None else "cuda")
            for name, value in row["env"].items():
                now.setenv(name, value)
            assert as_lists(as_row(policy_from_env())) == as_lists(row["ok"]), row


def test_c1_policy_files_as_the_peer(monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_FL_CHECK", "warn")
    differing = {'strict: "false"': "C5"}
    for row in ROWS["yaml"]:
        path = tmp_path / "policy.yaml"
        path.write_text(row["in"], encoding="utf-8")
        if "ok" not in row:
            continue
        found = as_lists(as_row(dispatch.policy_from_config(str(path))))
        assert (found == as_lists(row["ok"])) == (row["in"] not in differing), (row, found)
