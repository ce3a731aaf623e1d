"""llama.py: training steps of a Llama form from Transformers, randomly initialised, bf16, by attn_implementation.
in -> out: 8 layers of 2048, 16 heads of 128, 8 of K and V, n 2048 and 8192 -> ms of a step (forward, loss, backward,
AdamW) with "fatune" and with "sdpa" by each of its backends, the ratio to the best of these, and what it would be if
attention took no time. Needs Transformers."""

import contextlib

import common

FORM = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8, "num_attention_heads": 16,
        "num_key_value_heads": 8, "vocab_size": 32000}
TOKENS = 16384  # of a step
LENGTHS = (8192, 2048)
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def no_attention(module, query, key, value, attention_mask, **_):
    """In place of attention: reads Q, K and V and takes next to no time."""
    group = query.shape[1] // key.shape[1]
    mixed = query.unflatten(1, (-1, group)) + (key + value).unsqueeze(2)
    return mixed.flatten(1, 2).transpose(1, 2).contiguous(), None


def attends(torch):
    """Name -> the implementation, and what it runs in."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return {"fatune": ("fatune", contextlib.nullcontext), "sdpa": ("sdpa", contextlib.nullcontext),
            **{name: ("sdpa", lambda name=name: sdpa_kernel(getattr(SDPBackend, name))) for name in BACKENDS},
            "no attention": ("no_attention", contextlib.nullcontext)}


def make_model(torch):
    """The model and an optimizer whose learning rate of 0 leaves its weights as they are."""
    import transformers
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**FORM, max_position_embeddings=max(LENGTHS))
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    return model, torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)


def steps_of(torch, model, optimizer, seq):
    """A function: step(implementation) -> loss. All take steps of one model on the same tokens, so their losses must
    agree."""
    tokens = torch.randint(FORM["vocab_size"], (TOKENS // seq, seq), device="cuda")

    def step(implementation):
        model.set_attn_implementation(implementation)
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss
    return step


def measure_steps(options, torch, report, step, seq):
    contenders, losses = [], {}
    for name, (implementation, context) in attends(torch).items():
        contender = common.Contender(name, lambda implementation=implementation: step(implementation), context)
        try:
            with context():
                losses[name] = contender.function().item()
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}")
            continue
        contenders.append(contender)
    of_attention = [loss for name, loss in losses.items() if name != "no attention"]
    if max(of_attention) - min(of_attention) > 0.01:
        raise SystemExit(f"n{seq}: the losses differ: {losses}")
    common.measure(contenders, options.quick, sample_ms=1.0, warmup_ms=1.0)
    us = {contender.name: contender.median_us for contender in contenders}
    best = min(value for name, value in us.items() if name not in ("fatune", "no attention"))
    for contender in contenders:
        report.add(what=contender.name, n=seq, b=TOKENS // seq, ms=contender.median_us / 1e3,
                   spread_ms=contender.spread_us / 1e3, to_best=best / contender.median_us,
                   tokens_per_second=TOKENS / contender.median_us * 1e6)


def main():
    options = common.parse_arguments(__doc__.splitlines()[0], effort="none")
    torch = common.import_torch()
    report = common.Report("llama", options)
    heads, kv = FORM["num_attention_heads"], FORM["num_key_value_heads"]
    dim = FORM["hidden_size"] // heads
    forwards = [common.request_text(dim, heads, TOKENS // seq, seq, causal=True, heads_kv=kv) for seq in LENGTHS]
    common.tune(options, [text for forward in forwards for text in (forward, forward.replace("forward", "backward", 1))])
    import fatune
    import transformers
    fatune.register_transformers()
    transformers.AttentionInterface.register("no_attention", no_attention)
    model, optimizer = make_model(torch)
    for seq in LENGTHS:
        measure_steps(options, torch, report, steps_of(torch, model, optimizer, seq), seq)
        torch.cuda.empty_cache()
        report.write(effort=options.effort, form=FORM, tokens=TOKENS)  # what is there, should the rest be cut off


if __name__ == "__main__":
    main()
