"""Tensors as the library takes them: checks, struct fatune_arguments, the launches of one call."""

import functools
import math

from . import _structs as s
from ._captured import SINKS, add_score, captured_array, check_sinks, new_gradient, places, spread, tensors_of
from ._checks import check_number
from ._devices import launch, serves, session_of
from ._dtypes import NAMES, check_descales, check_dtypes, class_dtype, kv_dtype, output_dtype
from ._library import check
from ._node import node_of
from ._prepared import ALIGNMENT, align, place, prepare, set_seed

O_AS_BSHD, GROUPED = "bhsd, in memory bshd", "bhsd, in memory bshd; grouped"  # O of SDPA; with enable_gqa, which tells kinds apart
AXES = {"bhsd": (0, 2, 1), "bshd": (0, 1, 2), O_AS_BSHD: (0, 2, 1), GROUPED: (0, 2, 1)}  # where batch, sequence, head are
MASK_BLOCK = 128  # queries and keys of a block of the masks that are made by themselves,
MASK_PAYS_FROM = 1024  # where there are so many of both
_CAUSAL = {False: s.CAUSAL_NONE, None: s.CAUSAL_NONE, True: s.CAUSAL_BOTTOM_RIGHT,
           "bottom-right": s.CAUSAL_BOTTOM_RIGHT, "top-left": s.CAUSAL_TOP_LEFT}


def _view(name, tensor, axes):
    """struct fatune_tensor of a tensor, and (batch, sequence, heads, dim)."""
    if tensor.dim() != 4:
        raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: 4")
    shape, strides = tensor.shape, tensor.stride()
    if strides[3] != 1 and shape[3] > 1:
        raise ValueError(f"{name} has stride {strides[3]} in its last dimension; allowed: 1 "
                         "(make it contiguous)")
    batch, seq, head = axes
    view = s.Tensor(tensor.data_ptr(), strides[batch], strides[seq], strides[head])
    return view, (shape[batch], shape[seq], shape[head], shape[3])


def dense(shape):
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def as_input(tensor):
    """The tensor, or a copy of one that the library cannot read where it lies. Autograd hands over
    gradients with any strides: those of a sum are all 0."""
    shape, strides = tensor.shape, tensor.stride()
    readable = strides[3] == 1 and tensor.data_ptr() % 16 == 0 and all(
        extent == 1 or stride == 0 or stride >= shape[3] and stride % 8 == 0
        for extent, stride in zip(shape[:3], strides[:3]))
    if readable:
        return tensor
    dense = tensor.contiguous()
    return tensor.clone() if dense is tensor else dense  # it was dense at an odd address


def _check_inputs(q, k, v, session, names):
    """Raises, or gives the session that serves the tensors."""
    chosen = session_of(q.device) if session is None else session
    if chosen is None or not serves(chosen, q.device):
        raise ValueError(f"q is on {q.device}; allowed: " + (
            "a CUDA device (q.cuda()), or the CPU with fatune.emulate(\"a100\")" if session is None else
            f"{'the CPU' if session.emulates else 'a CUDA device'}, of which the given session is"))
    for name, tensor in zip(names, (q, k, v)):
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}; allowed: {q.device}, where q is")
    check_dtypes(q, k, v, names)
    return chosen


def check_shapes(q, k, v, names=NAMES):
    (b, _, hq, d), (bk, nk, hkv, dk), (bv, nv, hv, _) = q, k, v
    if bk != b or bv != b:
        raise ValueError(f"batches of q, k, v are {b}, {bk}, {bv}; allowed: equal ones")
    if (nv, hv) != (nk, hkv):
        raise ValueError(f"{names[2]} has {nv} keys and {hv} heads; allowed: those of {names[1]}, {nk} and {hkv}")
    if dk != d:
        raise ValueError(f"the head dim of {names[1]} is {dk}; allowed: that of q, {d}")
    if nk == 0:
        raise ValueError(f"{names[1]} has 0 keys; allowed: at least one")
    if hkv == 0 or hq % hkv != 0:
        raise ValueError(f"q has {hq} heads; allowed: a multiple of {names[1]}'s, {hkv}")


