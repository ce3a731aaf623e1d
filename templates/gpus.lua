-- gpus.lua: the GPUs that fatune knows without having one at hand.
-- in -> out: public figures -> rows of struct ft_arch (generator/arch.h).
--
-- Limits by compute capability: CUDA Programming Guide, "Compute Capabilities", technical
-- specifications. mma_flops_per_clk: published dense fp16 TFLOPS with fp32 accumulation over
-- (SMs x boost clock), rounded to the power of two that the hardware has; where mma.sync does not
-- reach what is published, what it does reach.
-- The first row of a compute capability answers for its target ("sm_90"). Aliases hold the names by
-- which drivers call the boards.

local KiB <const>, MiB <const> = 1024, 1024 * 1024

-- What all GPUs of one compute capability share.
local limits = {
  [75] = { smem_per_block = 64 * KiB, smem_per_sm = 64 * KiB, smem_reserved = 0,
           threads_per_sm = 1024, blocks_per_sm = 16 },
  [80] = { smem_per_block = 163 * KiB, smem_per_sm = 164 * KiB, smem_reserved = KiB,
           threads_per_sm = 2048, blocks_per_sm = 32 },
  [86] = { smem_per_block = 99 * KiB, smem_per_sm = 100 * KiB, smem_reserved = KiB,
           threads_per_sm = 1536, blocks_per_sm = 16 },
  [89] = { smem_per_block = 99 * KiB, smem_per_sm = 100 * KiB, smem_reserved = KiB,
           threads_per_sm = 1536, blocks_per_sm = 24 },
  [90] = { smem_per_block = 227 * KiB, smem_per_sm = 228 * KiB, smem_reserved = KiB,
           threads_per_sm = 2048, blocks_per_sm = 32 },
  [100] = { smem_per_block = 227 * KiB, smem_per_sm = 228 * KiB, smem_reserved = KiB,
            threads_per_sm = 2048, blocks_per_sm = 32 },
  [103] = { smem_per_block = 227 * KiB, smem_per_sm = 228 * KiB, smem_reserved = KiB,
            threads_per_sm = 2048, blocks_per_sm = 32 },
  [120] = { smem_per_block = 99 * KiB, smem_per_sm = 100 * KiB, smem_reserved = KiB,
            threads_per_sm = 1536, blocks_per_sm = 24 },
  [121] = { smem_per_block = 99 * KiB, smem_per_sm = 100 * KiB, smem_reserved = KiB,
            threads_per_sm = 1536, blocks_per_sm = 24 },
}

-- On Hopper mma.sync reaches 60 to 65 % of the 4096 FLOP per clock that wgmma has.
local HOPPER_MMA <const> = 2600
-- On B200 and B300 mma.sync runs at the rate of Ampere's; tcgen05 has four times as much. An estimate.
local BLACKWELL_MMA <const> = 2048

