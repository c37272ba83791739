"""The loop of a worker: one candidate (or the reference), requests of the judge, answers bound to its nonce.

Everything the judge reads here is a claim, except bytes in its own buffers. An exception of user code becomes a failure
message; after one the worker goes on answering, and the judge decides what that is worth.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from tilecast.sandbox.harness import arena, seccomp
from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec, decode_tree, place
from tilecast.sandbox.harness.wire import Channel, Message, WireClosed
from tilecast.sandbox.harness.worker import bindings, builds, failures, guards, launch_stubs, loading
from tilecast.sandbox.harness.worker.calling import Caller
from tilecast.sandbox.harness.worker.compiling import Announcer
from tilecast.sandbox.harness.worker.memory import Memory
from tilecast.sandbox.harness.worker.purity import PurityHandlers
from tilecast.sandbox.harness.worker.side_effects import StateMarks
from tilecast.sandbox.harness.worker.timing import TimingHandlers
from tilecast.sandbox.harness.worker.tuning import TuningHandlers

Handler = Callable[[Message], Message]


class Worker:
    """State of one worker process."""

    def __init__(self, args: dict[str, Any], channel: Channel) -> None:
        self.channel = channel
        self.device = torch.device(args["device"])
        self.memory = Memory(self.device)
        self.caller = Caller(self.memory)
        self.interpret = bool(args.get("interpret"))
        self.stubs = launch_stubs.Noted()
        self.announcer = Announcer(self)
        self._sequence: Any = None
        self._nonce: str | None = None
        self._marks = StateMarks()
        self._bindings: guards.Bindings | None = None
        self._imported_from: guards.CallState | None = None
        self.handlers: dict[str, Handler] = {
            "arena": self._arena,
            "detach": self._detach,
            "wake": self._wake,
            "load": self._load,
            "construct": self._construct,
            "parameters": self._parameters,
            "read_parameters": self._read_parameters,
            "use": self.caller.use,
            "call": self.caller.call,
            "many": self.caller.many,
            "recheck": self.caller.recheck,
            "forget": self._forget,
            "guards": self._guards,
            "settings": self._settings,
            "lock": self._lock,
            "stubs": lambda message: self.stubs.to_message(),
            **TimingHandlers(self.caller, self.device).handlers(),
            **PurityHandlers(self.caller).handlers(),
            **TuningHandlers(interpret=self.interpret).handlers(),
        }

    def answer(self, message: Message) -> Message:
        """One request to one reply (without its binding)."""
        handler = self.handlers.get(str(message.get("op")))
        if handler is None:
            return {"failure": {"status": "ENVIRONMENT_ERROR", "reason": f"no operation {message.get('op')!r}"}}
        try:
            return handler(message)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is an answer
            with contextlib.suppress(Exception):
                self._synchronize()  # what a failed request began must not go on where the judge writes next
            return {"failure": self._failure(error).to_message()}

    def _failure(self, error: BaseException) -> failures.Failure:
        if isinstance(error, BadSpec):
            return failures.Failure("RUNTIME_ERROR", str(error))
        return failures.classify(error, self._path(), loading=False, device=str(self.device))

    def _path(self) -> str:
        return loading.path_of(self.caller.source) if self.caller.source is not None else ""

    def _arena(self, message: Message) -> Message:
        self.memory.attach(arena.attach(message["arena"], self.channel.take_fds()))
        return {}

    def _detach(self, message: Message) -> Message:
        self.caller.forget(message)
        self._synchronize()
        self.memory.detach([int(number) for number in message["arenas"]])
        return {}

    def _wake(self, message: Message) -> Message:
        """Open the device, and import what takes its time: a spare worker does both before it is needed."""
        self._open_device()
        bindings.prepare()
        return {}

    def _open_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.init()  # type: ignore[no-untyped-call]
            torch.empty(1, device=self.device)
            self._synchronize()

    def _load(self, message: Message) -> Message:
        source = str(message["source"])
        guards.grant(message.get("settings", {}))
        self._open_device()
        if self.device.type == "cuda":
            self.stubs.install()
            self.announcer.install(source)
        elif self.interpret:
            self._install_interpreters(source)
        elif message.get("guarded", True):
            torch.set_num_threads(2)  # so that a candidate that sets one thread changes something
        if "cpp_extension" in source:
            builds.prepare()
        self._bindings = guards.Bindings() if message.get("guarded", True) else None
        self._imported_from = guards.CallState.take(self.device.type == "cuda")
        self.caller.source = loading.load_source(source, str(message["name"]), str(self.device))
        return {"names": sorted(name for name in vars(self.caller.source) if not name.startswith("_"))[:500]}

    def _install_interpreters(self, source: str) -> None:
        from tilecast.sandbox.harness.worker import interpreters

        try:
            interpreters.install(source)
        except Exception as error:
            reason = f"this machine cannot run it: {type(error).__name__}: {error}"
            raise failures.Failure("ENVIRONMENT_ERROR", reason) from error

    def _construct(self, message: Message) -> Message:
        if self.caller.source is None:
            raise failures.Failure("ENVIRONMENT_ERROR", "construct was asked before load")
        tensors = [item.clone() for item in self.memory.tensors(message["tensors"])]
        arguments = decode_tree(message["arguments"], tensors)
        if message.get("seed") is not None:
            torch.manual_seed(int(message["seed"]))
        seed = torch.initial_seed()
        made = loading.construct(self.caller.source, str(message["class"]), list(arguments), self.device)
        self._synchronize()  # the judge writes to where the arguments came from as soon as it has the answer
        self._marks.forget(made)
        self.caller.put(str(message.get("slot", "")), made)
        return {"state": self._state(), "reseeded": torch.initial_seed() != seed}

    def _state(self) -> list[Message]:
        module = self.caller.require_module()
        buffers = {name for name, _ in module.named_buffers()}
        return [
            {"name": name, "buffer": name in buffers, **TensorSpec.dense(tuple(t.shape), t.dtype).to_message()}
            for name, t in module.state_dict().items()
            if isinstance(t, torch.Tensor)
        ]

    def _parameters(self, message: Message) -> Message:
        """Copy values in, as a user would: ``load_state_dict`` or, to ``inplace``, ``copy_`` on each tensor."""
        module = self.caller.require_module()
        specs: dict[str, Any] = message["state"]
        values = dict(zip(specs, self.memory.tensors(list(specs.values())), strict=True))
        missing: list[str] = []
        unexpected: list[str] = []
        if message.get("inplace"):
            own = module.state_dict(keep_vars=True)
            with torch.no_grad():
                for name, value in values.items():
                    if name in own:
                        own[name].copy_(value)
        else:
            result = module.load_state_dict({k: v.clone() for k, v in values.items()}, strict=False)
            missing, unexpected = list(result.missing_keys), list(result.unexpected_keys)
        self._synchronize()
        if self._bindings is not None:  # of what is not guarded nobody asks
            self._marks.mark(module, specs)
        self.caller.was_set(specs)
        return {"missing": missing, "unexpected": unexpected}

    def _forget(self, message: Message) -> Message:
        """End of a workload. Reply: outputs of long ago that have changed, names in the state that were written to."""
        return self.caller.forget(message) | {"state": self._marks.changed(self.caller.require_module())}

    def _read_parameters(self, message: Message) -> Message:
        """Copy the state out into spaces given by name."""
        state = self.caller.require_module().state_dict()
        for name, item in message["spaces"].items():
            spec = TensorSpec.from_message(item)
            with torch.no_grad():
                place(self.memory.bytes_of(item), spec).copy_(state[name])
        self._synchronize()
        return {}

    def _guards(self, message: Message) -> Message:
        """Everything that changed since before the candidate was imported."""
        if self._bindings is None or self._imported_from is None:
            return {"findings": []}
        now = guards.CallState.take(self.device.type == "cuda")
        found = [*self._bindings.changes(), *guards.false_clocks()]
        found += [*self._imported_from.changes(now, importing=True), *self._interpreted()]
        return {"findings": [item.to_message() for item in found[:20]]}

    def _settings(self, message: Message) -> Message:
        """How torch computes since the import, where that is otherwise than before."""
        if self._imported_from is None:
            return {"settings": {}}
        return {"settings": self._imported_from.numerical_changes(guards.CallState.take(self.device.type == "cuda"))}

    def _interpreted(self) -> list[guards.Finding]:
        """What an interpreter met, also where the candidate swallowed its exception and took another way."""
        if not self.interpret:
            return []
        from tilecast.sandbox.harness.worker import interpreters

        missing = [guards.Finding("unsupported", text) for text in interpreters.unsupported_features()]
        return [*missing, *(guards.Finding("out-of-bounds", text) for text in interpreters.out_of_bounds_accesses())]

    def _lock(self, message: Message) -> Message:
        """From now on starting a process is the end of this one."""
        try:
            seccomp.install(seccomp.no_processes_filter())
        except OSError as error:
            return {"locked": False, "why": str(error)}
        return {"locked": True}

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    # The conversation --------------------------------------------------------------------------------------------

    def say(self, event: str) -> None:
        """Something that is not the answer, within the request at hand."""
        self.channel.send({"re": self._sequence, "nonce": self._nonce, "event": event}, timeout_s=None)

    def hear(self) -> Message:
        """What the judge says to that."""
        return self.channel.receive(None)

    def serve(self) -> int:
        """Answer until the judge hangs up."""
        self.channel.send({"up": True})
        while True:
            try:
                message = self.channel.receive(None)
                if message.get("op") == "nonce":
                    # Handed over after import: nothing prepared before can be bound to it.
                    self._nonce = str(message["nonce"])
                    continue
                self._sequence, self.announcer.enabled = message.get("seq"), message.get("hears") is True
                answer = self.answer(message)
            except WireClosed:
                return 0
            self.announcer.enabled = False
            self.channel.send({"re": message.get("seq"), "nonce": self._nonce, **answer}, timeout_s=None)


def serve(role: str, args: dict[str, Any], channel: Channel) -> int:
    """Answer until the judge hangs up. ``role`` is ``candidate`` or ``reference``."""
    worker = Worker(args, channel)
    if role == "reference":
        from tilecast.sandbox.harness.worker.reference import ReferenceHandlers

        worker.handlers.update(ReferenceHandlers(worker.caller, worker.memory).handlers())
    return worker.serve()
