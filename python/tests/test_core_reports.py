"""What a host tells and takes: reports as plain dicts, plugins, options, the log."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import threading
from typing import Any

import flhost
import numpy as np
import pytest
from core_support import simple_plugin


@pytest.fixture(name="host")
def make_host() -> flhost.Host:
    return flhost.Host(environment={}, statistics=True)


def x() -> Any:
    return np.ones((2, 8), "float32")


def test_every_report_is_plain(host: flhost.Host) -> None:
    host.op("silu_and_mul").call(x())
    reports = [
        host.resolve("rms_norm"), host.explain("rms_norm"), host.manifest(), host.config(), host.plugins(), host.platform(),
        host.ops(), host.impls(), host.impls("rms_norm"), host.failed_impls(), host.failed_impls("rms_norm"),
        host.counters("silu_and_mul", "reference.c"), host.plugin_directories(), host.get_policy().fields,
        host.custom_op_counts(), host.layers("rms_norm"),
    ]  # fmt: skip
    for report in reports:
        assert json.loads(json.dumps(report)) == json.loads(json.dumps(copy.deepcopy(report)))


def test_explain_has_an_answer_for_each_implementation(host: flhost.Host) -> None:
    why = host.explain("rms_norm")
    assert why["op"] == "rms_norm"
    assert why["selected"] == "default.flagos"
    assert why["error"] is None
    assert why["order"][0] == "flagos"
    rows = {row["impl_id"]: row for row in why["impls"]}
    assert rows["default.flagos"]["verdict"] == "selected"
    assert rows["reference.c"]["verdict"] == "candidate"
    assert all(row["reason"] for row in why["impls"])
    assert why["missing"] == []
    assert why["replaces"][0]["class_name"] == "RMSNorm"
    assert host.explain("RMSNorm")["op"] == "rms_norm"
    assert host.explain("rms_norm", device="cuda")["selected"] in (None, "vendor.cuda")
    assert host.explain("rms_norm", "nvidia")["op"] == "rms_norm"
    assert host.explain("rms_norm", device=None)["selected"] is None  # arguments that are no values
    for wrong in ("cpux", "", 99, -2, 2**70, True, b"cpu", object()):
        with pytest.raises(flhost.Error):
            host.explain("rms_norm", device=wrong)
    with pytest.raises(flhost.NotFound):
        host.explain("no_such_op")


def test_the_manifest_s_digest_follows_the_policy(host: flhost.Host) -> None:
    manifest = host.manifest("cpu")
    assert len(manifest["sha256"]) == 64
    assert manifest["device_type"] == "cpu"
    assert {"op", "impl_id", "kind", "place"} <= manifest["rows"][0].keys()
    with host.prefer("reference"):
        assert host.manifest("cpu")["sha256"] != manifest["sha256"]
    assert host.manifest("cpu") == manifest


def test_settings_have_values_of_python_and_origins() -> None:
    host = flhost.Host(environment={"VLLM_FL_PREFER": "vendor", "VLLM_FL_STRICT": "1"})
    config = host.config()
    assert config["prefer"]["value"] == "vendor"
    assert config["prefer"]["origin"] == "VLLM_FL_PREFER"
    assert config["strict"]["value"] is True
    with pytest.raises(flhost.ConfigError, match="VLLM_FL_PREFER"):
        flhost.Host(environment={"VLLM_FL_PREFER": "vendr"})


def test_options_of_a_host(tmp_path: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("prefer: reference\n")
    assert flhost.Host(environment={}, config_file=file).get_policy().fields["prefer"] == "reference"
    assert flhost.Host(environment={}, plugins=False).plugins() == []
    assert flhost.Host(environment={}, plugin_path=str(tmp_path)).plugin_directories()[0] == str(tmp_path)
    assert flhost.Host(environment={}, platform="cpu").platform()["active_origin"]
    for wrong in ({"environment": 3}, {"environment": {"A": 1}}, {"config_file": 3}, {"unknown": 1}, {"platform": 3}):
        with pytest.raises(TypeError):
            flhost.Host(**wrong)  # type: ignore[arg-type]
    with pytest.raises(flhost.WrongType, match="environment: 'VLLM_FL_STRICT': 1, expected"):
        flhost.Host(environment={"VLLM_FL_STRICT": 1})  # type: ignore[dict-item]
    with pytest.raises(flhost.Error):
        flhost.Host(environment={}, platform="no such platform")
    with pytest.raises(flhost.Error):
        flhost.Host(environment={}, config_file=tmp_path / "missing.yaml")


def test_a_host_that_was_not_created_says_so(host: flhost.Host) -> None:
    class Forgets(flhost.Host):
        def __init__(self) -> None:
            pass

    bare = Forgets()
    methods: list[tuple[str, tuple[Any, ...]]] = [
        ("op", ("x",)), ("resolve", ("x",)), ("explain", ("x",)), ("manifest", ()), ("config", ()), ("plugins", ()),
        ("platform", ()), ("ops", ()), ("impls", ()), ("impl_uuid", ("a", "b")), ("failed_impls", ()),
        ("counters", ("a", "b")), ("prepared_bytes", ()), ("oot_op", ("x",)), ("class_path", ("worker",)),
        ("is_oot_allowed", ("x",)),
        ("is_oot_enabled", ()), ("is_flagos_allowed", ("x",)), ("custom_op_counts", ()), ("load_plugin", ("x",)),
        ("withdraw_plugin", ("x",)), ("discover_plugins", ()), ("plugin_directories", ()), ("register_op", ("x() -> ()",)),
        ("set_global_policy", (flhost.Policy(),)), ("reset_global_policy", ()), ("bump_policy_epoch", ()),
        ("set_log_level", ("INFO",)), ("freeze", ("x",)), ("thaw", ("x",)), ("is_frozen", ()), ("warm_up", ()),
        ("clear_failed_impls", ()), ("enforce_enable", ("x",)), ("get_policy", ()), ("enter", (flhost.Policy(),)),
        ("leave", (None,)),
    ]  # fmt: skip
    for name, arguments in methods:
        with pytest.raises(flhost.StateError, match=r"Host.__init__"):
            getattr(bare, name)(*arguments)
    with pytest.raises(flhost.StateError):
        _ = bare.capsule
    with pytest.raises(flhost.StateError):
        host.__init__()  # type: ignore[misc]
    public = {name for name in dir(flhost.Host) if not name.startswith("_")}
    python = {"default", "capsule", "policy", "prefer", "strict", "allow_vendors", "deny_vendors", "op_order", "layers",
              "register_impl", "withdraw_impl"}  # fmt: skip
    assert public - python == {name for name, _ in methods}


def test_plugins_come_and_go(host: flhost.Host, tmp_path: Any) -> None:
    plugin = simple_plugin(tmp_path, "wins", op="silu_and_mul", body="return FL_OK;")
    host.load_plugin(plugin)
    found = {row["name"]: row for row in host.plugins()}["wins"]
    assert found["status"] == "loaded"
    assert found["route"] == "module"
    assert found["impls"] == 1
    impl = next(row for row in host.impls("silu_and_mul") if row["impl_id"] == "vendor.acme")
    assert impl["devices"] == ["any"]
    assert impl["kind"] == "vendor"
    assert len(host.impl_uuid("silu_and_mul", "reference.c")) == 64
    with host.prefer("vendor"):
        assert host.resolve("silu_and_mul")["impl_id"] == "vendor.acme"
    host.withdraw_plugin("wins")
    with host.prefer("vendor"):
        assert host.resolve("silu_and_mul")["impl_id"] != "vendor.acme"
    with pytest.raises(flhost.NotFound):
        host.withdraw_plugin("wins")
    with pytest.raises(flhost.PluginError):
        host.load_plugin(tmp_path / "missing.so")
    with pytest.raises(flhost.NotFound):
        host.impls("no_such_op")
    assert host.discover_plugins() == 0


def test_a_failing_implementation_is_replaced_and_remembered(host: flhost.Host, tmp_path: Any) -> None:
    plugin = simple_plugin(
        tmp_path, "breaks", op="silu_and_mul", body='return fl_fail(call, FL_EDEVICE, "out of %s", "order");'
    )
    host.load_plugin(plugin)
    with host.prefer("vendor"):
        assert host.op("silu_and_mul").call(x()).shape == (2, 4)
    failed = host.failed_impls("silu_and_mul")
    assert failed[0]["impl_id"] == "vendor.acme"
    assert "out of order" in failed[0]["reason"]
    assert host.counters("silu_and_mul", "vendor.acme")["failures"] == 1
    host.clear_failed_impls("silu_and_mul")
    assert host.failed_impls() == []
    with host.policy(prefer="vendor", strict=True), pytest.raises(flhost.DeviceError, match="out of order") as caught:
        host.op("silu_and_mul").call(x())
    assert caught.value.status_name == "FL_EDEVICE"


def test_ops_may_be_defined(host: flhost.Host) -> None:
    host.register_op(
        "halve(Tensor x, float by=2.0) -> Tensor out", rules="x: T[...]; out: T[...]; T = float32", doc="Halves."
    )
    op = host.op("halve")
    assert op.doc == "Halves."
    assert op.infer(x()) == (((2, 8), "float32", "cpu"),)
    with pytest.raises(flhost.NoImplementation, match="halve"):
        op.call(x())
    with pytest.raises(flhost.AlreadyExists):
        host.register_op("halve(Tensor y) -> Tensor out")
    with pytest.raises(flhost.InvalidArgument):
        host.register_op("halve(")


def test_vllm_s_words(host: flhost.Host) -> None:
    assert host.oot_op("RMSNorm") == "rms_norm"
    with pytest.raises(flhost.NotFound):
        host.oot_op("NoSuchLayer")
    assert host.is_oot_enabled()
    assert host.is_oot_allowed("RMSNorm")
    assert host.is_flagos_allowed("rms_norm")
    enabled, _ = host.custom_op_counts()
    assert enabled > 40
    host.enforce_enable("rms_norm")
    host.enforce_enable("rms_norm", False)
    off = flhost.Host(environment={"VLLM_FL_OOT_BLACKLIST": "RMSNorm"})
    assert not off.is_oot_allowed("RMSNorm")
    with pytest.raises(flhost.StateError):
        off.oot_op("RMSNorm")


def test_freezing_and_warming_up(host: flhost.Host) -> None:
    resolved, without = host.warm_up()
    assert resolved >= 53
    assert without == 0
    host.freeze("capture")
    assert host.is_frozen()
    with pytest.raises(flhost.StateError, match="frozen by 'capture'"):
        host.reset_global_policy()
    with pytest.raises(flhost.StateError):
        host.thaw("somebody else")
    host.thaw("capture")
    assert not host.is_frozen()
    with pytest.raises(flhost.InvalidArgument):
        host.freeze("")


# ---------------------------------------------------------------------------------------------------------------- log


def test_the_log_goes_to_logging(host: flhost.Host, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    simple_plugin(
        tmp_path, "talks", op="silu_and_mul", more="",
        body='return fl_fail(call, FL_EDEVICE, "tired");',
    )  # fmt: skip
    host.set_log_level("DEBUG")
    with caplog.at_level(logging.DEBUG, "flhost"):
        host.load_plugin(tmp_path / "talks.so")
        caplog.clear()
        with host.prefer("vendor"):
            host.op("silu_and_mul").call(x())
        words = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert any(
        name == "flhost"
        and level == "WARNING"
        and "'vendor.acme' failed for op 'silu_and_mul'" in text
        and "tired" in text
        for name, level, text in words
    )
    with pytest.raises(flhost.InvalidArgument):
        host.set_log_level("LOUD")  # type: ignore[arg-type]


LOGS_FROM_A_THREAD = """
#include <flhost/plugin.h>
#include <pthread.h>
FL_PLUGIN("chatty", "1.0.0", "acme", "Apache-2.0", "");
static fl_logger logger;
static void *speak(void *none) { (void)none; fl_logf(&logger, FL_LOG_WARNING, "from %s", "elsewhere: 100%"); return NULL; }
static fl_status kernel(void *self, fl_call *call) {
  (void)self; (void)call; pthread_t thread;
  fl_logf(&logger, FL_LOG_INFO, "from the call");
  pthread_create(&thread, NULL, speak, NULL); pthread_join(thread, NULL); return FL_OK;
}
fl_status register_builtins(fl_registry *registry) {
  const fl_op_def op = {.size = sizeof op, .schema = "chat() -> ()"};
  const fl_impl impl = {.size = sizeof impl, .op_name = "chat", .impl_id = "vendor.acme", .kind = FL_KIND_VENDOR,
                        .vendor = "acme", .devices = FL_DEVICE_ANY, .fn = kernel};
  logger = fl_logger_of(registry);
  return registry->register_op(registry, &op) ? FL_EINVAL : registry->register_impl(registry, &impl);
}
"""


def test_plugins_have_loggers_and_speak_from_threads_of_theirs(
    host: flhost.Host, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from core_support import build_plugin

    host.load_plugin(build_plugin(tmp_path, "chatty", LOGS_FROM_A_THREAD))
    host.set_log_level("INFO")
    with caplog.at_level(logging.INFO, "flhost"):
        host.op("chat").call()
        words = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert words[-2:] == [
        ("flhost.plugin.chatty", logging.INFO, "from the call"),
        ("flhost.plugin.chatty", logging.WARNING, "from elsewhere: 100%"),
    ]


def test_a_handler_may_call_the_host(host: flhost.Host, tmp_path: Any) -> None:
    """And an error's message is that of the call that failed, whatever handlers do."""
    seen = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(host.resolve("rms_norm")["impl_id"])
            with pytest.raises(flhost.NotFound):
                host.op("no_such_op")

    simple_plugin(tmp_path, "breaks2", op="silu_and_mul", body='return fl_fail(call, FL_EDEVICE, "first words");')
    host.load_plugin(tmp_path / "breaks2.so")
    logger = logging.getLogger("flhost")
    handler = Handler()
    logger.addHandler(handler)
    host.set_log_level("DEBUG")
    try:
        with host.op_order("silu_and_mul", ["vendor:acme"]), pytest.raises(flhost.Error, match="first words"):
            host.op("silu_and_mul").call(x())
    finally:
        logger.removeHandler(handler)
    assert seen


