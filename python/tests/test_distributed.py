"""Attention over several processes, which distributed_ranks.py starts: with gloo, on CPU tensors. Schemes go by float64 in
place of kernels, a share of all cases in each run (FATUNE_TEST_SLOW=1: all of them); kernels run on an emulated GPU."""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

import support
import test_torch

RANKS = pathlib.Path(__file__).with_name("distributed_ranks.py")


@unittest.skipUnless(test_torch.HAS_TORCH, "PyTorch is not installed")
@unittest.skipUnless(support.BUILD.exists(), "there is no build")
class Distributed(unittest.TestCase):
    def run_ranks(self, names, ranks, share=1):
        slow = os.environ.get("FATUNE_TEST_SLOW") == "1"
        seed = os.environ.get("FATUNE_TEST_SEED") or str(random.randrange(1000))
        environment = {**os.environ, "FATUNE_TEST_SHARE": str(1 if slow else share), "FATUNE_TEST_SEED": seed,
                       "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([sys.executable, str(RANKS), names, str(ranks)], capture_output=True, text=True, timeout=280,
                                 env={**environment, "FATUNE_TEST_FOLDER": folder})
        self.assertEqual(run.returncode, 0, f"FATUNE_TEST_SEED={seed}\n{run.stdout}{run.stderr}")

    def test_schemes_give_what_one_process_gives(self):
        self.run_ranks("shares,schemes,copies,documents,unseen", 3, share=6)

    def test_heads_and_rings_together(self):
        self.run_ranks("schemes", 4, share=14)

    def test_failures_name_rank_and_argument(self):
        self.run_ranks("drop_in,differing,dying", 3)

    def test_a_watch_names_the_rank_that_is_silent(self):
        import torch.distributed as dist

        from fatune.distributed._watch import Watch
        for alive in (False, True):
            store, said, ended = dist.HashStore(), [], []
            watch = Watch(store, 0, 2, 1.6, said.append, lambda: ended.append(time.monotonic()))
            store.set("fatune/1", "7")
            watch.expect("k and v", lambda: True)
            begin = time.monotonic()
            watch.expect("the gradients", lambda: False)
            others = Watch(store, 1, 2, 1.6, said.append, ended.clear) if alive else None
            time.sleep(2.2)
            self.assertEqual(others is not None, alive)
            self.assertEqual([1.5 < when - begin < 2.2 for when in ended], [] if alive else [True])
            self.assertEqual(len(said), 0 if alive else 1, said)
            if said:
                self.assertIn("the gradients did not get through: rank 1 does not answer", said[0])

    @unittest.skipUnless(test_torch.HAS_CXX, "there is no C++ compiler for the emulator")
    def test_kernels(self):
        self.run_ranks("dropped,emulated,exactness,scored,packed,bundled", 2)

    @unittest.skipUnless(test_torch.HAS_CXX, "there is no C++ compiler for the emulator")
    def test_one_process(self):
        self.run_ranks("alone", 1)


if __name__ == "__main__":
    unittest.main()
