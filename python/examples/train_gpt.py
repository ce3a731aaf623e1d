"""Trains a small GPT with fatune's attention and with PyTorch's, and compares the loss curves.

    python3 train_gpt.py            # 200 steps, without dropout and with; a minute or two on one GPU

Every run begins with the same random weights and sees the same batches. Runs with PyTorch's
attention, one for each of its kernels (with dropout also with masks of their own), differ by
rounding and chance alone: how far each is from the mean of them is the noise. fatune's curve must be
within it; a control whose attention weights get no gradient must not be. Exit status 0 when both
hold. Tokens per second are of the second half of a run's steps: fatune's beside those of PyTorch's kernels
and of its standard attention (MATH). So small a model waits for the host; bench/training.py has a larger one.
"""

import argparse
import dataclasses
import functools
import pathlib
import random
import sys
import time

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import fatune  # noqa: E402

@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a model."""
    width: int = 256
    heads: int = 4
    layers: int = 4

    @property
    def head_dim(self):
        return self.width // self.heads


CONTEXT, BATCH = 256, 32
WINDOW = 20   # steps that one point of a curve is the mean of
FACTOR = 3.0  # times the largest deviation among PyTorch's own runs


# ---- text ------------------------------------------------------------------------------------------

def make_text(characters, seed=1):
    """Words that are each said twice, "kuvo kuvo teba teba ": to foretell the second one has to look
    back, which is what attention is for."""
    chance = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ("".join(chance.choices(syllables, k=2)) for _ in range(characters // 10))
    return "".join(f"{word} {word} " for word in words)


def encode(text):
    alphabet = sorted(set(text))
    number = {character: n for n, character in enumerate(alphabet)}
    return torch.tensor([number[character] for character in text]), len(alphabet)


def batches(tokens, steps, device, context, batch, seed=2):
    chance = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        begins = torch.randint(len(tokens) - context - 1, (batch,), generator=chance)
        rows = torch.stack([tokens[begin:begin + context + 1] for begin in begins.tolist()])
        yield rows[:, :-1].to(device), rows[:, 1:].to(device)


# ---- model -----------------------------------------------------------------------------------------

class Block(torch.nn.Module):
    """attend(q, k, v, step, layer) takes and gives [batch, heads, seq, dim]."""

    def __init__(self, shape, layer):
        super().__init__()
        self.shape, self.layer, width = shape, layer, shape.width
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width))

    def forward(self, x, attend, step):
        batch, length, width = x.shape
        packed = self.qkv(self.norms[0](x)).view(batch, length, 3, self.shape.heads, self.shape.head_dim)
        q, k, v = packed.permute(2, 0, 3, 1, 4)  # views: nothing is copied
        o = attend(q, k, v, step, self.layer)
        x = x + self.out(o.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class GPT(torch.nn.Module):
    def __init__(self, vocabulary, context, shape=Shape()):
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, shape.width)
        self.place = torch.nn.Embedding(context, shape.width)
        self.blocks = torch.nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = torch.nn.LayerNorm(shape.width)
        self.head = torch.nn.Linear(shape.width, vocabulary, bias=False)

    def forward(self, tokens, attend, step):
        x = self.token(tokens) + self.place.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x, attend, step)
        return self.head(self.norm(x))


# ---- attention -------------------------------------------------------------------------------------

def by_fatune(q, k, v, step, layer, *, dropout):
    return fatune.attention(q, k, v, causal=True, dropout=dropout, seed=step, offset=layer)


def by_torch(q, k, v, step, layer, *, dropout, backend):
    with sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)


def without_gradients_of_weights(q, k, v, step, layer, *, dropout):
    return functional.scaled_dot_product_attention(q.detach(), k.detach(), v, is_causal=True,
                                                   dropout_p=dropout)


def backends(device, dtype):
    """Those of PyTorch's kernels that serve this GPU."""
    served = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
                    SDPBackend.CUDNN_ATTENTION):
        q = torch.zeros(1, Shape().heads, 64, Shape().head_dim, device=device, dtype=dtype, requires_grad=True)
        try:
            by_torch(q, q, q, 0, 0, dropout=0.1, backend=backend).sum().backward()
        except RuntimeError:
            continue
        served.append(backend)
    return served


