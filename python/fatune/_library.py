"""Finds and loads libfatune.so, declares its functions, turns a status into an exception."""

from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib

from . import _structs as s

_NAME = "libfatune.so"
UNSUPPORTED, NO_NVRTC, NOT_PREPARED = -2, -6, -11  # of fatune_status


class Error(RuntimeError):
    """A call of the library failed: `status` is its code (a fatune_status of runtime/fatune.h),
    `detail` names the argument, its value and what is allowed."""

    def __init__(self, status, text, detail):
        super().__init__(f"{text}: {detail}" if detail else text)
        self.status, self.text = status, text
        self.detail = detail


def _candidates():
    """Where the library may be: beside the package, in the build folders of a checkout, installed."""
    package = pathlib.Path(__file__).resolve().parent
    root = package.parent.parent
    for folder in (package, root / "build" / "portable", root / "build"):
        yield from (str(folder / _NAME), str(folder / (_NAME + ".0")))
    yield from (_NAME + ".0", _NAME)


def _load():
    chosen = os.environ.get("FATUNE_LIBRARY")
    if chosen:
        return chosen, c.CDLL(chosen)
    tried = []
    for candidate in _candidates():
        if os.sep in candidate and not os.path.exists(candidate):
            tried.append(candidate)
            continue
        try:
            return candidate, c.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
    raise ImportError("no libfatune.so: `make wheel` in a checkout makes a package that has it, `make build` one that "
                      "is used from the checkout; FATUNE_LIBRARY may name one. Tried: " + "; ".join(tried))


# name: result, arguments. Pointers to handles are c_void_p; addresses of structs go by byref.
_pointer, _text = c.c_void_p, c.c_char_p
_FUNCTIONS = {
    "fatune_status_text": (_text, c.c_int),
    "fatune_detail": (_text,),
    "fatune_version": (_text,),
    "fatune_session_open": (c.c_int, c.POINTER(_pointer), c.POINTER(s.SessionOptions)),
    "fatune_session_close": (None, _pointer),
    "fatune_request_parse": (c.c_int, c.POINTER(s.Request), _text),
    "fatune_request_bucket": (c.c_int, c.POINTER(s.Request), c.POINTER(s.Request)),
    "fatune_score_add": (c.c_int, c.POINTER(c.c_int64), _pointer, _text, _text),
    "fatune_score_gradient": (c.c_int, c.POINTER(c.c_int64), _pointer, c.c_int64, _text),
    "fatune_score_dtype": (c.c_int, c.POINTER(_text), _pointer, c.c_int64, _text),
    "fatune_mask_make": (c.c_int, c.POINTER(_pointer), _pointer, c.POINTER(s.MaskOptions), _pointer),
    "fatune_visible_memory_size": (c.c_int, _pointer, c.POINTER(s.VisibleOptions), c.POINTER(c.c_size_t)),
    "fatune_visible_mask": (c.c_int, c.POINTER(_pointer), _pointer, c.POINTER(s.VisibleOptions)),
    "fatune_mask_update": (c.c_int, _pointer, c.POINTER(s.Captured), c.c_int, _pointer),
    "fatune_rectangle_bounds": (c.c_int, _pointer, c.c_int64, c.c_int64, c.POINTER(s.Rectangle), c.c_int),
    "fatune_mask_density": (c.c_double, _pointer),
    "fatune_mask_longest": (c.c_int64, _pointer, c.c_int),
    "fatune_mask_free": (None, _pointer),
    "fatune_plan_make": (c.c_int, c.POINTER(_pointer), _pointer, c.POINTER(s.Request)),
    "fatune_plan_make_with": (c.c_int, c.POINTER(_pointer), _pointer, c.POINTER(s.Request), _text),
    "fatune_plan_free": (None, _pointer),
    "fatune_plan_origin": (_text, _pointer),
    "fatune_plan_config": (_text, _pointer),
    "fatune_plan_source": (_text, _pointer),
    "fatune_plan_workspace_size": (c.c_int, _pointer, c.POINTER(c.c_size_t)),
    "fatune_plan_workspace_for": (c.c_int, _pointer, c.POINTER(s.Arguments), c.POINTER(c.c_size_t)),
    "fatune_plan_run": (c.c_int, _pointer, c.POINTER(s.Arguments), _pointer),
    "fatune_append": (c.c_int, _pointer, c.POINTER(s.Arguments), c.POINTER(s.Tensor), c.POINTER(s.Tensor), _pointer),
    "fatune_merge": (c.c_int, _pointer, c.POINTER(s.MergeArguments), _pointer),
    "fatune_quantise": (c.c_int, _pointer, c.POINTER(s.QuantiseArguments), _pointer),
    "fatune_emit": (c.c_int, c.POINTER(_pointer), _pointer, c.POINTER(s.Request), _text, _text),
    "fatune_text_free": (None, _pointer),
    "fatune_tune": (c.c_int, _pointer, c.POINTER(s.Request), c.POINTER(s.TuneOptions)),
}


@functools.lru_cache(maxsize=None)
def _loaded():
    path, library = _load()
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return path, library


def library():
    """The loaded library, its functions declared."""
    return _loaded()[1]


def library_path() -> str:
    """The file the library was loaded from, a str. Raises ImportError where there is none."""
    return _loaded()[0]


def version() -> str:
    """The library's version, a str such as "0.2.0". Raises ImportError where there is no library."""
    return library().fatune_version().decode()


def check(status):
    """Raises Error unless the status is 0. Only in the thread that made the call."""
    if status != 0:
        lib = library()
        raise Error(status, lib.fatune_status_text(status).decode(), lib.fatune_detail().decode())
