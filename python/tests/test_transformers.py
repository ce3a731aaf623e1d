"""attn_implementation="fatune" beside "sdpa": tiny random models of Transformers on an emulated GPU. As test_torch.py."""

import importlib.util
import unittest
import warnings

from test_torch import Emulated

import fatune

if importlib.util.find_spec("transformers") is not None:
    import torch
    import transformers

TINY = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
        "attn_implementation": "fatune", "dtype": "bfloat16"}


@unittest.skipUnless(importlib.util.find_spec("transformers"), "Transformers is not installed")
class Models(Emulated):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        fatune.register_transformers()
        transformers.logging.set_verbosity_error()

    def setUp(self):
        self.session.forget_plans()
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("error", fatune.FallbackWarning)

    def tearDown(self):
        self.assertTrue(self.session.plans or "not_served" in self.id(), "no kernel of fatune's ran")

    def beside(self, model, batch=2, length=24):
        """Logits of the positions that are no padding, and gradients, beside those of "sdpa"; then without padding."""
        generator = torch.Generator().manual_seed(2)
        tokens = torch.randint(1, 100, (batch, length), generator=generator)
        mask = torch.ones_like(tokens)
        mask[0, :7] = 0  # padding on the left
        weights = torch.randn(100, generator=generator).to(model.dtype)
        for attention_mask in (mask, None):
            seen = mask.bool() if attention_mask is not None else torch.ones_like(mask).bool()
            results = []
            for implementation in ("fatune", "sdpa"):
                model.set_attn_implementation(implementation)
                model.zero_grad()
                out = model(tokens, attention_mask=attention_mask)
                values = (out.logits if hasattr(out, "logits") else out.last_hidden_state)[seen]
                (values @ weights[:values.shape[-1]]).float().mean().backward()
                results.append((values.detach(), *(p.grad for p in model.parameters() if p.grad is not None)))
            for ours, theirs in zip(*results):
                self.close(ours, theirs, 0.04 * max(theirs.abs().max().item(), 1e-3))

    def model(self, name, seed=1, **more):
        torch.manual_seed(seed)
        config = getattr(transformers, name + "Config")(**{**TINY, **more})
        kind = "Model" if name == "Bert" else "LMHeadModel" if name == "GPT2" else "ForCausalLM"
        return getattr(transformers, name + kind)._from_config(config, attn_implementation="fatune",
                                                               dtype=torch.bfloat16).eval()

    def test_llama(self):
        self.beside(self.model("Llama", num_key_value_heads=2))

    def test_windows(self):
        self.beside(self.model("Mistral", num_key_value_heads=2, sliding_window=5))

    def test_softcap(self):
        model = self.model("Gemma2", num_key_value_heads=2, head_dim=16, sliding_window=8, attn_logit_softcapping=0.05)
        tokens = torch.arange(1, 25)[None]
        ours = model(tokens).logits
        model.set_attn_implementation("eager")
        exact = model(tokens).logits
        self.close(ours, exact, 0.04 * exact.abs().max().item())

    def test_gpt2(self):
        self.beside(self.model("GPT2", n_embd=64, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

    def test_bert(self):
        self.beside(self.model("Bert", hidden_dropout_prob=0, attention_probs_dropout_prob=0))

    def test_t5(self):
        torch.manual_seed(1)
        config = transformers.T5Config(d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4, vocab_size=100,
                                       decoder_start_token_id=0)
        model = transformers.T5ForConditionalGeneration._from_config(
            config, attn_implementation="fatune", dtype=torch.bfloat16).eval()
        tokens = torch.arange(3, 27)[None].repeat(2, 1)
        mask = torch.ones_like(tokens)
        mask[0, 20:] = 0
        with torch.no_grad():  # its position bias is learnt, and fatune makes no gradients of one
            ours = model(tokens, attention_mask=mask, decoder_input_ids=tokens).logits
            model.set_attn_implementation("sdpa")
            theirs = model(tokens, attention_mask=mask, decoder_input_ids=tokens).logits
        self.close(ours, theirs, 0.04 * theirs.abs().max().item())

    def test_generate(self):
        model = self.model("Llama", num_key_value_heads=2)
        tokens = torch.arange(3, 13)[None].repeat(2, 1)
        mask = torch.ones_like(tokens)
        mask[0, :4] = 0
        made = []
        for implementation in ("fatune", "sdpa"):
            model.set_attn_implementation(implementation)
            made.append(model.generate(tokens, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0))
        self.assertEqual(made[0].tolist(), made[1].tolist())

    def test_sinks_are_those_of_eager(self):
        model = self.model("GptOss", num_key_value_heads=2, head_dim=16, num_local_experts=2, num_experts_per_tok=1,
                           sliding_window=8, intermediate_size=32, eos_token_id=1, pad_token_id=0)
        tokens = torch.randint(1, 100, (2, 24), generator=torch.Generator().manual_seed(3))
        results = []
        for implementation in ("fatune", "eager"):
            model.set_attn_implementation(implementation)
            model.zero_grad()
            out = model(tokens).logits
            out.float().square().mean().backward()
            results.append((out.detach(), *(layer.self_attn.sinks.grad for layer in model.model.layers)))
        for ours, theirs in zip(*results):
            self.close(ours, theirs, 0.04 * max(theirs.abs().max().item(), 1e-3))


if __name__ == "__main__":
    unittest.main()