local gpus = {
  -- T4 data sheet: 65 TFLOPS, 320 GB/s; TU104 with 40 SMs at 1.59 GHz.
  { name = "t4", aliases = { "Tesla T4" },
    sm = 75, sm_count = 40, clock_ghz = 1.59, mma_flops_per_clk = 1024,
    l2_bytes = 4 * MiB, dram_gbs = 320 },

  -- A100 data sheet: 312 TFLOPS; 1555 GB/s (40 GB), 2039 GB/s (80 GB, SXM). GA100 white paper:
  -- 40 MB of L2.
  { name = "a100-80gb", aliases = { "a100", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe" },
    sm = 80, sm_count = 108, clock_ghz = 1.41, mma_flops_per_clk = 2048,
    l2_bytes = 40 * MiB, dram_gbs = 2039 },
  { name = "a100-40gb", aliases = { "NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB" },
    sm = 80, sm_count = 108, clock_ghz = 1.41, mma_flops_per_clk = 2048,
    l2_bytes = 40 * MiB, dram_gbs = 1555 },
  -- A30 data sheet: 165 TFLOPS, 933 GB/s; GA100 with 56 SMs at 1.44 GHz, 24 MB of L2.
  { name = "a30", aliases = { "NVIDIA A30" },
    sm = 80, sm_count = 56, clock_ghz = 1.44, mma_flops_per_clk = 2048,
    l2_bytes = 24 * MiB, dram_gbs = 933 },

  -- A10 data sheet: 125 TFLOPS, 600 GB/s; GA102 with 72 SMs at 1.695 GHz, 6 MB of L2.
  { name = "a10", aliases = { "NVIDIA A10" },
    sm = 86, sm_count = 72, clock_ghz = 1.695, mma_flops_per_clk = 1024,
    l2_bytes = 6 * MiB, dram_gbs = 600 },
  -- GA102 white paper: 71 TFLOPS with fp32 accumulation (half rate on GeForce), 936 GB/s, 6 MB.
  { name = "rtx3090", aliases = { "NVIDIA GeForce RTX 3090" },
    sm = 86, sm_count = 82, clock_ghz = 1.695, mma_flops_per_clk = 512,
    l2_bytes = 6 * MiB, dram_gbs = 936.2 },
  -- The same, the board with 10 GB: 59.5 TFLOPS with fp32 accumulation, 760 GB/s, 5 MB.
  { name = "rtx3080", aliases = { "NVIDIA GeForce RTX 3080" },
    sm = 86, sm_count = 68, clock_ghz = 1.71, mma_flops_per_clk = 512,
    l2_bytes = 5 * MiB, dram_gbs = 760 },
  -- GA102 with 84 SMs, 6 MB. A40 data sheet: 149.7 TFLOPS, 696 GB/s; RTX A6000's: 154.8 TFLOPS,
  -- 768 GB/s.
  { name = "a40", aliases = { "NVIDIA A40" },
    sm = 86, sm_count = 84, clock_ghz = 1.74, mma_flops_per_clk = 1024,
    l2_bytes = 6 * MiB, dram_gbs = 696 },
  { name = "rtxa6000", aliases = { "NVIDIA RTX A6000" },
    sm = 86, sm_count = 84, clock_ghz = 1.8, mma_flops_per_clk = 1024,
    l2_bytes = 6 * MiB, dram_gbs = 768 },

  -- L4 data sheet: 121 TFLOPS dense, 300 GB/s; AD104 with 58 SMs at 2.04 GHz, 48 MB of L2.
  { name = "l4", aliases = { "NVIDIA L4" },
    sm = 89, sm_count = 58, clock_ghz = 2.04, mma_flops_per_clk = 1024,
    l2_bytes = 48 * MiB, dram_gbs = 300 },
  -- L40S data sheet: 362 TFLOPS dense, 864 GB/s; AD102 with 142 SMs at 2.52 GHz, 96 MB of L2.
  { name = "l40s", aliases = { "NVIDIA L40S" },
    sm = 89, sm_count = 142, clock_ghz = 2.52, mma_flops_per_clk = 1024,
    l2_bytes = 96 * MiB, dram_gbs = 864 },
  -- Ada white paper: 165.2 TFLOPS with fp32 accumulation (half rate on GeForce), 1008 GB/s, 72 MB.
  { name = "rtx4090", aliases = { "NVIDIA GeForce RTX 4090" },
    sm = 89, sm_count = 128, clock_ghz = 2.52, mma_flops_per_clk = 512,
    l2_bytes = 72 * MiB, dram_gbs = 1008 },
  -- The same: 97.5 TFLOPS with fp32 accumulation, 716.8 GB/s, 64 MB.
  { name = "rtx4080", aliases = { "NVIDIA GeForce RTX 4080" },
    sm = 89, sm_count = 76, clock_ghz = 2.505, mma_flops_per_clk = 512,
    l2_bytes = 64 * MiB, dram_gbs = 716.8 },

  -- H100 data sheets: 3.35 TB/s (SXM), 2 TB/s (PCIe), 3.9 TB/s (NVL). Hopper white paper: 50 MB of
  -- L2. The clocks are the highest that the boards report.
  { name = "h100-sxm", aliases = { "h100", "NVIDIA H100 80GB HBM3" },
    sm = 90, sm_count = 132, clock_ghz = 1.98, mma_flops_per_clk = HOPPER_MMA,
    l2_bytes = 50 * MiB, dram_gbs = 3352 },
  { name = "h100-pcie", aliases = { "NVIDIA H100 PCIe" },
    sm = 90, sm_count = 114, clock_ghz = 1.755, mma_flops_per_clk = HOPPER_MMA,
    l2_bytes = 50 * MiB, dram_gbs = 2039 },
  { name = "h100-nvl", aliases = { "NVIDIA H100 NVL" },
    sm = 90, sm_count = 132, clock_ghz = 1.785, mma_flops_per_clk = HOPPER_MMA,
    l2_bytes = 50 * MiB, dram_gbs = 3938 },
  -- H200 data sheet: 4.8 TB/s; its driver reports 60 MB of L2.
  { name = "h200", aliases = { "NVIDIA H200" },
    sm = 90, sm_count = 132, clock_ghz = 1.98, mma_flops_per_clk = HOPPER_MMA,
    l2_bytes = 60 * MiB, dram_gbs = 4800 },
  -- GH200 data sheet: 4 TB/s (96 GB of HBM3).
  { name = "gh200", aliases = { "NVIDIA GH200 480GB" },
    sm = 90, sm_count = 132, clock_ghz = 1.98, mma_flops_per_clk = HOPPER_MMA,
    l2_bytes = 60 * MiB, dram_gbs = 4000 },

  -- Blackwell data sheet: 8 TB/s; two dies with 74 SMs each, 126 MB of L2.
  { name = "b200", aliases = { "NVIDIA B200" },
    sm = 100, sm_count = 148, clock_ghz = 1.965, mma_flops_per_clk = BLACKWELL_MMA,
    l2_bytes = 126 * MiB, dram_gbs = 8000 },
  -- HGX B300 data sheet: 8 TB/s a GPU, fp16 as B200's. SMs, clock and L2 are taken to be B200's.
  { name = "b300", aliases = { "NVIDIA B300 SXM6 AC" },
    sm = 103, sm_count = 148, clock_ghz = 1.965, mma_flops_per_clk = BLACKWELL_MMA,
    l2_bytes = 126 * MiB, dram_gbs = 8000 },

  -- RTX Blackwell white paper: 209.5 TFLOPS with fp32 accumulation (half rate), 1792 GB/s, 96 MB.
  { name = "rtx5090", aliases = { "NVIDIA GeForce RTX 5090" },
    sm = 120, sm_count = 170, clock_ghz = 2.407, mma_flops_per_clk = 512,
    l2_bytes = 96 * MiB, dram_gbs = 1792 },
  -- The same: 112.6 TFLOPS, 960 GB/s, 64 MB; 61.7 TFLOPS, 672 GB/s, 48 MB.
  { name = "rtx5080", aliases = { "NVIDIA GeForce RTX 5080" },
    sm = 120, sm_count = 84, clock_ghz = 2.617, mma_flops_per_clk = 512,
    l2_bytes = 64 * MiB, dram_gbs = 960 },
  { name = "rtx5070", aliases = { "NVIDIA GeForce RTX 5070" },
    sm = 120, sm_count = 48, clock_ghz = 2.512, mma_flops_per_clk = 512,
    l2_bytes = 48 * MiB, dram_gbs = 672 },
  -- RTX PRO Blackwell white paper: 503.8 TFLOPS dense, 1792 GB/s, 128 MB. GB202 with 188 SMs.
  { name = "rtxpro6000", aliases = { "NVIDIA RTX PRO 6000 Blackwell Workstation Edition" },
    sm = 120, sm_count = 188, clock_ghz = 2.617, mma_flops_per_clk = 1024,
    l2_bytes = 128 * MiB, dram_gbs = 1792 },
  -- DGX Spark data sheet: 6144 CUDA cores, 273 GB/s. The clock follows from 31 TFLOPS of fp32; the
  -- tensor cores are taken to be GeForce's, an estimate. Users say that its driver reports 24 MB of L2.
  { name = "gb10", aliases = { "NVIDIA GB10" },
    sm = 121, sm_count = 48, clock_ghz = 2.52, mma_flops_per_clk = 512,
    l2_bytes = 24 * MiB, dram_gbs = 273 },
}

for _, gpu in ipairs(gpus) do
  gpu.regs_per_sm = 65536 -- of every compute capability from 7.5 on
  for field, value in pairs(limits[gpu.sm]) do gpu[field] = value end
end

return gpus
