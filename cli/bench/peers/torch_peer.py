"""Times operators in PyTorch when `flhost bench --peer torch` says so: a request a line by descriptor 3, an answer a line.

{"id", "do": "begin", "device", "threads"}                              {"id", "version"}
{"id", "do": "ready", "peer", "call", "op", "arguments", "copies"}      {"id"}
{"id", "do": "time", "peer", "n"}                                       {"id", "ns": of one of the n calls}

{"id", "reason"}: this call PyTorch does not make. {"id", "fault"}: none will be made. Descriptors 1 and 2 belong to what
torch prints. `call` counts calls: while it stays, so do the tensors; `copies` of them take turns.
"""

import json
import os
import sys
import time

CHANNEL = 3
WARM_UP = 3


class Unusable(Exception):
    """No call will be made."""


class Session:
    """What is ready: the arguments of one call, and the functions to be timed with them."""

    def __init__(self, torch, table):
        self.torch, self.table = torch, table
        self.device, self.call, self.arguments, self.function = "cpu", None, [], None
        self.functions, self.at = {}, 0
        self.forms = {"torch": table.OPS.get, "torch.compile": self.compiled, "python": self.python}

    def begin(self, request):
        torch = self.torch
        kind, _, index = request["device"].partition(":")
        if kind != "cpu":
            if not torch.cuda.is_available():
                raise Unusable(f"PyTorch finds no device for {request['device']}")
            self.device = f"cuda:{index or 0}"
        torch.set_num_threads(request["threads"])
        torch.manual_seed(1)
        return {"version": f"torch {torch.__version__}"}

    def tensor(self, said):
        """Values as the operator's entry wants them: normal, or in a range."""
        torch, shape, dtype = self.torch, said["shape"], getattr(self.torch, said["dtype"])
        low, high, n = said.get("low"), said.get("high"), 1
        for size in shape:
            n *= size
        if low is None:
            made = torch.randn(shape)
        elif said.get("order") == "distinct":
            made = torch.randperm(int(high - low) + 1).add(int(low))[: max(n, 1)]
            made = made.repeat(-(-n // max(made.numel(), 1)))[:n].reshape(shape)
        elif said.get("order") == "ascending":
            made = torch.linspace(low, high, shape[-1] if shape else 1).expand(shape).contiguous()
        elif dtype.is_floating_point:
            made = torch.rand(shape) * (high - low) + low
        else:
            made = torch.randint(int(low), int(high) + 1, shape)
        return made.to(device=self.device, dtype=dtype)

    def make(self, said):
        return {name: self.tensor(value) if isinstance(value, dict) else value for name, value in said.items()}

    def ready(self, request):
        if request["call"] != self.call:
            self.arguments, self.functions, self.call = [], {}, None
            self.arguments = [self.make(request["arguments"])]
            for _ in range(1, request["copies"]):
                self.arguments.append(
                    {
                        name: value.clone() if isinstance(value, self.torch.Tensor) else value
                        for name, value in self.arguments[0].items()
                    }
                )
            self.call = request["call"]
        peer, op = request["peer"], request["op"]
        if peer not in self.functions:
            self.functions[peer] = self.forms[peer](op)
        self.function = self.functions[peer]
        if self.function is None:
            return {"reason": f"{peer} has no form of {op} to be timed"}
        self.run(WARM_UP)
        return {}

    def python(self, op):
        """flhost's own, by its package: what a call from Python costs."""
        import flhost

        function = getattr(flhost.ops, op)
        return lambda t: function(**t)

    def compiled(self, op):
        if op not in self.table.OPS or op in self.table.NOT_COMPILED:
            return None
        self.torch.compiler.reset()
        return self.torch.compile(self.table.OPS[op], dynamic=False)

    def run(self, n):
        function, arguments, at = self.function, self.arguments, self.at
        start = time.perf_counter_ns()
        if len(arguments) == 1:
            only = arguments[0]
            for _ in range(n):
                function(only)
        else:
            for _ in range(n):
                function(arguments[at])
                at = at + 1 if at + 1 < len(arguments) else 0
        if self.device != "cpu":
            self.torch.cuda.synchronize()
        self.at = at
        return (time.perf_counter_ns() - start) / n

    def time(self, request):
        self.function = self.functions[request["peer"]]
        return {"ns": self.run(request["n"])}


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def answer(session, request):
    try:
        return {"begin": session.begin, "ready": session.ready, "time": session.time}[request["do"]](request)
    except Unusable as error:
        return {"fault": str(error)}
    except Exception as error:  # out of memory, an element type, a compiler: the other calls go on
        return {"reason": first_line(error)}


def load():
    """A session, or a function that says why there is none."""
    try:
        import torch
        import torch_ops
    except Exception as error:
        reason = first_line(error)
        return None, lambda request: {"fault": f"it cannot import torch ({reason})"}
    session = Session(torch, torch_ops)
    return torch, lambda request: answer(session, request)


def main():
    # One process that compiles is enough, and none is left behind.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    sys.dont_write_bytecode = True
    os.set_inheritable(CHANNEL, False)
    with os.fdopen(CHANNEL, "r+b", buffering=0) as channel:
        lines = os.fdopen(os.dup(CHANNEL), "rb")
        torch, work = load()
        mode = torch.inference_mode() if torch else None
        if mode:
            mode.__enter__()
        for line in lines:
            request = json.loads(line)
            said = {"id": request["id"], **work(request)}
            channel.write(json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    main()
