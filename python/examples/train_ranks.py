"""Trains a small transformer on sequences that several processes have in shares, and on one process, and compares the losses.

    torchrun --nproc-per-node 4 train_ranks.py                                   # over NCCL, a GPU each
    torchrun --nproc-per-node 2 train_ranks.py --emulate a100 --context 128 --steps 3 --width 32      # on CPUs

Each process has every weight and some rows of each sequence: attention alone looks at others' rows. Gradients of weights are
summed over the processes. The first process does the same steps alone, with fatune.attention on whole sequences, from the
same weights. Exit status 0 when no loss differs by more than rounding does.
"""

import argparse
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import fatune  # noqa: E402
from fatune import distributed as many  # noqa: E402

HEADS, HEADS_KV, VOCABULARY = 4, 2, 64


def rotated(x, positions):
    """Rotary embedding of [batch, heads, rows, dim] by the rows' places in the whole sequence."""
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10000 ** (torch.arange(half, device=x.device) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dim = width // HEADS
        self.qkv = nn.Linear(width, (HEADS + 2 * HEADS_KV) * self.dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x, positions, attention, dtype):
        batch, rows, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, rows, -1, self.dim).transpose(1, 2)
        q, k, v = heads.split([HEADS, HEADS_KV, HEADS_KV], 1)
        q, k, v = rotated(q, positions).to(dtype), rotated(k, positions).to(dtype), v.contiguous().to(dtype)
        x = x + self.out(attention(q, k, v).to(x.dtype).transpose(1, 2).reshape(batch, rows, width))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def loss(self, tokens, labels, positions, attention, dtype):
        """The sum over the rows at hand."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, positions, attention, dtype)
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), labels.flatten(), reduction="sum")


def sequences(steps, context, device):
    """(tokens, labels): the label of a row is the token a third of the context before it."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        tokens = torch.randint(0, VOCABULARY, (2, context), generator=generator)
        labels = tokens.roll(context // 3, 1)
        yield tokens.to(device), labels.to(device)


def train(options, device, dtype, parallel):
    """The losses, of whole sequences."""
    torch.manual_seed(0)
    model = Model(options.width, options.layers).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for tokens, labels in sequences(options.steps, options.context, device):
        rows = tokens.numel()
        if parallel:
            positions = many.positions(options.context, device=device)
            tokens, labels = many.shard(tokens, dim=1), many.shard(labels, dim=1)
            loss = model.loss(tokens, labels, positions,
                              lambda q, k, v: many.attention(q, k, v, causal=True, scheme=options.scheme), dtype) / rows
        else:
            positions = torch.arange(options.context, device=device)
            loss = model.loss(tokens, labels, positions, lambda q, k, v: fatune.attention(q, k, v, causal=True), dtype) / rows
        optimiser.zero_grad()
        loss.backward()
        loss = loss.detach()
        if parallel:
            for tensor in (loss, *(weight.grad for weight in model.parameters())):
                dist.all_reduce(tensor)
        optimiser.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulate", metavar="GPU", help="on CPUs, by an emulated GPU")
    parser.add_argument("--scheme", choices=["ring", "gather", "ulysses"], help="chosen by a model if not given")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    if options.emulate:
        torch.set_num_threads(1)
        fatune.emulate(options.emulate)
        device, dtype = torch.device("cpu"), torch.float16
    else:
        device, dtype = torch.device("cuda", int(os.environ["LOCAL_RANK"])), torch.bfloat16
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.emulate else "nccl")
    losses = train(options, device, dtype, parallel=True)
    failed = 0
    if dist.get_rank() == 0:
        alone = train(options, device, dtype, parallel=False)
        allowed = 1e-4 if options.emulate else 3e-3  # of a few steps; of many in bfloat16
        worst = max(abs(a - b) / b for a, b in zip(losses, alone))
        print(f"{dist.get_world_size()} processes: loss {losses[0]:.4f} to {losses[-1]:.4f}, alone {alone[0]:.4f} to "
              f"{alone[-1]:.4f}, at most {worst:.1e} apart, allowed {allowed:.0e}")
        failed = int(not worst <= allowed)
    dist.destroy_process_group()
    return failed


if __name__ == "__main__":
    sys.exit(main())
