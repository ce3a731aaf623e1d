"""Score functions written in Python: a function is called once with symbols, and what it does with them becomes Lua.

    from fatune import attention, score

    def alibi(s, b, h, i, j, slope):
        return s - slope[h] * abs(i + score.nk - score.nq - j)

    attention(q, k, v, score=alibi, captured={"slope": slopes})

Symbols: s is scale q . k, a float; b, h, i, j are batch entry, query head, query and key, integers. A mask function takes
b, h, i, j. What is captured comes after them by its name: numbers, and tensors that are read as bias[h, i, j]. Operators:
+ - * / // % **, abs, comparisons; & | ~ for and, or, not. The rest are functions of this module, and PyTorch's of the same
names (torch.where, torch.tanh), which become these.
"""

import inspect
import math
import numbers
import re
import sys

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int32": "int32", "int64": "int64",
           "uint8": "uint8", "bool": "bool"}


def _text(value):
    """A number or an expression in Lua."""
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):  # NumPy's, too
        return f"({int(value)})"
    if isinstance(value, numbers.Real):
        value = float(value)
        return f"({value!r})" if math.isfinite(value) else f"({str(value).replace('+', '')})"
    if isinstance(value, _Tensor):
        raise TypeError(f"a score function computes with {value.name}; allowed: its elements, {value.name}[h, i, j]")
    raise TypeError(f"a score function computes with {type(value).__name__}; allowed: numbers, bools and its symbols (tensors "
                    "are captured, and read as bias[h, i, j])")


def _line():
    """FILE:LINE of the code that computes with symbols."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class _Lines:
    """The Lua text of one trace: each operation is a line of its own, so that what is used twice is computed once."""

    def __init__(self):
        self.texts, self.places = [], []

    def add(self, text, place=None):
        self.texts.append(f"v[{len(self.texts) + 1}] = {text}")
        self.places.append(place)
        return f"v[{len(self.texts)}]"


def _lines_of(*values):
    """The lines of the trace that the values belong to, None for sizes and numbers alone."""
    lines = None
    for value in values:
        other = value.lines if isinstance(value, Expression) else None
        if lines is not None and other is not None and other is not lines:
            raise ValueError("a score function computes with a symbol of another call; allowed: those it is called with, not "
                             "kept between calls")
        lines = lines or other
    return lines


class Expression:
    """A value that is not known yet."""

    def __init__(self, text, lines=None):
        self.text, self.lines = text, lines

    def __bool__(self):
        raise TypeError("a score function decides by an expression; allowed: fatune.score.where, and & | ~ "
                        "in place of and, or, not")

    def _unknown(self, *_):
        raise TypeError("a score function takes the value of an expression, which is not known when it is called; allowed: "
                        "functions of fatune.score in place of math, int and float, and captured tensors in place of lists")

    __int__ = __float__ = __complex__ = __index__ = __round__ = __trunc__ = __ceil__ = __iter__ = __len__ = _unknown
    __hash__ = object.__hash__
    __array_ufunc__ = None  # NumPy's numbers leave operators to this class

    def __repr__(self):
        return f"<expression {self.text} of a score function>"

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if any(hasattr(value, "data_ptr") for value in args):
            raise TypeError("a score function computes with a tensor; allowed: captured tensors, read as bias[h, i, j]")
        ours = _OF_TORCH.get(function.__name__)
        if ours is None or kwargs:
            raise TypeError(f"a score function calls torch.{function.__name__}{' with keywords' if ours else ''}; allowed: "
                            f"{', '.join(_OF_TORCH)}, operands alone")
        return ours(*args)


def _make(form, *operands):
    lines = _lines_of(*operands)
    text = form.format(*map(_text, operands))
    if lines is None:  # of sizes alone: short enough to stand where it is used
        return Expression(f"({text})")
    return Expression(lines.add(text, _line()), lines)


def _define_operators():
    binary = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "^",
              "and": "and", "or": "or"}
    for name, sign in binary.items():
        form = "{0} " + sign + " {1}"
        setattr(Expression, f"__{name}__", lambda a, b, form=form: _make(form, a, b))
        setattr(Expression, f"__r{name}__", lambda a, b, form=form: _make(form, b, a))
    for name, sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "~="}.items():
        setattr(Expression, f"__{name}__", lambda a, b, form="{0} " + sign + " {1}": _make(form, a, b))
    for name, form in {"neg": "-{0}", "invert": "not {0}", "abs": "abs({0})", "floor": "floor({0})"}.items():
        setattr(Expression, f"__{name}__", lambda a, form=form: _make(form, a))


_define_operators()

nq, nk, batch, heads, kv_heads = map(Expression, ("nq", "nk", "batch", "heads", "kv_heads"))
kv = Expression("kv")  # the head of K and V


def where(condition, a, b):
    return _make("where({0}, {1}, {2})", condition, a, b)


def minimum(a, b):
    return _make("min({0}, {1})", a, b)


def maximum(a, b):
    return _make("max({0}, {1})", a, b)


def exp(x):
    return _make("exp({0})", x)


def log(x):
    return _make("log({0})", x)


def tanh(x):
    return _make("tanh({0})", x)


def sigmoid(x):
    return _make("sigmoid({0})", x)


def floor(x):
    return _make("floor({0})", x)


def _logical_and(a, b):
    return a & b


def _logical_or(a, b):
    return a | b


def _logical_not(a):
    return ~a


_OF_TORCH = {"where": where, "minimum": minimum, "maximum": maximum, "exp": exp, "log": log, "tanh": tanh, "sigmoid": sigmoid,
             "abs": abs, "logical_and": _logical_and, "logical_or": _logical_or, "logical_not": _logical_not}


class _Tensor:
    """A captured tensor; text: its Lua value."""

    def __init__(self, name, text, dims, lines):
        self.name, self.text, self.dims, self.lines = name, text, dims, lines

    def __getitem__(self, indices):
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != self.dims:
            dimensions = "1 dimension" if self.dims == 1 else f"{self.dims} dimensions"
            given = "1 index is" if len(indices) == 1 else f"{len(indices)} indices are"
            raise IndexError(f"{self.name} has {dimensions}; {given} given")
        _lines_of(Expression("", self.lines), *indices)
        return Expression(self.lines.add(f"{self.text}({', '.join(map(_text, indices))})", _line()), self.lines)


def _declare(name, value, lines):
    """What the function gets. In Lua captured things stand in the same table as all else, whatever they are called."""
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"captured has the name {name!r}; allowed: letters, digits and underscores, a letter first")
    if not hasattr(value, "data_ptr"):
        if not isinstance(value, numbers.Real) and getattr(value, "shape", None) != ():
            raise TypeError(f"captured {name!r} is {type(value).__name__}; allowed: a number, or a tensor")
        kind = "int" if isinstance(value, numbers.Integral) else "float"
        return Expression(lines.add(f'scalar("{name}", "{kind}")'), lines)
    dtype = _DTYPES.get(str(value.dtype).rpartition(".")[2])
    if dtype is None or not 1 <= value.dim() <= 4:
        raise TypeError(f"captured {name!r} is {value.dtype} with {value.dim()} dimensions; allowed: "
                        f"{', '.join(_DTYPES)} with 1 to 4")
    extents = ", ".join("1" * value.dim())  # of a run: whatever the tensor has
    return _Tensor(name, lines.add(f'tensor("{name}", "{dtype}", {extents})'), value.dim(), lines)


def _captures(word, function, symbols, given):
    """What a function is called with behind its symbols, by the names of its parameters: what is given, else what they have by
    default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(f"{word} is {function!r}; allowed: a Python function of {', '.join(symbols)}") from None
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if len(places) < len(symbols) and not any(each.kind == each.VAR_POSITIONAL for each in parameters):
        raise TypeError(f"{word} has {len(places)} parameters; allowed: {', '.join(symbols)}, then those that it captures")
    wanted = {}
    for each in [*places[len(symbols):], *(each for each in parameters if each.kind == each.KEYWORD_ONLY)]:
        if each.name in given:
            wanted[each.name] = given[each.name]
        elif each.default is each.empty:
            raise ValueError(f"{word} captures {each.name!r}; captured has {', '.join(given) or 'nothing'}")
    return wanted


