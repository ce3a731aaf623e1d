"""What calls of several kinds check of their tensors, by name."""


def check_tensors(given, instead=""):
    """given: by name; instead: what to do with others."""
    import torch
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is {type(value).__name__}; allowed: torch.Tensor{instead}")


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
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != device:
        raise ValueError(f"out is {tuple(out.shape)} {out.dtype} on {out.device}; allowed: {shape} {dtype} on {device}")