# ---- training --------------------------------------------------------------------------------------

def train(attend, tokens, vocabulary, *, steps, device, dtype, chance, context=CONTEXT, batch=BATCH):
    """The loss of every step; tokens per second of the second half of the steps."""
    torch.manual_seed(0)
    model = GPT(vocabulary, context).to(device)
    torch.manual_seed(chance)  # of PyTorch's dropout masks
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    losses, begin = [], 0.0
    for step, (inputs, targets) in enumerate(batches(tokens, steps, device, context, batch)):
        if step == steps // 2:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 20)
        with torch.autocast(device, dtype=dtype):
            scores = model(inputs, attend, step)
            loss = functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    losses = torch.stack(losses).double().cpu()
    return losses, (steps - steps // 2) * context * batch / (time.perf_counter() - begin)


def print_speeds(kernels, torch_speeds, ours):
    speeds = {kernel.name: speed for kernel, speed in zip(kernels, torch_speeds)}
    best = max((name for name in speeds if name != "MATH"), key=speeds.get)
    print("  tokens per second: " + ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items())
          + f", fatune {ours:.0f}: {ours / speeds[best]:.2f} x {best}, {ours / speeds['MATH']:.2f} x MATH")


def points(losses):
    """Means over windows of steps."""
    return losses[:len(losses) // WINDOW * WINDOW].view(-1, WINDOW).mean(1)


def compare(dropout, kernels, **options):
    """True when fatune's curve is within the noise and the control's is not."""
    def run(attend, chance=0, **more):
        losses, speed = train(functools.partial(attend, dropout=dropout, **more), chance=chance, **options)
        return points(losses), speed

    torch_runs, torch_speeds = zip(*(run(by_torch, n, backend=backend) for n, backend in enumerate(kernels)))
    ours, speed = run(by_fatune)
    control, _ = run(without_gradients_of_weights)
    mean = torch.stack(torch_runs).mean(0)
    noise = max((curve - mean).abs().max().item() for curve in torch_runs)
    off, control_off = ((curve - mean).abs().max().item() for curve in (ours, control))
    print(f"\ndropout {dropout:g}: mean loss of {WINDOW} steps\n  step   PyTorch    fatune   control")
    for n, values in enumerate(zip(mean.tolist(), ours.tolist(), control.tolist())):
        print(f"{(n + 1) * WINDOW:6d}" + "".join(f"{value:10.4f}" for value in values))
    print(f"  largest distance from PyTorch's mean: its own {len(kernels)} runs {noise:.4f}, "
          f"fatune {off:.4f} (allowed {FACTOR * noise:.4f}), control {control_off:.4f}")
    print_speeds(kernels, torch_speeds, speed)
    if off > FACTOR * noise:
        print("  WRONG: fatune's curve is not PyTorch's")
    if control_off <= FACTOR * noise:
        print("  WRONG: the noise hides a control that does not train its attention")
    return off <= FACTOR * noise < control_off


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200, help=f"at least {WINDOW}")
    parser.add_argument("--dropout", type=float, default=0.1, help="of the second comparison")
    arguments = parser.parse_args()
    if arguments.steps < WINDOW:
        parser.error(f"--steps is {arguments.steps}; allowed: {WINDOW} and more")
    if not torch.cuda.is_available():
        sys.exit("train_gpt.py: PyTorch sees no GPU")
    device = "cuda"
    dtype = torch.bfloat16 if torch.cuda.get_device_capability()[0] >= 8 else torch.float16
    kernels = backends(device, dtype)
    tokens, vocabulary = encode(make_text(1_000_000))
    print(f"{torch.cuda.get_device_name()}, {dtype}, {arguments.steps} steps, "
          f"PyTorch's {', '.join(kernel.name for kernel in kernels)}")
    right = [compare(dropout, kernels, tokens=tokens, vocabulary=vocabulary, steps=arguments.steps,
                     device=device, dtype=dtype) for dropout in (0.0, arguments.dropout)]
    print("\nfatune's loss curves are PyTorch's" if all(right) else "\nthe loss curves differ")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
