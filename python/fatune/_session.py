"""Session and Plan: the library's handles as objects that free themselves."""

from __future__ import annotations

import ctypes as c
import itertools
import logging
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING

from . import _structs as s
from ._library import NOT_PREPARED, Error, check, library
from .score import Traced

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Request = s.Request
_LOG = logging.getLogger("fatune")

# Sessions and masks by a number, for what can hold no object of Python: operators of a compiled graph.
by_number: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def numbered(thing):
    """Its number, by which by_number has it as long as it lives."""
    number = next(_numbers)
    by_number[number] = thing
    return number


def parse_request(text: str) -> Request:
    """The Request of a text such as "forward bf16 d128 hq32 hkv8 b2 nq4096 causal"."""
    if not isinstance(text, str):
        raise TypeError(f"text is {type(text).__name__}; allowed: a str, as \"forward bf16 d128 nq4096\"")
    request = Request()
    check(library().fatune_request_parse(request, text.encode()))
    return request


def _as_request(request):
    return parse_request(request) if isinstance(request, str) else request


def _bytes(text):
    return None if text is None else os.fsencode(text)


def _in_python(error, text):
    """An Error about a score function, by lines of Python where its text was made of a Python function."""
    return Error(error.status, error.text, text.in_python(error.detail)) if isinstance(text, Traced) else error


def bucket_of(request):
    """What a plan's config is chosen for: requests of one kernel class whose sizes round to the
    same powers of two share a plan."""
    bucket = Request()
    check(library().fatune_request_bucket(bucket, request))
    return bytes(bucket)


# By what a score function says of a captured tensor, the dtypes whose memory it reads right. ORDER CAPTURED
_CAPTURED_DTYPES = {"fp32": ("float32",), "fp16": ("float16",), "bf16": ("bfloat16",), "int32": ("int32",), "int64": ("int64",),
                    "uint8": ("uint8", "bool"), "bool": ("bool", "uint8")}


class _OpenSession:
    """The handle of a session. What frees plans and masks refers to it, so that it is closed after
    them all, even where Python collects a cycle with all of these objects in it at once."""

    def __init__(self, options):
        self.handle = c.c_void_p()
        self._options = options  # ctypes would not keep the callback in it alive by itself
        lib = library()
        check(lib.fatune_session_open(self.handle, options))

    def __del__(self, is_finalizing=sys.is_finalizing):
        if self.handle and not is_finalizing():  # at the end the driver may be gone
            library().fatune_session_close(self.handle)

    def frees(self, owner, free, handle):
        """Calls free(handle) when the owner is gone, before the session is closed."""
        weakref.finalize(owner, self._free, free, handle).atexit = False

    def _free(self, free, handle):
        free(handle)


class Plan:
    """A request made ready to run. Made by Session.plan."""

    def __init__(self, opened, request, config=None):
        self.request = request
        handle = c.c_void_p()
        lib = library()
        if config is None:
            check(lib.fatune_plan_make(handle, opened.handle, request))
        else:
            check(lib.fatune_plan_make_with(handle, opened.handle, request, config.encode()))
        self.handle = handle
        opened.frees(self, lib.fatune_plan_free, handle)

    @property
    def origin(self) -> str:
        """Where the config and the kernel came from."""
        return library().fatune_plan_origin(self.handle).decode()

    @property
    def config(self) -> str:
        return library().fatune_plan_config(self.handle).decode()

    @property
    def source(self) -> str:
        """The emitted CUDA C."""
        return library().fatune_plan_source(self.handle).decode()

    @property
    def workspace_size(self) -> int:
        """Bytes of device memory that a run of the request's sizes takes; 0 for a forward."""
        size = c.c_size_t()
        check(library().fatune_plan_workspace_size(self.handle, size))
        return size.value

    def workspace_for(self, arguments):
        """The same of a run with these arguments."""
        size = c.c_size_t()
        check(library().fatune_plan_workspace_for(self.handle, arguments, size))
        return size.value

    def run(self, arguments, stream):
        """Launches; `arguments` is a struct fatune_arguments, `stream` a CUstream."""
        check(library().fatune_plan_run(self.handle, arguments, stream))


