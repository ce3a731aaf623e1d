"""What calls of several kinds check of their tensors, by name."""


def check_tensors(given, instead=""):
    """given: by name; instead: what to do with others."""
    import torch
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is {type(value).__name__}; allowed: torch.Tensor{instead}")


def check_number(name, value, fits, allowed):
    """fits: of a number, whether it is allowed."""
    try:
        good = not isinstance(value, (str, bytes)) and fits(value)
    except TypeError:  # it is not compared with numbers
        good = False
    if not good:
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")


def check_seed(name, value, device):
    """A number of 64 bits with a sign or without, or a tensor, which is looked at where it is used."""
    if hasattr(value, "data_ptr"):
        return
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {type(value).__name__}; allowed: an int, or an int64 tensor on {device}")
    check_number(name, value, lambda number: -2**63 <= number < 2**64, "-2^63 to 2^64 - 1")


def check_session(session):
    if session is not None and not hasattr(session, "emulates"):
        raise TypeError(f"session is {type(session).__name__}; allowed: a fatune.Session, or None")


def check_int32(name, tensor, shape, device, contiguous=True):
    if (tuple(tensor.shape) == shape and str(tensor.dtype).endswith("int32") and tensor.device == device
            and (tensor.is_contiguous() or not contiguous)):
        return
    raise ValueError(f"{name} is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}, strides {tensor.stride()}; allowed: "
                     f"{'contiguous ' * contiguous}int32 {shape} on {device}")


def check_starts(name, tensor, device):
    """Gives the number of sequences that it is the cumulative lengths of."""
    if tensor.dim() != 1 or tensor.shape[0] == 0:
        raise ValueError(f"{name} is {tuple(tensor.shape)}; allowed: (sequences + 1,)")
    check_int32(name, tensor, tuple(tensor.shape), device)
    return tensor.shape[0] - 1


def check_out(out, shape, dtype, device):
    check_tensors({"out": out})
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != device:
        raise ValueError(f"out is {tuple(out.shape)} {out.dtype} on {out.device}; allowed: {shape} {dtype} on {device}")
