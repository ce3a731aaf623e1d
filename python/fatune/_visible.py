"""Block masks that a mask function makes on the device, or that rectangles of queries and keys make."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING

from . import _structs as s
from ._autograd import bytes_of
from ._captured import add_score, captured_array
from ._checks import check_session, check_tensors
from ._devices import launch, session_of
from ._launch import AXES, MASK_BLOCK, aligned, check_shapes
from ._library import check, library
from ._session import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    import torch

    from ._session import Session


def _check(q, k, v, layout, session):
    given = {"q": q, "k": k, "v": v}
    check_tensors(given)
    check_session(session)
    if layout not in AXES:
        raise ValueError(f"layout is {layout!r}; allowed: 'bhsd', 'bshd'")
    for name, tensor in given.items():
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed: 4")


class VisibleMask:
    """A block mask of what a score function hides, made on the device for one kind of call and used by any number of
    them, forward and backward: blocks in which no query sees a key are never loaded, and the function is evaluated only
    in blocks that are seen in part.

    q, k, v: tensors of these calls' shapes. score, visible, captured: as attention() takes them; calls with this mask must
    have them, too. rows, cols: the size of one block, multiples of 16. layout, session: as attention(). same_for_batch,
    same_for_heads: what batch entry 0, or head 0, sees is what all see (found out where the function does not speak of
    b, or of h). density: the share of blocks that is about kept; it steers the choice of kernels.
    update() makes the mask anew from tensors that have changed; on the current stream, also in a captured graph.
    """

    longest = {s.FORWARD: 1, s.BACKWARD: 1}  # the lists are on the device: not known

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
                 score: str | Callable[..., Any] | None = None, visible: Callable[..., Any] | None = None,
                 captured: Mapping[str, Any] | None = None, rows: int = MASK_BLOCK, cols: int = MASK_BLOCK,
                 layout: str = "bhsd", session: Session | None = None, same_for_batch: bool = False,
                 same_for_heads: bool = False, density: float = 0.5) -> None:
        _check(q, k, v, layout, session)
        if score is None and visible is None:
            raise ValueError("score and visible are None; allowed: one of them, which says what is hidden")
        axes = AXES[layout]
        shapes = [(*(tensor.shape[axis] for axis in axes), tensor.shape[3]) for tensor in (q, k, v)]
        check_shapes(*shapes)
        session = session or session_of(q.device)
        if session is None:
            raise ValueError(f"q is on {q.device}; allowed: a CUDA device, or the CPU with fatune.emulate(\"a100\")")
        (batch, nq, heads_q, _), (_, nk, heads_kv, _), _ = shapes
        options = s.VisibleOptions(
            score=add_score(score, visible, captured, session), mask_rows=rows, mask_cols=cols, batch=batch,
            heads_q=heads_q, heads_kv=heads_kv, seqlen_q=nq, seqlen_k=nk, same_for_batch=int(same_for_batch),
            same_for_heads=int(same_for_heads))
        self._set(session, options, q.device, bytes_of(q), captured or {}, density)

    def _set(self, session, options, device, allocate, captured, density):
        lib, size, self._score = library(), c.c_size_t(), options.score
        check(lib.fatune_visible_memory_size(session.handle, options, size))
        self._memory, options.memory = aligned(allocate, size.value)
        self.session, self.rows, self.cols, self.density = session, options.mask_rows, options.mask_cols, density
        self.number, self.handle, self._device = numbered(self), c.c_void_p(), device
        check(lib.fatune_visible_mask(self.handle, session.handle, options))
        session.opened.frees(self, lib.fatune_mask_free, self.handle)
        self.update(captured)

    @classmethod
    def of_call(cls, session, device, allocate, score, sizes, captured):
        """The mask of one call, whose score has this number; sizes: those of struct fatune_visible_options."""
        mask = cls.__new__(cls)
        options = s.VisibleOptions(score=score, mask_rows=MASK_BLOCK, mask_cols=MASK_BLOCK, **sizes)
        mask._set(session, options, device, allocate, captured, 0.5)
        return mask

    def update(self, captured: Mapping[str, Any]) -> None:
        """Makes the mask anew from what is captured, scalars and tensors by name."""
        self.session.check_captured(self._score, captured)
        self._captured = captured  # alive until the kernels have read it
        array = captured_array(captured, self._device)
        check(launch(self._device, library().fatune_mask_update, self.handle, array, len(array)))


class RectangleMask(VisibleMask):
    """A block mask of rectangles of queries and keys that see each other, the same for all batch entries and heads, for any
    number of calls with q, k, v of these shapes: attention(q, k, v, mask=mask), without a score function.

    rectangles: (first query, end, first key, end, causal) each. In a causal one its last query sees all its keys, the one
    before all but the last, and so on. A query sees what some rectangle lets it see: at most four ranges of keys apart from
    each other. rows, cols, layout, session, density: as VisibleMask.
    """

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                 rectangles: Iterable[tuple[int, int, int, int, bool]], *, rows: int = MASK_BLOCK, cols: int = MASK_BLOCK,
                 layout: str = "bhsd", session: Session | None = None, density: float = 0.5) -> None:
        import torch
        _check(q, k, v, layout, session)
        if not hasattr(rectangles, "__iter__"):
            raise TypeError(f"rectangles is {type(rectangles).__name__}; allowed: (first query, end, first key, end, causal) each")
        batch, nq = (q.shape[axis] for axis in AXES[layout][:2])
        given = [s.Rectangle(*rectangle) for rectangle in rectangles]
        bounds = torch.empty(nq, 8, dtype=torch.int32)
        check(library().fatune_rectangle_bounds(bounds.data_ptr(), nq, k.shape[AXES[layout][1]],
                                                (s.Rectangle * len(given))(*given), len(given)))
        captured = {"bounds": bounds.to(q.device).expand(batch, nq, 8)}
        super().__init__(q, k, v, score="rectangles", captured=captured, rows=rows, cols=cols, layout=layout, session=session,
                         same_for_batch=True, density=density)
        self.of_calls = "rectangles", captured