class Session:
    """The caches, the templates and, if there is one, the GPU. Thread-safe.

    device: CUDA ordinal, or None for the current context's GPU, else the first. The folders default
    to the environment's. memory_only: no cache file is read or written. compile=False: run what is
    in the caches, compile nothing. log: a function that takes one line of warning; else warnings go to
    logging.getLogger("fatune"). emulate: the name of a GPU ("a100") to emulate on the CPU in place of
    using one.
    """

    def __init__(self, *, device: int | None = None, cache_dir: str | os.PathLike[str] | None = None,
                 system_path: str | os.PathLike[str] | None = None,
                 template_dir: str | os.PathLike[str] | None = None, memory_only: bool = False, compile: bool = True,
                 log: Callable[[str], None] | None = None, emulate: str | None = None) -> None:
        self.emulates, self.number = emulate, numbered(self)
        options = s.SessionOptions(
            device=0 if device is None else 1 + device, cache_dir=_bytes(cache_dir),
            system_path=_bytes(system_path), template_dir=_bytes(template_dir),
            memory_only=int(memory_only), compile=0 if compile else -1,
            emulate=None if emulate is None else emulate.encode())
        tell: Callable[[str], None] = log or (lambda line: _LOG.warning("%s", line))
        options.log = s.LogFunction(lambda _, line: tell(line.decode(errors="replace")))
        self.opened = _OpenSession(options)
        self.handle = self.opened.handle
        self.plans: dict[bytes, Plan] = {}
        self.calls: dict[Any, Any] = {}  # of _attention.py
        self.exchange = self.key = None  # of _attention.py
        self.recent: tuple[Any, ...] = ()  # of _recent.py
        self.served: dict[Any, Any] = {}  # of _drop_in.py
        self._scores: dict[tuple[str, str | None], int] = {}
        self._traced: dict[int, Traced] = {}  # by the number of a score function, the text made of a Python function
        self._hiding: dict[int, bool] = {}
        self._captured_dtypes: dict[tuple[int, str], str | None] = {}
        self._lock = threading.Lock()

    def plan(self, request: Request | str, config: str | None = None) -> Plan:
        """A new Plan of a Request or its text; config: use this one, not the best known."""
        return Plan(self.opened, _as_request(request), config)

    def cached_plan(self, request):
        """The plan of the request's kernel class and bucket, made at the first call."""
        key = bucket_of(request)
        plan = self.plans.get(key)
        if plan is not None:
            return plan
        with self._lock:
            if key not in self.plans:
                self.plans[key] = self._make_plan(request)
            return self.plans[key]

    def _make_plan(self, request):
        try:
            return Plan(self.opened, request)
        except Error as error:
            if error.status != NOT_PREPARED:
                raise _in_python(error, self._traced.get(request.score)) from None
            detail = f"{error.detail}: call it once, with tensors of these shapes, before the graph is captured"
            raise Error(error.status, error.text, detail) from None

    def forget_plans(self) -> None:
        """Later calls look their config up anew, for instance after tuning."""
        with self._lock:
            self.plans, self.calls, self.served = {}, {}, {}
            self.recent = ()  # last: _recent.remember

    def add_score(self, name, text=None, captured=None):
        """The number of a score function, for Request.score: of a Lua text (generator/score/README.md),
        whose `name` stands in messages, or the built-in one of that name. captured: as check_captured takes it."""
        with self._lock:
            if (name, text) not in self._scores:
                if "\0" in (text or "") or "\0" in name:
                    raise ValueError(f"score {name!r} has a NUL character in it; allowed: text")
                number = c.c_int64()
                try:
                    check(library().fatune_score_add(number, self.handle, name.encode(), None if text is None else text.encode()))
                except Error as error:
                    raise _in_python(error, text) from None
                self._scores[name, text] = number.value
            number = self._scores[name, text]
            if isinstance(text, Traced):
                self._traced[number] = text
        self.check_captured(number, captured or {})
        return number

    def check_captured(self, score, captured):
        """Raises TypeError where a tensor by name has another dtype than the score function reads, which the library, that
        gets addresses, cannot find out."""
        for name, value in captured.items():
            if not hasattr(value, "data_ptr"):
                continue
            wanted = _CAPTURED_DTYPES.get(self._captured_dtype(score, name))
            if wanted is not None and str(value.dtype).rpartition(".")[2] not in wanted:
                raise TypeError(f"captured {name!r} is {value.dtype}; allowed: {' or '.join(wanted)}, which the score function "
                                "reads")

    def _captured_dtype(self, score, name):
        """What a score function says of the elements of a captured tensor ("fp32"), or None where it captures none so named."""
        if (score, name) not in self._captured_dtypes:
            dtype = c.c_char_p()
            status = library().fatune_score_dtype(dtype, self.handle, score, name.encode())
            self._captured_dtypes[score, name] = None if status else dtype.value.decode()
        return self._captured_dtypes[score, name]

    def hides_keys(self, score):
        """Whether a score function has a mask function, by the number of add_score; 0: none."""
        if score and score not in self._hiding:
            options = s.VisibleOptions(score=score, mask_rows=16, mask_cols=16, seqlen_q=1, seqlen_k=1)
            size = c.c_size_t()
            self._hiding[score] = library().fatune_visible_memory_size(self.handle, options, size) == 0
        return bool(score) and self._hiding[score]

    def score_gradient(self, score, name):
        """What stands in Request.score_gradients for the gradient of what the score captures by this name."""
        number = c.c_int64()
        try:
            check(library().fatune_score_gradient(number, self.handle, score, name.encode()))
        except Error as error:
            raise _in_python(error, self._traced.get(score)) from None
        return number.value

    def emit(self, request: Request | str, gpu: str | None = None, config: str | None = None) -> str:
        """CUDA C of a request for a GPU by name ("a100", "sm_80"; None: the session's)."""
        text = c.c_void_p()
        lib = library()
        check(lib.fatune_emit(text, self.handle, _as_request(request),
                              None if gpu is None else gpu.encode(),
                              None if config is None else config.encode()))
        try:
            return c.string_at(text).decode()
        finally:
            lib.fatune_text_free(text)

    def tune(self, request: Request | str, *, if_missing: bool = True, budget_seconds: float = 0, jobs: int = 0,
             progress: Callable[[int, int, float], None] | None = None) -> None:
        """Measures candidates for a request on the session's GPU and keeps what it learnt;
        progress(done, total, best_us) is called after each. Later plans find the winner."""
        options = s.TuneOptions(if_missing=int(if_missing), budget_seconds=budget_seconds, jobs=jobs)
        if progress is not None:
            tell: Callable[[int, int, float], None] = progress
            options.progress = s.ProgressFunction(lambda _, *told: tell(*told))
        check(library().fatune_tune(self.handle, _as_request(request), options))
        self.forget_plans()