def _window(window, causal):
    """The fields of a request and of a run for (left, right), aligned as causal is."""
    if window is None:
        return s.WINDOW_NONE, {}
    if not (isinstance(window, (tuple, list)) and len(window) == 2
            and all(isinstance(side, int) and side >= -1 for side in window)):
        raise ValueError(f"window is {window!r}; allowed: None, or (left, right), numbers of keys "
                         "or -1 for all")
    left, right = window
    if left == right == -1:
        return s.WINDOW_NONE, {}
    kind = s.WINDOW_TOP_LEFT if causal == "top-left" else s.WINDOW_BOTTOM_RIGHT
    return kind, {"window_left": left, "window_right": right}


def _like(tensor, shape, dtype):
    """Of one element, what torch.empty_like makes such a tensor of: in half the time that a shape and a dtype take."""
    return tensor.new_empty((), dtype=dtype).expand(shape)


def _new(like):
    import torch
    return torch.empty_like(like)


class Call:
    """What a forward and its backward have in common: options and shapes, checked, no tensor but what is captured."""
    names = NAMES

    def __init__(self, q, k, v, *, causal, window, scale, dropout, mask, layout, session,
                 deterministic, score=None, visible=None, captured=None, sinks=None,
                 descales=None, tf32=False, out_dtype=None, descale_rows=0, fast_exp=False):
        if layout not in AXES:
            raise ValueError(f"layout is {layout!r}; allowed: 'bhsd', 'bshd'")
        if causal not in _CAUSAL:
            raise ValueError(
                f"causal is {causal!r}; allowed: False, True, 'bottom-right', 'top-left'")
        if mask is not None and mask is not False and not hasattr(mask, "session"):
            raise TypeError(f"mask is {type(mask).__name__}; allowed: None, False, a BlockMask or a VisibleMask "
                            "(fatune.sdpa takes masks of single keys)")
        if session is None and mask:
            session = mask.session
        self.session = session = _check_inputs(q, k, v, session, self.names)
        self._layout, self._axes, self._o_turned = layout, AXES[layout], layout in (O_AS_BSHD, GROUPED)
        shapes = [_view(name, tensor, self._axes)[1]
                  for name, tensor in zip(self.names, (q, k, v))]
        check_shapes(*shapes, self.names)
        if scale is not None:  # to the library 0 would mean its default
            check_number("scale", scale, lambda number: number > 0, "> 0, or None for 1 / sqrt(head dim)")
        check_number("dropout", dropout, lambda number: 0 <= number <= 1, "0 to 1")
        (batch, nq, heads_q, head_dim), (_, nk, heads_kv, _), (*_, head_dim_v) = shapes
        self.device, self.mask = q.device, mask or None
        self.o_dtype = output_dtype(q, out_dtype)
        self.o_shape = ((batch, nq, heads_q, head_dim_v) if layout == "bshd"
                        else (batch, heads_q, nq, head_dim_v))
        self.lse_shape = (batch, heads_q, nq)
        _, first, second, dim = self.o_shape
        self._o_strides = dense(self.o_shape) if not self._o_turned else (first * second * dim, dim, first * dim, 1)
        self._o_as_q = self.o_dtype == q.dtype and self.o_shape == q.shape and q.stride() == self._o_strides
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale
        self.dropout, self.deterministic = dropout, deterministic
        self._sizes = {"batch": batch, "heads_q": heads_q, "heads_kv": heads_kv,
                       "seqlen_q": nq, "seqlen_k": nk}
        self._class = {"dtype": class_dtype(q, tf32), "dtype_kv": kv_dtype(q, k), "head_dim": head_dim,
                       "head_dim_v": head_dim_v, "causal": _CAUSAL[causal],
                       "dropout": int(dropout > 0),
                       "dtype_o": s.O_FP16 if self.o_dtype != q.dtype and str(self.o_dtype).endswith(".float16")
                       else s.O_DEFAULT}
        self._class["window"], sides = _window(window, causal)
        self._sizes.update(sides)
        self._makes_mask = False
        if mask is not None and mask is not False:
            self._class.update(mask_rows=mask.rows, mask_cols=mask.cols,
                               mask_density=max(mask.density, 2.0**-20))
        self._class["score"] = add_score(score, visible, captured, session)
        self._class["sinks"], self._sinks = int(sinks is not None), check_sinks(sinks, heads_q, q.device)
        self.take_descales(descales, q, k, descale_rows)
        self._class["fast_exp"] = int(fast_exp)
        self._class["ragged"] = self._class["pages"] = 0  # _varlen.py, _decode.py
        self._captured = captured or {}
        if mask is None and self._mask_pays():
            self._makes_mask = True
            self._class.update(mask_rows=MASK_BLOCK, mask_cols=MASK_BLOCK, mask_density=0.5)
        self._wanted, self.wanted_names = {}, []
        self.lengths = {}  # of sequences, by name: _varlen.py
        self.kept = False  # whether all tensors it will meet have the strides of the first, out new each time
        self._forward = self._backward = None  # then what _prepare gave
        self.node = None  # then a function (q, k, v) -> O that PyTorch differentiates without Python
        self._lse = None  # of new_lse
        self.among = self.recent = None  # the calls that it is kept among; of _recent.py
        self._template = None  # the one that is kept, where tensors are captured
        self._of_gradients = {}  # what new ones have that is not as of their tensors

    def with_captured(self, captured, sinks):
        """The call, of other tensors of the same kind; what it prepares is this one's, too."""
        call = object.__new__(type(self))
        call.__dict__.update(self.__dict__)
        call._captured, call._sinks, call._template = captured or {}, sinks, self
        return call

    def as_template(self):
        """The same without what is captured; what this one prepares is the template's, too."""
        self._template = self.with_captured(None, None)
        self._template._template = None
        return self._template

    def _keep(self, **prepared):
        self.__dict__.update(prepared)
        if self._template is not None:
            self._template.__dict__.update(prepared)

    def makes_mask(self):
        """Whether a block mask is made for this call, of what it captures."""
        return self._makes_mask

    def take_descales(self, descales, q, k, descale_rows=0):
        """The factors of q, k and v, for the batch entries and heads of the call."""
        self._descales, self._descale_tensors = check_descales(descales, descale_rows, q, k, self._sizes), descales
        self._class["descale_rows"] = descale_rows

    def _mask_pays(self):
        """Whether a block mask of what the score hides is worth its making: not for few queries, and not where a tensor
        is read at every query and key."""
        sizes = self._sizes
        pairs = sizes["seqlen_q"] * sizes["seqlen_k"]
        return (min(sizes["seqlen_q"], sizes["seqlen_k"]) >= MASK_PAYS_FROM
                and self.session.hides_keys(self._class["score"])
                and all(math.prod(extent for extent, stride in zip(value.shape, value.stride()) if stride) * 16 <= pairs
                        for value in self._captured.values() if hasattr(value, "data_ptr")))

    def _make_mask(self, allocate):
        """The mask of this call, once, where it makes one."""
        if not self._makes_mask or self.mask is not None:
            return
        from ._visible import VisibleMask
        sizes = {name: self._sizes[name] for name in ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k")}
        self.mask = VisibleMask.of_call(self.session, self.device, allocate, self._class["score"], sizes, self._captured)

    def widen(self):
        """O, or the gradients, are float32 where tensors have 16 bits. Before anything is run."""
        import torch
        if self.o_dtype in (torch.float16, torch.bfloat16):
            self.o_dtype, self._of_gradients, self._o_as_q = torch.float32, {"dtype": torch.float32}, False
            self._class["dtype_o"] = s.O_FP32

    def has_rows(self):
        """Whether there is anything to compute: the library asks for at least one row."""
        return 0 not in self.o_shape

    def new_output(self, q):
        """Memory for O, dense in the layout."""
        import torch
        if self._o_as_q:
            return torch.empty_like(q)
        if not self._o_turned:
            return q.new_empty(self.o_shape, dtype=self.o_dtype)
        return torch.empty_strided(self.o_shape, self._o_strides, dtype=self.o_dtype, device=self.device)

    def new_lse(self, q):
        """Memory for LSE."""
        import torch
        if self._lse is None:
            self._keep(_lse=_like(q, self.lse_shape, torch.float32))
        return torch.empty_like(self._lse)

    def new_gradients(self, *tensors):
        """Memory for the gradients of q, k and v."""
        import torch
        return [torch.empty_like(tensor, **self._of_gradients) for tensor in tensors]

    def want_gradients(self, owners=None):
        """Names and tensors of what is captured and requires gradients, which the backward then makes. owners: those whose
        gradients are wanted in place of the captured ones', which are parts of them by strides of 0."""
        if not self._captured and self._sinks is None:
            return {}
        wanted = owners or {name: value for name, value in self._captured.items()
                            if hasattr(value, "data_ptr") and value.requires_grad}
        self._wanted = {name: self.session.score_gradient(self._class["score"], name) for name in wanted}
        if self._sinks is not None and self._sinks.requires_grad:
            wanted[SINKS] = self._sinks
        self.wanted_names = list(wanted)
        return wanted

    def _plan(self, pass_):
        is_backward = pass_ == s.BACKWARD
        return self.session.cached_plan(
            s.Request(pass_=pass_, deterministic=int(self.deterministic and is_backward),
                      score_gradients=sum(self._wanted.values()) if is_backward else 0,
                      mask_longest=self.mask.longest[pass_] if self.mask is not None else 1,
                      **self._class, **self._sizes))

    def _arguments(self, tensors, seed, offset, lse, captured):
        arguments = s.Arguments(scale=self.scale, dropout=self.dropout, **self._sizes)
        for name, tensor in tensors.items():
            setattr(arguments, name, _view(name, tensor, self._axes)[0])
        if lse is not None:
            arguments.lse = lse.data_ptr()
        if self.mask is not None:
            arguments.mask = self.mask.handle
        if self._sinks is not None:
            arguments.sinks = self._sinks.data_ptr()
        for name, descale in self._descales.items():
            setattr(arguments, name, descale)
        arguments.captured, arguments.captured_count = captured, len(captured)
        set_seed(arguments, "seed", seed, self.device)
        set_seed(arguments, "offset", offset, self.device)
        return arguments

    def _run(self, plan, arguments):
        launch(self.device, plan.run, arguments)

    def _lend(self, arguments, size, allocate):
        """Memory that the arguments name as their workspace."""
        workspace = allocate(size + ALIGNMENT)
        arguments.workspace, arguments.workspace_size = align(workspace.data_ptr()), size
        return workspace

    def prepared_forward(self, q):
        """What forward has prepared, or None: its run, what makes O or None where that is empty_like(q), what LSE and the
        workspace, if it needs one, are like. Nothing in it refers to the call or its session."""
        import torch
        if self._forward is None:
            return None
        self.new_lse(q)
        run, workspace = self._forward
        if self._o_as_q:
            make = None
        elif not self._o_turned:
            make = functools.partial(torch.empty_like, _like(q, self.o_shape, self.o_dtype))
        else:
            make = functools.partial(torch.empty_strided, self.o_shape, self._o_strides, dtype=self.o_dtype, device=self.device)
        return run, make, self._lse, workspace[0] if workspace else None

    def forward_again(self, q, k, v, seed, offset):
        """(O, LSE) by what an earlier forward has prepared, or None."""
        if self._forward is None or self._lse is None:
            return None
        import torch
        run, workspace = self._forward
        out = torch.empty_like(q) if self._o_as_q else self.new_output(q)
        lse = torch.empty_like(self._lse)
        if workspace:
            workspace = (torch.empty_like(workspace[0]),)
        status = run(q, k, v, out, lse, *self._captured_tensors(), *workspace, seed, offset)
        if status:
            check(status)
        return out, lse

    def _captured_tensors(self):
        if not self._captured and self._sinks is None:
            return ()
        return tensors_of(self._captured) if self._sinks is None else [*tensors_of(self._captured), self._sinks]

    def _captured_places(self):
        """Where they go."""
        return [*places(self._captured, "data"), *([] if self._sinks is None else [place("sinks")])]

    def forward(self, q, k, v, out, lse, seed, offset, allocate):
        """Fills out, and lse unless it is None; allocate as in backward."""
        if self._forward is not None:
            run, workspace = self._forward
            if workspace:
                workspace = (_new(workspace[0]),)
            status = run(q, k, v, out, lse, *self._captured_tensors(), *workspace, seed, offset)
            if status:
                check(status)
            return
        self._make_mask(allocate)
        captured = captured_array(self._captured, self.device)
        arguments = self._arguments({"q": q, "k": k, "v": v, "o": out}, seed, offset, lse, captured)
        plan = self._plan(s.FORWARD)
        size = plan.workspace_for(arguments)
        if size > 0:
            workspace = self._lend(arguments, size, allocate)
        self._run(plan, arguments)
        if self.kept:
            of_tensors = *map(place, ("q", "k", "v", "o", "lse")), *self._captured_places()
            self._keep(_forward=self._prepare(plan, arguments, captured, of_tensors, size))

    def _prepare(self, plan, arguments, captured, of_tensors, size):
        """A function that runs it again with other tensors, and what its workspace is like, if it needs one."""
        import torch
        arguments.workspace_size = 0  # what is lent again is as large
        run = prepare(self.session.exchange, plan, arguments, captured, of_tensors, size > 0, self.device, self.dropout > 0)
        like = _like(torch.empty((), device=self.device), (size + ALIGNMENT,), torch.uint8)
        return run, (like,) if size > 0 else ()

    def _make_node(self, tensors, lse):
        if self._forward is None or self.dropout or self._captured or self._sinks is not None:  # they have no way into it
            return
        (forward, *_), (backward, *_) = self._forward, self._backward
        sizes = [workspace[0].numel() - ALIGNMENT if workspace else 0 for _, workspace in (self._forward, self._backward)]
        self.node = node_of(forward, backward, tensors, lse, sizes, self.device)

    def backward_again(self, q, k, v, out, lse, dout, dlse, seed, offset, captured=None):
        """(dq, dk, dv, those of what is captured) by what an earlier backward has prepared, or None. dout can be read where
        it lies."""
        if self._backward is None:
            return None
        made, gradients = self.new_gradients(q, k, v), self._gradients_of(captured)
        self.backward_into(q, k, v, out, lse, dout, dlse, made, seed, offset, gradients)
        return (*made, *spread(gradients, captured)) if captured else tuple(made)

    def backward_into(self, q, k, v, out, lse, dout, dlse, made, seed, offset, gradients=None):
        """Fills made, dQ, dK and dV, and gradients of what is captured, by what an earlier backward has prepared; False where
        none has."""
        if self._backward is None:
            return False
        run, workspace = self._backward
        if workspace:
            workspace = (_new(workspace[0]),)
        status = run(q, k, v, out, dout, *made, lse, dlse, *self._captured_tensors(), *(gradients or {}).values(), *workspace,
                     seed, offset)
        if status:
            check(status)
        return True

    def _gradients_of(self, captured):
        """Room for them, by name, as the captured ones are ordered."""
        if not captured and self._sinks is None:
            return {}
        gradients = {name: new_gradient(captured[name]) for name in self._captured if name in captured} if captured else {}
        if self._sinks is not None:
            gradients[SINKS] = new_gradient(self._sinks)  # the library makes it anyway
        return gradients

    def backward(self, tensors, lse, dlse, seed, offset, allocate, captured=None):
        """Fills dq, dk, dv; tensors: q, k, v, o, dout, dq, dk, dv by name. allocate(bytes): memory on the device that
        lives until what is launched on the stream has run. Gives the gradients of what is captured and wants one, by
        name; captured: these tensors."""
        plan = self._plan(s.BACKWARD)
        gradients = self._gradients_of(captured)
        self._make_mask(allocate)
        array = captured_array(self._captured, self.device, gradients)
        arguments = self._arguments(tensors, seed, offset, lse, array)
        if self._sinks is not None:
            arguments.dsinks = gradients[SINKS].data_ptr()
        if dlse is not None:
            arguments.dlse = dlse.data_ptr()
        size = plan.workspace_for(arguments)
        workspace = self._lend(arguments, size, allocate)
        self._run(plan, arguments)
        del workspace  # not before
        if self.kept:
            of_tensors = [(place(name), *self._axes) if name == "dout" else place(name) for name in (*tensors, "lse", "dlse")]
            of_tensors += [*self._captured_places(), *places(self._captured, "gradient", gradients)]
            of_tensors += [place("dsinks")] if self._sinks is not None else []
            self._keep(_backward=self._prepare(plan, arguments, array, of_tensors, size))
            self._make_node(tensors, lse)
        return dict(zip(captured or (), spread(gradients, captured or {})))


def aligned(allocate, size):
    """(memory, the address of so many bytes in it)."""
    memory = allocate(size + ALIGNMENT)
    return memory, align(memory.data_ptr())