class Traced(str):
    """The Lua text of Python functions; places: by its lines, FILE:LINE in Python, or None."""

    def __new__(cls, text, places):
        traced = super().__new__(cls, text)
        traced.places = places
        return traced

    def in_python(self, message):
        """A message about this text, known as "score", with lines of Python in place of the text's."""
        def place(found):
            line = int(found[1]) - 1
            return f"{self.places[line] if line < len(self.places) and self.places[line] else 'score'}: "
        return re.sub(r"\bscore:(\d+): ", place, message)


def trace(score=None, visible=None, captured=None):
    """The Lua text of Python functions. Each is given what it captures by the names of its parameters."""
    return str(traced(score, visible, captured))  # torch.compile takes no other kind of str


def traced(score=None, visible=None, captured=None):
    """trace(), and where its lines come from."""
    lines = _Lines()
    given = {name: _declare(name, value, lines) for name, value in (captured or {}).items()}
    results, places = [], []
    for word, function, symbols in (("score", score, "sbhij"), ("visible", visible, "bhij")):
        if function is None:
            continue
        if not callable(function):
            raise TypeError(f"{word} is {function!r}; allowed: a Python function of {', '.join(symbols)}")
        value = function(*(Expression(symbol, lines) for symbol in symbols), **_captures(word, function, symbols, given))
        if not isinstance(value, (Expression, numbers.Real)):
            raise TypeError(f"{word} returns {type(value).__name__}; allowed: {'a number' if word == 'score' else 'a bool'} made "
                            "of its symbols")
        _lines_of(Expression("", lines), value)
        results.append(f"{word} = {_text(value)}")
        code = getattr(inspect.unwrap(function), "__code__", None)
        places.append(code and f"{code.co_filename}:{code.co_firstlineno}")
    return Traced("\n".join(["local v = {}", *lines.texts, *results]) + "\n", [None, *lines.places, *places])
