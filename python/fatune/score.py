"""Score functions written in Python: a function is called once with symbols, and what it does with them becomes Lua.

    from fatune import attention, score

    def alibi(s, b, h, i, j, slope):
        return s - slope[h] * abs(i + score.nk - score.nq - j)

    attention(q, k, v, score=alibi, captured={"slope": slopes})

Symbols: s is scale q . k, a float; b, h, i, j are batch entry, query head, query and key, integers. A mask function takes
b, h, i, j. What is captured comes after them by its name: numbers, and tensors that are read as bias[h, i, j]. Operators:
+ - * / // % **, abs, comparisons; & | ~ for and, or, not. The rest are functions of this module.
"""

import inspect
import math

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int32": "int32", "int64": "int64",
           "uint8": "uint8", "bool": "bool"}


def _text(value):
    """A number or an expression in Lua."""
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"({value})"
    if isinstance(value, float):
        return f"({value!r})" if math.isfinite(value) else f"({str(value).replace('+', '')})"
    raise TypeError(f"a score function computes with {type(value).__name__}; allowed: numbers, bools and its symbols")


class Expression:
    """A value that is not known yet."""

    def __init__(self, text, lines=None):
        self.text, self.lines = text, lines

    def __bool__(self):
        raise TypeError("a score function decides by an expression; allowed: fatune.score.where, and & | ~ "
                        "in place of and, or, not")

    __hash__ = object.__hash__


def _make(form, *operands):
    """Each operation is a line of its own, so that what is used twice is computed once."""
    lines = next((x.lines for x in operands if isinstance(x, Expression) and x.lines is not None), None)
    text = form.format(*map(_text, operands))
    if lines is None:  # of sizes alone: short enough to stand where it is used
        return Expression(f"({text})")
    lines.append(f"v[{len(lines) + 1}] = {text}")
    return Expression(f"v[{len(lines)}]", lines)


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


class _Tensor:
    def __init__(self, name, dims, lines):
        self.name, self.dims, self.lines = name, dims, lines

    def __getitem__(self, indices):
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != self.dims:
            raise IndexError(f"{self.name} has {self.dims} dimensions; {len(indices)} indices are given")
        self.lines.append(f"v[{len(self.lines) + 1}] = {self.name}({', '.join(map(_text, indices))})")
        return Expression(f"v[{len(self.lines)}]", self.lines)


def _declare(name, value, lines):
    """(declaration in Lua, what the function gets)."""
    if not hasattr(value, "data_ptr"):
        kind = "int" if isinstance(value, int) else "float"
        return f'local {name} = scalar("{name}", "{kind}")', Expression(name, lines)
    dtype = _DTYPES.get(str(value.dtype).rpartition(".")[2])
    if dtype is None or not 1 <= value.dim() <= 4:
        raise TypeError(f"captured {name!r} is {value.dtype} with {value.dim()} dimensions; allowed: "
                        f"{', '.join(_DTYPES)} with 1 to 4")
    extents = ", ".join("1" * value.dim())  # of a run: whatever the tensor has
    return f'local {name} = tensor("{name}", "{dtype}", {extents})', _Tensor(name, value.dim(), lines)


def trace(score=None, visible=None, captured=None):
    """The Lua text of Python functions. Each is given what it captures by the names of its parameters."""
    lines, declarations, given = [], [], {}
    for name, value in (captured or {}).items():
        declaration, given[name] = _declare(name, value, lines)
        declarations.append(declaration)
    results = []
    for word, function, symbols in (("score", score, "sbhij"), ("visible", visible, "bhij")):
        if function is None:
            continue
        wanted = list(inspect.signature(function).parameters)[len(symbols):]
        missing = [name for name in wanted if name not in given]
        if missing:
            raise ValueError(f"{word} captures {missing[0]!r}; captured has {', '.join(given) or 'nothing'}")
        value = function(*(Expression(symbol, lines) for symbol in symbols), *(given[name] for name in wanted))
        results.append(f"{word} = {_text(value)}")
    return "\n".join([*declarations, "local v = {}", *lines, *results]) + "\n"