def test_an_exception_of_a_handler_ends_no_call(host: flhost.Host, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)

    class Handler(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise ValueError("no")

    handler = Handler()
    logging.getLogger("flhost").addHandler(handler)
    try:
        host.set_log_level("DEBUG")
        host.bump_policy_epoch()
        assert host.op("silu_and_mul").call(x()).shape == (2, 4)
    finally:
        logging.getLogger("flhost").removeHandler(handler)


# ------------------------------------------------------------------------------------------------------------- errors


def test_each_status_has_its_error() -> None:
    names = {
        1: flhost.InvalidArgument, 2: flhost.NotSupported, 3: flhost.OutOfMemory, 4: flhost.DeviceError,
        5: flhost.InternalError, 6: flhost.NoImplementation, 7: flhost.ConfigError, 8: flhost.PluginError,
        9: flhost.AlreadyExists, 10: flhost.NotFound, 11: flhost.StateError,
    }  # fmt: skip
    for status, error in names.items():
        assert error.status == status
        assert issubclass(error, flhost.Error)
        assert error.__module__ == "flhost"
        again = pickle.loads(pickle.dumps(error("words")))
        assert type(again) is error
        assert str(again) == "words"
    assert issubclass(flhost.OutOfMemory, MemoryError)
    assert issubclass(flhost.InvalidArgument, ValueError)
    assert issubclass(flhost.WrongType, (flhost.InvalidArgument, TypeError))
    assert issubclass(flhost.NotFound, LookupError)


def test_statuses_of_kernels_become_errors(host: flhost.Host, tmp_path: Any) -> None:
    simple_plugin(
        tmp_path, "any_status", schema="any_status(int status) -> ()",
        body='return fl_fail(call, (fl_status)call->values[0].v.i, "status %d", (int)call->values[0].v.i);',
    )  # fmt: skip
    host.load_plugin(tmp_path / "any_status.so")
    call = host.op("any_status").call
    for status, error in (
        (1, flhost.InvalidArgument),
        (3, flhost.OutOfMemory),
        (4, flhost.DeviceError),
        (5, flhost.InternalError),
    ):
        host.clear_failed_impls()
        with host.strict(), pytest.raises(error, match=f"status {status}"):
            call(status)
    assert call(0) is None or True
    host.clear_failed_impls()
    with host.strict(), pytest.raises(flhost.Error):
        call(2)


def test_public_names_are_there() -> None:
    for name in flhost.__all__:
        assert getattr(flhost, name) is not None
    assert set(flhost.__all__) <= set(dir(flhost))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = flhost.nothing  # type: ignore[attr-defined]
    assert flhost.__version__.count(".") == 2


def test_the_default_host_is_one() -> None:
    hosts: list[flhost.Host] = []
    threads = [threading.Thread(target=lambda: hosts.append(flhost.default_host())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(host) for host in hosts}) == 1
    with pytest.raises(flhost.AlreadyExists):
        flhost.default_host(statistics=True)
